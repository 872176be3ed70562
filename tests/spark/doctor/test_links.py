"""One task of each host tries the links; a silent one costs a bounded time."""

from contextlib import closing

from laminar_core.host.clock import ManualClock, SystemClock
from laminar_core.link.transport import CoordinatorTransport
from laminar_core.spark.doctor.facts import LinkFacts, Request
from laminar_core.spark.doctor.links import (
    DRIVER_MAX_MS,
    LINK_MAX_MS,
    Answering,
    representatives,
    try_links,
)


class PatientClock(ManualClock):
    """A clock that goes on by four seconds whenever it is read."""

    def monotonic_ms(self) -> float:
        self.wait_ms(4_000)
        return super().monotonic_ms()


def test_one_task_stands_for_its_host():
    assert representatives(["a", "b", "a", "c", "b"]) == [0, 1, 3]
    assert representatives(["a", "a"]) == [0, 1]


def test_peers_and_a_driver_that_are_silent_are_given_up():
    transport = CoordinatorTransport("ipc", "127.0.0.1", 2)
    with closing(transport):  # Nobody answers, and the peer is no more than an address.
        request = Request("7", 2, transport.address)
        clock = PatientClock()
        began_ms = clock.monotonic_ms()
        peer = f'["{transport.address.endpoint}-away", ""]'
        found = try_links(request, 0, ["a", "b"], lambda text: [text, peer], clock)
        assert found == {
            "driver_reached": False,
            "clock_ahead_ms": None,
            "links": (LinkFacts(sender=1, size_bytes=0, bytes_per_s=None),),
        }
        assert clock.monotonic_ms() - began_ms < DRIVER_MAX_MS + LINK_MAX_MS + 40_000


def test_a_task_without_an_address_says_why_and_keeps_the_others_from_waiting():
    transport = CoordinatorTransport("tcp", "127.0.0.1", 2)
    with closing(Answering(transport, SystemClock())):
        request = Request("7", 2, transport.address)
        said: list[str] = []

        def gather(text: str) -> list[str]:
            said.append(text)
            return [text, '["tcp://127.0.0.1:9", ""]']

        found = try_links(request, 0, ["203.0.113.7", "b"], gather, SystemClock())
    assert "203.0.113.7" in found["network_problem"]
    assert said == ['["", ""]']
