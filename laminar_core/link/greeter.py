"""Greetings between a worker and the others, before its generation begins.

``protocol/greetings.py`` decides; this module sends the frames.
"""

from collections.abc import Callable

from laminar_core.link.transport import WorkerTransport
from laminar_core.link.wire import FrameKind, Header
from laminar_core.protocol.greetings import (
    Greet,
    GreetingArrived,
    Report,
    TimePassed,
    WorkerGreetings,
    worker_step,
)


class Greeter:
    """The greetings of one worker, from the moment at which it knows the others' addresses."""

    def __init__(self, me: int, generation: int) -> None:
        self._me = me
        self._generation = generation
        self._state: WorkerGreetings | None = None
        self._transport: WorkerTransport | None = None
        self._report: Callable[[tuple[int, ...]], None] = lambda _: None

    def begin(
        self,
        transport: WorkerTransport,
        workers: int,
        now_ms: float,
        report: Callable[[tuple[int, ...]], None],
    ) -> None:
        """Greet the others; ``report`` is called with those whose greetings are missing."""
        self._state = WorkerGreetings(self._me, workers, report_due_ms=now_ms)
        self._transport, self._report = transport, report
        self.turn(now_ms)

    def turn(self, now_ms: float) -> None:
        """Greet again, and report, if it is due."""
        self._step(TimePassed(now_ms))

    def hear(self, sender: int) -> None:
        """Note that a greeting arrived; one that comes after the end has no effect."""
        self._step(GreetingArrived(sender))

    def end(self) -> None:
        """Stop greeting: everybody begins."""
        self._state = None

    def _step(self, event: TimePassed | GreetingArrived) -> None:
        if self._state is None:
            return
        self._state, effects = worker_step(self._state, event)
        for effect in effects:
            match effect:
                case Greet():
                    self._greet(self._state.workers)
                case Report(missing):
                    self._report(tuple(sorted(missing)))

    def _greet(self, workers: int) -> None:
        assert self._transport is not None, "addresses come with the transport"
        for peer in range(workers):
            if peer != self._me:
                header = Header(self._generation, 0, self._me, peer, FrameKind.GREETING, 0)
                self._transport.send(peer, header.encode(), b"")
