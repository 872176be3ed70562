"""A registration is checked, and unreachable workers are described."""

import pytest

from laminar_core.driver.events import UnreachablePair
from laminar_core.driver.registration import PAIRS_IN_A_LINE, refuse_loopback, unreachable_line
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.link.messages import Register
from laminar_core.link.versions import own_versions


def registered(worker: int, host: str, endpoint: str) -> Register:
    return Register(
        generation=1,
        worker=worker,
        pid=1,
        host=host,
        endpoint=endpoint,
        public_key="",
        claim_sha256=None,
        versions=own_versions(),
        open_files_max=None,
    )


def workers(*addresses: tuple[str, str]) -> list[Register]:
    return [registered(n, host, endpoint) for n, (host, endpoint) in enumerate(addresses)]


@pytest.mark.parametrize(
    "addresses",
    [
        [("a", "tcp://10.0.0.1:1"), ("b", "tcp://[fd00::2]:1")],
        [("a", "tcp://127.0.0.1:1"), ("a", "tcp://127.0.0.1:2")],
        [("a", "ipc:///tmp/1"), ("b", "sim://g1/worker-1")],
        [("a", "tcp://name.example:1")],
    ],
)
def test_addresses_that_others_can_reach_are_accepted(addresses) -> None:
    refuse_loopback(workers(*addresses))


@pytest.mark.parametrize(
    "addresses",
    [
        [("a", "tcp://10.0.0.1:1"), ("b", "tcp://127.0.1.1:1")],
        [("a", "tcp://127.0.1.1:1"), ("b", "tcp://127.0.1.1:1")],
        [("a", "tcp://10.0.0.1:1"), ("b", "tcp://[::1]:1")],
        [("a", "tcp://10.0.0.1:1"), ("b", "tcp://localhost:1")],
    ],
)
def test_a_loopback_address_among_several_hosts_is_refused(addresses) -> None:
    with pytest.raises(ConfigurationError, match="loopback address on its own host") as caught:
        refuse_loopback(workers(*addresses))
    assert caught.value.code is ErrorCode.LOOPBACK_ADDRESS


def test_a_line_names_the_first_pairs_and_counts_the_others() -> None:
    pairs = tuple(
        UnreachablePair(
            sender=0, sender_host="a", receiver=n, receiver_host=f"h{n}", address=f"tcp://{n}"
        )
        for n in range(1, 6)
    )
    line = unreachable_line(pairs, 9, 20_000)
    assert line.startswith("within 20 s no connection from worker 0 on a to worker 1 on h1 at")
    assert line.count(" to worker ") == PAIRS_IN_A_LINE
    assert "; and 6 more pairs: let" in line
    assert "\n" not in line
