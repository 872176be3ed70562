"""Operators that call each other directly: the inside of a vertex."""

from collections.abc import Callable, Sequence

import pyarrow as pa

from laminar_core.checkpoint.types import Watermark
from laminar_core.operators.base import OperatorSubtask


class Chain:
    """Pushes batches and watermarks through operators, to what follows the last one."""

    def __init__(
        self,
        operators: Sequence[OperatorSubtask],
        on_batch: Callable[[pa.RecordBatch], None],
        on_watermark: Callable[[int], None],
    ) -> None:
        self._operators = operators
        self._on_batch = on_batch
        self._on_watermark = on_watermark

    def process(self, batch: pa.RecordBatch, start: int = 0) -> None:
        """Run one batch through the operators from ``start`` on."""
        if start == len(self._operators):
            self._on_batch(batch)
            return
        for result in self._operators[start].process(batch):
            if isinstance(result, Watermark):
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
