"""The results of an element, emitted in pieces."""

from collections.abc import Callable, Iterator

import pyarrow as pa

from laminar_core.host.clock import Clock
from laminar_core.worker.operator_chain import Chain
from laminar_core.worker.slicing import UNIT_MS
from laminar_core.worker.timed import TimedOperators

Then = Callable[[float], None]
"""Called when an element is over, with the milliseconds of work that it took."""

RESULTS_AT_ONCE = 4
"""Number of results of a batch that are passed on whether there is room or not.

Most operators have fewer, so their step is over when it returns.
"""

_OVER = object()


class Firing:
    """The results of an element, emitted in pieces; no other element is taken until it is over.

    A large window and the pairs of a hot key take many seconds, and possibly too much memory. So
    they are emitted one unit of work at a time, as far as the outputs have room. In between the
    worker serves its queues and sends heartbeats. A rest at a cut belongs before the cut and is
    emitted first, because the state is ahead of it, or in the middle of it.
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
        self._then: Then | None = None
        self._advances = False
        """Whether event time advances; else a batch is processed."""
        self._at_once = 0
        """Results that are still passed on without a look at the room or the clock."""
        self._took_ms = 0.0
        """Time at work on the present element."""

    @property
    def active(self) -> bool:
        """Whether a part is left."""
        return self._rest is not None

    def start(self, watermark_us: int | None, then: Then | None = None) -> None:
        """Start to advance event time (None: not at all); call ``then`` afterwards."""
        pieces = iter(()) if watermark_us is None else self._chain.advancing(watermark_us)
        self._begin(pieces, then, advances=True)

    def take(self, batch: pa.RecordBatch, input_index: int, then: Then) -> None:
        """Start to process a batch of this input; call ``then`` afterwards."""
        pieces = self._chain.processing(batch, input_index=input_index)
        self._begin(pieces, then, advances=False)

    def work(self) -> bool:
        """Continue for one unit of work, also with rows that wait in operators on the way.

        Returns whether anything was done.
        """
        acted = self._advances and self._timed.work_on_waiting(self._chain.advances_at)
        return self._go_on(in_units=True) or acted

    def finish(self) -> None:
        """Emit the rest, whether there is room or not, up to where it waits."""
        self._go_on(in_units=False)

    def _begin(self, pieces: Iterator[bool], then: Then | None, *, advances: bool) -> None:
        assert self._rest is None, "one step after the other"
        self._rest, self._then, self._advances = pieces, then, advances
        self._at_once = 0 if advances else RESULTS_AT_ONCE
        self.work()

    def _go_on(self, *, in_units: bool) -> bool:
        if self._rest is None:
            return False
        acted, started_ms = False, self._clock.monotonic_ms()
        while self._rest is not None and not (in_units and self._pauses(started_ms)):
            step = next(self._rest, _OVER)
            self.waits = step is True
            if self.waits:
                break
            acted = True
            if step is _OVER:
                self._rest = None
        self._took_ms += self._clock.monotonic_ms() - started_ms
        if self._rest is None:
            self._end()
        return acted

    def _end(self) -> None:
        then, took_ms = self._then, self._took_ms
        self._then, self._took_ms, self._at_once, self._advances = None, 0.0, 0, False
        if then is not None:
            then(took_ms)

    def _pauses(self, started_ms: float) -> bool:
        if self._at_once > 0:
            self._at_once -= 1
            return False
        if not self._has_room() or self._clock.monotonic_ms() >= started_ms + UNIT_MS:
            return True
        return self._advances and self._timed.is_full(self._chain.advances_at + 1)
