"""Operators that call each other directly: the inside of a vertex."""

from collections.abc import Callable, Sequence

import pyarrow as pa

from laminar_core.checkpoint.types import Watermark
from laminar_core.operators.base import OperatorSubtask


class Chain:
    """Pushes batches and watermarks through operators, to what follows the last one.

    What was in flight on several old channels can be replayed as one, and is not in the order of
    event time then. An operator that makes watermarks of rows would take that for the progress of
    time; so these watermarks wait until everything has been replayed.
    """

    def __init__(
        self,
        operators: Sequence[OperatorSubtask],
        on_batch: Callable[[pa.RecordBatch], None],
        on_watermark: Callable[[int], None],
    ) -> None:
        self._operators = operators
        self._on_batch = on_batch
        self._on_watermark = on_watermark
        self._replays = False
        self._held_us: dict[int, int] = {}
        """Newest watermark that waits, by the operator it goes to."""

    def hold_made_watermarks(self) -> None:
        """Rows are replayed from now on."""
        self._replays = True

    def release_made_watermarks(self) -> None:
        """Everything has been replayed."""
        self._replays = False
        held, self._held_us = self._held_us, {}
        for start in sorted(held, key=held.__getitem__):
            self.advance(held[start], start)

    def process(self, batch: pa.RecordBatch, start: int = 0) -> None:
        """Run one batch through the operators from ``start`` on."""
        if start == len(self._operators):
            self._on_batch(batch)
            return
        for result in self._operators[start].process(batch):
            if isinstance(result, Watermark) and self._replays:
                known_us = self._held_us.get(start + 1, result.time_us)
                self._held_us[start + 1] = max(known_us, result.time_us)
            elif isinstance(result, Watermark):
                self.advance(result.time_us, start + 1)
            else:
                self.process(result, start + 1)

    def advance(self, watermark_us: int, start: int = 0) -> None:
        """Let event time advance: what an operator completes goes ahead of the watermark."""
        if start == len(self._operators):
            self._on_watermark(watermark_us)
            return
        for batch in self._operators[start].on_watermark(watermark_us):
            self.process(batch, start + 1)
        self.advance(watermark_us, start + 1)
