"""Small batches of a keyed edge are collected, and divided among its receivers together.

A batch that is divided among W receivers becomes W frames. Each of them is encoded, sent and
decoded, and is a unit of work for its receiver, however few rows it has. So batches whose frames
would have fewer than ``FRAME_ROWS`` rows are collected before they are divided, but only while rows
of the edge wait for credit anyway: a receiver that keeps up gets every batch at once.

``RowCollector`` keeps the batches and knows their bounds. ``EdgeOutput`` decides when to divide
them: always before it enqueues anything else, so the order on each channel is the order in which
the task sent, and no cut finds rows outside of the queues.
"""

from collections.abc import Sequence

import pyarrow as pa

from laminar_core.codec.dictionaries import can_be_joined
from laminar_core.host.clock import Clock

FRAME_ROWS = 1_024
"""Rows that a frame should have. With fewer, most of its cost does not depend on its rows."""

COLLECTED_BYTES_MAX = 16 << 20
"""Bytes that are collected; a larger batch is divided alone."""

COLLECTED_MS_MAX = 100.0
"""Time for which rows are collected: one slow receiver must not hold up the rows of the others."""


class RowCollector:
    """The batches of one sender that are not divided yet, in the order in which they came."""

    def __init__(
        self,
        receivers: int,
        clock: Clock,
        *,
        frame_rows: int = FRAME_ROWS,
        bytes_max: int = COLLECTED_BYTES_MAX,
        ms_max: float = COLLECTED_MS_MAX,
    ) -> None:
        self._clock = clock
        self._rows_wanted = receivers * frame_rows
        self._bytes_max = bytes_max
        self._ms_max = ms_max
        self._batches: list[pa.RecordBatch] = []
        self._size_bytes = 0
        self._since_ms = 0.0
        self._grew = False
        self.row_count = 0

    def is_small(self, batch: pa.RecordBatch) -> bool:
        """Return whether the batch alone would make frames that are too small."""
        return batch.num_rows < self._rows_wanted and batch.nbytes <= self._bytes_max

    def has_room_for(self, batch: pa.RecordBatch) -> bool:
        """Return whether a small batch fits in beside what is here."""
        return self._size_bytes + batch.nbytes <= self._bytes_max

    def add(self, batch: pa.RecordBatch) -> None:
        """Collect a small batch for which there is room."""
        if not self._batches:
            self._since_ms = self._clock.monotonic_ms()
        self._batches.append(batch)
        self.row_count += batch.num_rows
        self._size_bytes += batch.nbytes
        self._grew = True

    @property
    def is_due(self) -> bool:
        """Whether there are enough rows, or the first of them has waited long enough."""
        if self.row_count >= self._rows_wanted:
            return True
        return self._clock.monotonic_ms() - self._since_ms >= self._ms_max

    def grew(self) -> bool:
        """Return whether anything was added since the last call."""
        grew, self._grew = self._grew, False
        return grew

    def take(self) -> Sequence[pa.RecordBatch]:
        """Remove all rows; return them in order, as one batch if possible."""
        batches, self._batches = self._batches, []
        self.row_count = self._size_bytes = 0
        return _joined(batches) if len(batches) > 1 else batches


def _joined(batches: list[pa.RecordBatch]) -> Sequence[pa.RecordBatch]:
    if not all(map(can_be_joined, batches[0].schema.types)):
        return batches
    try:
        return [pa.concat_batches(batches)]
    except pa.ArrowInvalid:  # Their dictionaries have more values together than an index can name.
        return batches
