"""Operators chained by direct calls: the inside of a vertex."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import pyarrow as pa

from laminar_core.host.clock import Clock
from laminar_core.operators.base import (
    AnySubtask,
    Emitted,
    FollowsSplits,
    MultiInputSubtask,
    OperatorSubtask,
    Side,
    output_watermark_of,
)
from laminar_core.protocol.split_watermarks import SplitWatermarks
from laminar_core.protocol.types import Watermark
from laminar_core.worker.slicing import UNIT_MS

_OVER = object()
T = TypeVar("T")


class Chain:
    """Pushes batches and watermarks through operators, to what follows the last one.

    What was in flight on several old channels can be replayed as one, and is not in the order of
    event time then. An operator that makes watermarks of rows would take that for the progress of
    time; so these watermarks wait until everything has been replayed.
    """

    def __init__(
        self,
        operators: Sequence[tuple[str, AnySubtask]],
        on_batch: Callable[[pa.RecordBatch], None],
        on_watermark: Callable[[int], None],
        on_operator: Callable[[str], None],
        on_side: Callable[[str, Side], None],
    ) -> None:
        self._ids = [operator_id for operator_id, _ in operators]
        self._operators = [operator for _, operator in operators]
        self._inlets = [_inlet_of(operator) for operator in self._operators]
        self.rows_passed = [0] * (len(operators) + 1)
        """Rows that each operator has taken since the start, and those that left the last one."""
        self._on_operator = on_operator
        self._on_batch = on_batch
        self._on_watermark = on_watermark
        self._on_side = on_side
        self._followers: dict[int, FollowsSplits] = {}
        self._replays = False
        self._held_us: dict[int, int] = {}
        """Newest delayed watermark, by the operator that will receive it."""
        self._passed_us: dict[int, int] = {}
        """Newest watermark that has left an operator."""

    def follow(self, splits: SplitWatermarks) -> None:
        """Let event time be the least over the splits of the source before this chain."""
        for position, operator in enumerate(self._operators):
            if isinstance(operator, FollowsSplits):
                operator.follow(splits)
                self._followers[position] = operator

    def from_split(self, split_id: int) -> None:
        """Note that the next batches come from this split."""
        for follower in self._followers.values():
            follower.from_split(split_id)

    def look_again(self) -> None:
        """Pass event time on that has risen without a batch."""
        for position, follower in self._followers.items():
            for watermark in follower.risen():
                self._made(watermark.time_us, position)

    def hold_made_watermarks(self) -> None:
        """Delay watermarks made in the chain, because restored rows are replayed from now on."""
        self._replays = True

    def release_made_watermarks(self) -> None:
        """Release the delayed watermarks, because the replay is complete."""
        self._replays = False
        held, self._held_us = self._held_us, {}
        for start in sorted(held, key=held.__getitem__):
            self.advance(held[start], start)

    def process(self, batch: pa.RecordBatch, start: int = 0, *, input_index: int = 0) -> None:
        """Run one batch through the operators from ``start`` on, of this input of the first one."""
        for _ in self.processing(batch, start, input_index=input_index):
            pass

    def processing(
        self, batch: pa.RecordBatch, start: int = 0, *, input_index: int = 0
    ) -> Iterator[None]:
        """Do the same result by result; nothing else may be done here until it is exhausted."""
        self.rows_passed[start] += batch.num_rows
        if start == len(self._operators):
            self._on_batch(batch)
            return
        self._on_operator(self._ids[start])
        for result in self._watched(start, self._inlets[start](input_index, batch)):
            self._pass_on(start, result)
            yield

    def emit(self, position: int, results: Iterable[Emitted]) -> None:
        """Pass on what the operator at ``position`` emits without a batch."""
        self._on_operator(self._ids[position])
        for result in self._watched(position, results):
            self._pass_on(position, result)

    def _pass_on(self, position: int, result: Emitted) -> None:
        if isinstance(result, Watermark):
            self._made(result.time_us, position)
        elif isinstance(result, Side):
            self._on_side(self._ids[position], result)
        else:
            self.process(result, position + 1)

    def _made(self, watermark_us: int, position: int) -> None:
        """Take a watermark that an operator has made of its rows."""
        if self._replays:
            known_us = self._held_us.get(position + 1, watermark_us)
            self._held_us[position + 1] = max(known_us, watermark_us)
        elif self._passes(position, watermark_us):
            self.advance(watermark_us, position + 1)

    def advance(self, watermark_us: int, start: int = 0) -> None:
        """Advance event time; results that it completes go before the watermark."""
        for _ in self.advancing(watermark_us, start):
            pass

    def advancing(self, watermark_us: int, start: int = 0) -> Iterator[None]:
        """Do the same batch by batch; nothing else may be done here until it is exhausted."""
        for position in range(start, len(self._operators)):
            self._on_operator(self._ids[position])
            completed = self._operators[position].on_watermark(watermark_us)
            for result in self._watched(position, completed):
                if isinstance(result, Side):
                    self._on_side(self._ids[position], result)
                else:
                    self.process(result, position + 1)
                yield
            held_us = output_watermark_of(self._operators[position], watermark_us)
            if held_us is None or not self._passes(position, held_us):
                return
            watermark_us = held_us
        self._on_watermark(watermark_us)

    def output_watermark(self, watermark_us: int) -> int | None:
        """Return what leaves the chain when event time has come so far; None: nothing yet."""
        left_us: int | None = watermark_us
        for operator in self._operators:
            if left_us is not None:
                left_us = output_watermark_of(operator, left_us)
        return left_us

    def _passes(self, position: int, watermark_us: int) -> bool:
        """Return whether event time behind an operator advances; it never goes back."""
        known_us = self._passed_us.get(position)
        if known_us is not None and watermark_us <= known_us:
            return False
        self._passed_us[position] = watermark_us
        return True

    def _watched(self, position: int, results: Iterable[T]) -> Iterator[T]:
        """Yield ``results`` lazily, and note the operator that computes after each one."""
        for result in results:
            yield result
            self._on_operator(self._ids[position])  # Those behind it have computed meanwhile.


Inlet = Callable[[int, pa.RecordBatch], Iterable[Emitted]]
"""Takes a batch of the input with this number."""


def _inlet_of(subtask: AnySubtask) -> Inlet:
    if isinstance(subtask, MultiInputSubtask):
        return subtask.process_input
    return _only_input(subtask)


def _only_input(subtask: OperatorSubtask) -> Inlet:
    return lambda _, batch: subtask.process(batch)


Then = Callable[[float], None]
"""Called when an element is over, with the milliseconds of work that it took."""

RESULTS_AT_ONCE = 4
"""Number of results of a batch that are passed on whether there is room or not.

Most operators have fewer, so their step is over when it returns.
"""


class Firing:
    """The results of an element, emitted in pieces; no other element is taken until it is over.

    A large window and the pairs of a hot key take many seconds, and possibly too much memory. So
    they are emitted one unit of work at a time, as far as the outputs have room. In between the
    worker serves its queues and sends heartbeats. A rest at a cut belongs before the cut and is
    emitted first, because the state is ahead of it, or in the middle of it.
    """

    def __init__(self, chain: Chain, clock: Clock, has_room: Callable[[], bool]) -> None:
        self._chain = chain
        self._clock = clock
        self._has_room = has_room
        self._rest: Iterator[None] | None = None
        self._then: Then | None = None
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
        self._begin(pieces, then, at_once=0)

    def take(self, batch: pa.RecordBatch, input_index: int, then: Then) -> None:
        """Start to process a batch of this input; call ``then`` afterwards."""
        pieces = self._chain.processing(batch, input_index=input_index)
        self._begin(pieces, then, at_once=RESULTS_AT_ONCE)

    def work(self) -> None:
        """Continue for one unit of work."""
        self._go_on(in_units=True)

    def finish(self) -> None:
        """Emit the rest, whether there is room or not."""
        self._go_on(in_units=False)

    def _begin(self, pieces: Iterator[None], then: Then | None, *, at_once: int) -> None:
        assert self._rest is None, "one step after the other"
        self._rest, self._then = pieces, then
        self._at_once = at_once
        self.work()

    def _go_on(self, *, in_units: bool) -> None:
        if self._rest is None:
            return
        started_ms = self._clock.monotonic_ms()
        while self._rest is not None and not (in_units and self._pauses(started_ms)):
            if next(self._rest, _OVER) is _OVER:
                self._rest = None
        self._took_ms += self._clock.monotonic_ms() - started_ms
        if self._rest is None:
            then, took_ms = self._then, self._took_ms
            self._then, self._took_ms, self._at_once = None, 0.0, 0
            if then is not None:
                then(took_ms)

    def _pauses(self, started_ms: float) -> bool:
        if self._at_once > 0:
            self._at_once -= 1
            return False
        return not self._has_room() or self._clock.monotonic_ms() >= started_ms + UNIT_MS
