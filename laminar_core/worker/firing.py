"""An advance of event time that is emitted in pieces."""

from collections.abc import Callable, Iterator

from laminar_core.host.clock import Clock
from laminar_core.worker.operator_chain import Chain
from laminar_core.worker.slicing import UNIT_MS
from laminar_core.worker.timed import TimedOperators

_OVER = object()


class Firing:
    """An advance of event time, emitted in pieces; no other element is taken until it is over.

    A large window takes many seconds, and possibly too much memory. So it is emitted one unit of
    work at a time, as far as the outputs have room. In between the worker serves its queues and
    sends heartbeats. A rest at a cut belongs before the cut and is emitted first, because its rows
    are no part of the state any more.
    """

    def __init__(
        self, chain: Chain, clock: Clock, has_room: Callable[[], bool], timed: TimedOperators
    ) -> None:
        self._chain = chain
        self._clock = clock
        self._has_room = has_room
        self._timed = timed
        self.waits = False
        """Whether it goes on only after rows that wait in an operator have left it."""
        self._rest: Iterator[bool] | None = None
        self._then: Callable[[], None] | None = None

    @property
    def active(self) -> bool:
        """Whether a part of the advance is left."""
        return self._rest is not None

    def start(self, watermark_us: int | None, then: Callable[[], None] | None = None) -> None:
        """Start to advance event time (None: not at all); call ``then`` afterwards."""
        assert self._rest is None, "one step after the other"
        self._rest = iter(()) if watermark_us is None else self._chain.advancing(watermark_us)
        self._then = then
        self.work()

    def work(self) -> bool:
        """Continue for one unit of work, also with rows that wait in operators on the way.

        Returns whether anything was done.
        """
        acted = self._timed.work_on_waiting(self._chain.advances_at)
        until_ms = self._clock.monotonic_ms() + UNIT_MS
        while self._rest is not None and self._may_go_on():
            self._emit_next(self._rest)
            if self.waits:
                return acted
            acted = True
            if self._clock.monotonic_ms() >= until_ms:
                break
        return acted

    def _may_go_on(self) -> bool:
        return self._has_room() and not self._timed.is_full(self._chain.advances_at + 1)

    def finish(self) -> None:
        """Emit the rest, whether there is room or not, up to where it waits."""
        while self._rest is not None:
            self._emit_next(self._rest)
            if self.waits:
                return

    def _emit_next(self, rest: Iterator[bool]) -> None:
        step = next(rest, _OVER)
        self.waits = step is True
        if step is _OVER:
            self._rest = None
            if self._then is not None:
                self._then()
