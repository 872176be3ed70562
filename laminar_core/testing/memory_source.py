"""A source over tables in memory; its position is part of the checkpoint."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from laminar_core.connectors.base import (
    Discovery,
    Gap,
    Mend,
    Reading,
    Source,
    SourceBatch,
    SourceReader,
)
from laminar_core.connectors.discovery import fixed_list
from laminar_core.connectors.formats.messages import (
    Defect,
    MessageRefusedError,
    Messages,
    letters_of,
)
from laminar_core.operators.base import JsonObject
from laminar_core.state.splits import at_rows, numbered_splits, row_offsets


@dataclass(frozen=True)
class MemorySource(Source):
    """Reads ``splits``, one table each, ``batch_rows`` rows at a time.

    These are few by default, so that checkpoints and disasters meet even a short job between its
    rows. After every ``gap_every`` batches it has nothing for ``gap_polls`` polls. If it is not
    ``bounded``, it never ends, although nothing comes any more. Of each split the rows with a
    number, counted from 1, that ``bad_every`` divides are letters. The rows of each split before
    ``first_row`` are gone, as from an input that deletes old rows. With
    ``abreast``, splits are read side by side instead of one after the other. If
    ``gathered``, they may be processed together.
    """

    splits: Sequence[pa.Table]
    batch_rows: int = 2
    gap_every: int = 0
    gap_polls: int = 3
    bounded: bool = True
    bad_every: int = 0
    first_row: int = 0
    abreast: bool = False
    gathered: bool = False

    @property
    def gathers(self) -> bool:
        """Whether the batches may be processed together."""
        return self.gathered

    @property
    def reading(self) -> Reading:
        """Splits side by side if they are read ``abreast``."""
        return "parallel" if self.abreast else "sequential"

    def describe(self) -> JsonObject:
        """Return the number of rows of each split."""
        return {"connector": "memory", "row_counts": [split.num_rows for split in self.splits]}

    def is_bad(self, row_number: int) -> bool:
        """Whether this row of a split, counted from 0, becomes a letter."""
        return self.bad_every > 0 and (row_number + 1) % self.bad_every == 0

    def schema(self) -> pa.Schema:
        """Return the schema of the first split."""
        return self.splits[0].schema

    def discovery(self) -> Discovery:
        """Return a discovery of all splits."""
        return fixed_list(self._all)

    def _all(self) -> pa.Table:
        """Return every split, at its first row."""
        counts = [split.num_rows for split in self.splits]
        known = counts if self.bounded else [None] * len(counts)
        splits = numbered_splits([str(number) for number in range(len(counts))], known)
        return at_rows(splits, np.minimum(self.first_row, np.array(counts, np.int64)))

    def gaps(self, splits: pa.Table) -> list[Gap]:
        """Return the splits that lack rows behind their offset, or end before it."""
        found: list[Gap] = []
        ids: list[int] = splits.column("split_id").to_pylist()
        for split_id, next_row in zip(ids, row_offsets(splits).tolist(), strict=True):
            rows = self.splits[split_id].num_rows if split_id < len(self.splits) else 0
            there = (str(self.first_row), str(rows))
            if next_row > rows or split_id >= len(self.splits):
                found.append(Gap(str(split_id), str(next_row), there, None, "truncated"))
            elif next_row < min(self.first_row, rows):
                lost = min(self.first_row, rows) - next_row
                found.append(Gap(str(split_id), str(next_row), there, lost, "retention"))
        return found

    def mend(self, splits: pa.Table, gap: Gap, how: Mend) -> pa.Table:
        """Return the splits at the first row that is there, or without the rest of the split."""
        ids: list[int] = splits.column("split_id").to_pylist()
        place = ids.index(int(gap.split))
        rows = row_offsets(splits)
        total = splits.column("rows_total").to_pylist()[place]
        end = self.splits[ids[place]].num_rows if total is None else total
        rows[place] = end if how == "skip-split" else min(self.first_row, end)
        return at_rows(splits, rows)

    def open(self, splits: pa.Table) -> "MemoryReader":
        """Return a reader at the offsets in ``splits``."""
        return MemoryReader(self, splits)


class MemoryReader(SourceReader):
    """Reads its splits one after the other."""

    def __init__(self, source: MemorySource, splits: pa.Table) -> None:
        self._source = source
        self._splits = splits
        self._ids: list[int] = splits.column("split_id").to_pylist()
        self._next_rows = row_offsets(splits)
        self._batches = 0
        self._gap = 0
        self._turn = 0
        self._held: frozenset[int] = frozenset()
        self.closed = False

    def poll(self, rows_max: int) -> SourceBatch | None:
        """Return the next rows of the first unfinished split; None if there are none now."""
        if self._gap:
            self._gap -= 1
            return None
        place = self._next(self._held)
        if place is None:
            return None
        split_id, next_row = self._ids[place], int(self._next_rows[place])
        source = self._source
        taken = source.splits[split_id].slice(next_row, min(source.batch_rows, rows_max))
        self._next_rows[place] += taken.num_rows
        self._turn = place + 1
        self._batches += 1
        if source.gap_every and self._batches % source.gap_every == 0:
            self._gap = source.gap_polls
        return _batch_of(source, split_id, next_row, taken)

    @property
    def finished(self) -> bool:
        """Whether all rows have been read, and the source is bounded."""
        return self._source.bounded and self._next() is None

    def add(self, splits: pa.Table) -> None:
        """Read these splits after the others."""
        self._splits = pa.concat_tables([self._splits, splits])
        self._ids += splits.column("split_id").to_pylist()
        self._next_rows = np.concatenate([self._next_rows, row_offsets(splits)])

    def hold(self, split_ids: frozenset[int]) -> None:
        """Leave these splits out until the next call."""
        self._held = split_ids

    def position(self) -> pa.Table:
        """Return all splits of this reader, behind the rows that it returned."""
        return at_rows(self._splits, self._next_rows)

    def close(self) -> None:
        """Remember that it was closed."""
        self.closed = True

    def _next(self, held: frozenset[int] = frozenset()) -> int | None:
        places = range(len(self._ids))
        if self._source.abreast:  # The one after the last one, in turn.
            places = [*places[self._turn :], *places[: self._turn]]
        for place in places:
            split_id = self._ids[place]
            rows = self._source.splits[split_id].num_rows
            if split_id not in held and self._next_rows[place] < rows:
                return place
        return None


def _batch_of(source: MemorySource, split_id: int, first: int, taken: pa.Table) -> SourceBatch:
    numbers = range(first, first + taken.num_rows)
    bad = [source.is_bad(number) for number in numbers]
    (batch,) = taken.combine_chunks().to_batches()
    if not any(bad):
        return SourceBatch(batch, split_id)
    values = [str(row).encode() for row in taken.to_pylist()]
    messages = Messages(pa.array(values, pa.large_binary()), pa.array(numbers, pa.int64()))
    refused = MessageRefusedError(Defect.MALFORMED, "bad on purpose")
    letters = letters_of(messages, {at: refused for at, is_bad in enumerate(bad) if is_bad})
    rows = batch.filter(pa.array([not is_bad for is_bad in bad]))
    return SourceBatch(rows, split_id, letters)
