"""A source over tables in memory; its position is part of the checkpoint."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from laminar_core.connectors.base import SourceBatch
from laminar_core.errors import ErrorCode, IncompatibleStateError
from laminar_core.operators.base import JsonObject
from laminar_core.state.splits import at_rows, numbered_splits, row_offsets


@dataclass(frozen=True)
class MemorySource:
    """Reads ``splits``, one table each, ``batch_rows`` rows at a time.

    After every ``gap_every`` batches it has nothing for ``gap_polls`` polls. If it is not
    ``bounded``, it never ends, although nothing comes any more.
    """

    splits: Sequence[pa.Table]
    batch_rows: int = 4
    gap_every: int = 0
    gap_polls: int = 3
    bounded: bool = True

    def describe(self) -> JsonObject:
        """Return the number of rows of each split."""
        return {"connector": "memory", "row_counts": [split.num_rows for split in self.splits]}

    def schema(self) -> pa.Schema:
        """Return the schema of the first split."""
        return self.splits[0].schema

    def discover(self) -> pa.Table:
        """Return every split, at its first row."""
        counts = [split.num_rows for split in self.splits]
        known = counts if self.bounded else [None] * len(counts)
        return numbered_splits([str(number) for number in range(len(counts))], known)

    def check(self, splits: pa.Table) -> None:
        """Verify that the splits still have the rows.

        Raises:
            IncompatibleStateError: one is not there, or has fewer rows than were read from it.
        """
        ids = splits.column("split_id").to_pylist()
        for split_id, next_row in zip(ids, row_offsets(splits), strict=True):
            if split_id >= len(self.splits) or next_row > self.splits[split_id].num_rows:
                raise IncompatibleStateError(
                    ErrorCode.SOURCE_CHANGED,
                    f"split {split_id} of a source in memory has lost rows: restore them",
                )

    def open(self, splits: pa.Table) -> "MemoryReader":
        """Return a reader at the offsets in ``splits``."""
        return MemoryReader(self, splits)


class MemoryReader:
    """Reads its splits one after the other."""

    def __init__(self, source: MemorySource, splits: pa.Table) -> None:
        self._source = source
        self._splits = splits
        self._ids: list[int] = splits.column("split_id").to_pylist()
        self._next_rows = row_offsets(splits)
        self._batches = 0
        self._gap = 0
        self.closed = False

    def poll(self, rows_max: int) -> SourceBatch | None:
        """Return the next rows of the first unfinished split; None if there are none now."""
        if self._gap:
            self._gap -= 1
            return None
        place = self._next()
        if place is None:
            return None
        split_id, next_row = self._ids[place], int(self._next_rows[place])
        source = self._source
        rows = source.splits[split_id].slice(next_row, min(source.batch_rows, rows_max))
        self._next_rows[place] += rows.num_rows
        self._batches += 1
        if source.gap_every and self._batches % source.gap_every == 0:
            self._gap = source.gap_polls
        return SourceBatch(rows.combine_chunks().to_batches()[0], split_id)

    @property
    def finished(self) -> bool:
        """Whether all rows have been read, and the source is bounded."""
        return self._source.bounded and self._next() is None

    def position(self) -> pa.Table:
        """Return all splits of this reader, behind the rows that it returned."""
        return at_rows(self._splits, self._next_rows)

    def close(self) -> None:
        """Remember that it was closed."""
        self.closed = True

    def _next(self) -> int | None:
        for place, split_id in enumerate(self._ids):
            if self._next_rows[place] < self._source.splits[split_id].num_rows:
                return place
        return None
