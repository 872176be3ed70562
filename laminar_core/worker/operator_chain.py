"""Operators chained by direct calls: the inside of a vertex."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import pyarrow as pa

from laminar_core.operators.base import (
    AnySubtask,
    Emitted,
    FollowsSplits,
    KeepsBundle,
    KeepsRowsWaiting,
    MultiInputSubtask,
    OperatorSubtask,
    Side,
    output_watermark_of,
)
from laminar_core.protocol.split_watermarks import SplitWatermarks
from laminar_core.protocol.types import WATERMARK_END_US, Watermark

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
        self._bundles = [
            (position, operator)
            for position, operator in enumerate(self._operators)
            if isinstance(operator, KeepsBundle)
        ]
        self._followers: dict[int, FollowsSplits] = {}
        self._replays = False
        self._held_us: dict[int, int] = {}
        """Newest delayed watermark, by the operator that will receive it."""
        self._passed_us: dict[int, int] = {}
        """Newest watermark that has left an operator."""
        self.advances_at = 0
        """The operator through which event time advances, if it does."""

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
    ) -> Iterator[bool]:
        """Do the same result by result; nothing else may be done here until it is exhausted."""
        self.rows_passed[start] += batch.num_rows
        if start == len(self._operators):
            self._on_batch(batch)
            return
        self._on_operator(self._ids[start])
        for result in self._watched(start, self._inlets[start](input_index, batch)):
            self._pass_on(start, result)
            yield False

    def emit(self, position: int, results: Iterable[Emitted]) -> None:
        """Pass on what the operator at ``position`` emits without a batch."""
        self._on_operator(self._ids[position])
        for result in self._watched(position, results):
            self._pass_on(position, result)

    def finish_bundles(self) -> bool:
        """Let operators emit what they keep in bundles; return whether there was any."""
        acted = False
        for position, operator in self._bundles:  # What one of them emits, a later one may keep.
            if operator.has_bundle:
                self.emit(position, operator.finish_bundle())
                acted = True
        return acted

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
        around = self.advances_at
        for _ in self.advancing(watermark_us, start):
            pass
        self.advances_at = around

    def advancing(self, watermark_us: int, start: int = 0) -> Iterator[bool]:
        """Do the same batch by batch; nothing else may be done here until it is exhausted.

        But for this: while it yields True, the end of the input waits for rows that wait in an
        operator, and this one, and those behind it, can be worked on.
        """
        for position in range(start, len(self._operators)):
            self.advances_at = position
            while watermark_us == WATERMARK_END_US and _has_pending(self._operators[position]):
                yield True
            self._on_operator(self._ids[position])
            completed = self._operators[position].on_watermark(watermark_us)
            for result in self._watched(position, completed):
                if isinstance(result, Side):
                    self._on_side(self._ids[position], result)
                else:
                    self.process(result, position + 1)
                yield False
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


def _has_pending(subtask: AnySubtask) -> bool:
    return isinstance(subtask, KeepsRowsWaiting) and subtask.has_pending


def _inlet_of(subtask: AnySubtask) -> Inlet:
    if isinstance(subtask, MultiInputSubtask):
        return subtask.process_input
    return _only_input(subtask)


def _only_input(subtask: OperatorSubtask) -> Inlet:
    return lambda _, batch: subtask.process(batch)
