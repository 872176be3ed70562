"""A source over tables in memory; its position is part of the checkpoint."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from laminar_core.errors import ErrorCode, IncompatibleStateError
from laminar_core.operators.base import JsonObject

_SPLITS_SCHEMA = pa.schema(
    [("split_id", pa.int64()), ("next_row", pa.int64()), ("row_count", pa.int64())]
)


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
        columns = [list(range(len(counts))), [0] * len(counts), known]
        return pa.table(columns, schema=_SPLITS_SCHEMA)

    def check(self, splits: pa.Table) -> None:
        """Verify that the splits still have the rows.

        Raises:
            IncompatibleStateError: one is not there, or has fewer rows than were read from it.
        """
        for split in splits.to_pylist():
            split_id, next_row = split["split_id"], split["next_row"]
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
        self._positions = splits.to_pylist()
        self._batches = 0
        self._gap = 0
        self.closed = False

    def poll(self) -> pa.RecordBatch | None:
        """Return the next rows of the first unfinished split; None if there are none now."""
        if self._gap:
            self._gap -= 1
            return None
        position = self._next()
        if position is None:
            return None
        split = self._source.splits[position["split_id"]]
        rows = split.slice(position["next_row"], self._source.batch_rows)
        position["next_row"] += rows.num_rows
        self._batches += 1
        if self._source.gap_every and self._batches % self._source.gap_every == 0:
            self._gap = self._source.gap_polls
        return rows.combine_chunks().to_batches()[0]

    @property
    def finished(self) -> bool:
        """Whether all rows have been read, and the source is bounded."""
        return self._source.bounded and self._next() is None

    def position(self) -> pa.Table:
        """Return all splits of this reader with their next row."""
        return pa.Table.from_pylist(self._positions, schema=_SPLITS_SCHEMA)

    def close(self) -> None:
        """Remember that it was closed."""
        self.closed = True

    def _next(self) -> dict[str, int] | None:
        for position in self._positions:
            if position["next_row"] < self._source.splits[position["split_id"]].num_rows:
                return position
        return None
