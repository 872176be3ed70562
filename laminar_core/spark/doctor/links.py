"""Whether all hosts reach each other and the driver, as the workers of a job would."""

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict

from laminar_core.errors import LaminarError
from laminar_core.host.clock import Clock
from laminar_core.link.messages import Peer
from laminar_core.link.transport import CoordinatorTransport, ZmqWorkerTransport
from laminar_core.spark.doctor.facts import LinkFacts, Request

FRAME_BYTES = 1 << 20
FRAMES = 16
"""Frames of one direction: enough to see whether a link is slow, and no load for a network."""

LINK_MAX_MS = 10_000
"""A direction of a link that has not delivered all frames by then is too slow for a job."""

DRIVER_MAX_MS = 10_000
CLOCK_QUESTIONS = 5
"""The answer that comes soonest says most about the difference of two clocks."""

_TURN_MS = 200

Gather = Callable[[str], list[str]]


class NetworkFacts(TypedDict, total=False):
    """The part of ``JointFacts`` about the network."""

    network_problem: str
    driver_reached: bool
    clock_ahead_ms: float | None
    links: tuple[LinkFacts, ...]


class Answering:
    """The driver's end: answers each task with its clock, in a thread of its own."""

    def __init__(self, transport: CoordinatorTransport, clock: Clock) -> None:
        self._transport, self._clock = transport, clock
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="laminar-doctor", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.is_set():
            self._transport.wait(_TURN_MS)
            for message in self._transport.receive():
                question: dict[str, Any] = json.loads(message)
                question["answered_at_ms"] = self._clock.now_ms()
                self._transport.send(int(question["task"]), json.dumps(question).encode())

    def close(self) -> None:
        """End the thread and close the socket."""
        self._ended.set()
        self._transport.wake()
        self._thread.join()
        self._transport.close()


def try_links(
    request: Request, index: int, hosts: list[str], gather: Gather, clock: Clock
) -> NetworkFacts:
    """Send to the driver and to the tasks of other hosts; every task calls it."""
    transport, problem = None, ""
    try:
        transport = ZmqWorkerTransport(request.address, index, hosts[index])
    except (LaminarError, OSError) as error:
        problem = str(error)
    own = (transport.endpoint, transport.public_key) if transport else ("", "")
    peers = [json.loads(text) for text in gather(json.dumps(own))]
    try:
        if transport is None or not all(endpoint for endpoint, _ in peers):
            return {"network_problem": problem}
        transport.connect_peers(Peer(endpoint=e, public_key=key) for e, key in peers)
        ahead_ms = _clock_ahead_ms(transport, index, clock)
        found: NetworkFacts = {"driver_reached": ahead_ms is not None, "clock_ahead_ms": ahead_ms}
        found["links"] = _Rounds(transport, index, representatives(hosts), clock).run(gather)
        return found
    finally:
        if transport is not None:
            transport.close()


def representatives(hosts: list[str]) -> list[int]:
    """Return one task for each host; all tasks if there is only one host."""
    first = {host: hosts.index(host) for host in dict.fromkeys(hosts)}
    return list(range(len(hosts))) if len(first) == 1 else sorted(first.values())


def _clock_ahead_ms(transport: ZmqWorkerTransport, index: int, clock: Clock) -> float | None:
    """Ask the driver for its clock; None: it does not answer."""
    best: tuple[float, float] | None = None
    for number in range(CLOCK_QUESTIONS):
        asked_at_ms, began_ms = clock.now_ms(), clock.monotonic_ms()
        transport.send_control(json.dumps({"task": index, "number": number}).encode())
        answered_at_ms = _answered_at_ms(transport, number, clock, began_ms + DRIVER_MAX_MS)
        if answered_at_ms is None:
            break
        took_ms = clock.monotonic_ms() - began_ms
        ahead_ms = asked_at_ms - answered_at_ms + took_ms / 2
        best = min(filter(None, (best, (took_ms, ahead_ms))))
    return None if best is None else best[1]


def _answered_at_ms(
    transport: ZmqWorkerTransport, number: int, clock: Clock, until_ms: float
) -> float | None:
    while (left_ms := until_ms - clock.monotonic_ms()) > 0:
        transport.wait(min(left_ms, _TURN_MS))
        for message in transport.receive_control():
            answer: dict[str, Any] = json.loads(message)
            if answer["number"] == number:
                return float(answer["answered_at_ms"])
    return None


@dataclass(frozen=True)
class _Rounds:
    """In each round every task sends to one other, so no host has two streams at once."""

    transport: ZmqWorkerTransport
    index: int
    tasks: list[int]
    clock: Clock

    def run(self, gather: Gather) -> tuple[LinkFacts, ...]:
        found: list[LinkFacts] = []
        count = len(self.tasks)
        for step in range(1, count):
            pair = None
            if self.index in self.tasks:
                place = self.tasks.index(self.index)
                pair = self.tasks[(place + step) % count], self.tasks[(place - step) % count]
            # The first frame shows that there is a connection; then it is up, and can be measured.
            connected = pair is not None and self._exchange(*pair, 1, 0).size_bytes > 0
            gather("connected")
            if pair is not None:
                silent = LinkFacts(sender=pair[1], size_bytes=0, bytes_per_s=None)
                found.append(self._exchange(*pair, FRAMES, 1) if connected else silent)
            gather("measured")
        return tuple(found)

    def _exchange(self, receiver: int, sender: int, frames: int, part: int) -> LinkFacts:
        """Send frames to one task, and take those of another until the time is over."""
        began_ms = self.clock.monotonic_ms()
        for _ in range(frames):
            self.transport.send(receiver, _header(self.index, part), _PAYLOAD)
        taken, now_ms = 0, began_ms
        while taken < frames and now_ms - began_ms < LINK_MAX_MS:
            self.transport.wait(_TURN_MS)
            expected = _header(sender, part)  # Others are late: theirs is counted as lost.
            taken += sum(bytes(header) == expected for header, _ in self.transport.receive())
            now_ms = self.clock.monotonic_ms()
        size_bytes = taken * FRAME_BYTES
        rate = size_bytes / max(now_ms - began_ms, 0.1) * 1000 if taken else None
        return LinkFacts(sender=sender, size_bytes=size_bytes, bytes_per_s=rate)


_PAYLOAD = bytes(FRAME_BYTES)


def _header(sender: int, part: int) -> bytes:
    return f"{sender} {part}".encode()
