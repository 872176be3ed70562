"""A source over tables in memory that come one after the other, while the job runs."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from laminar_core.connectors.base import Discovery, Found, Gap, Source
from laminar_core.operators.base import JsonObject
from laminar_core.state.splits import numbered_splits
from laminar_core.testing.memory_source import MemoryReader, MemorySource


@dataclass(slots=True)
class Shelf:
    """How many of the tables are there: one more with each look at it."""

    there: int = 1


@dataclass(frozen=True)
class GrowingSource(Source):
    """Reads ``splits``, one table each; each step of its discovery finds one more of them.

    What is there stays there: after a restart from an older checkpoint, one step may find several.
    If it is not ``bounded``, it waits for more for ever.
    """

    splits: Sequence[pa.Table]
    batch_rows: int = 4
    interval_ms: int = 10
    bounded: bool = True
    shelf: Shelf = field(default_factory=Shelf, compare=False)

    @property
    def gathers(self) -> bool:
        """Return False: the batches are a part of what a job is about."""
        return False

    def describe(self) -> JsonObject:
        """Return the number of rows of each split."""
        return {"connector": "growing", "row_counts": [split.num_rows for split in self.splits]}

    def schema(self) -> pa.Schema:
        """Return the schema of the first split."""
        return self.splits[0].schema

    def discovery(self) -> Discovery:
        """Return a discovery whose state is the number of splits that were found."""
        return _OneMore(self, self.interval_ms)

    def gaps(self, splits: pa.Table) -> Sequence[Gap]:
        """Return the splits that lack rows; see ``MemorySource.gaps``."""
        return self._memory.gaps(splits)

    def open(self, splits: pa.Table) -> MemoryReader:
        """Return a reader at the offsets in ``splits``."""
        return self._memory.open(splits)

    @property
    def _memory(self) -> MemorySource:
        return MemorySource(self.splits, self.batch_rows)


@dataclass(frozen=True, slots=True)
class _OneMore:
    source: GrowingSource
    interval_ms: int

    def step(self, state: JsonObject) -> Found:
        """Return the splits that came since ``state``."""
        shelf, splits = self.source.shelf, self.source.splits
        before = state.get("found", 0)
        assert isinstance(before, int), "written by an earlier step"
        there = max(shelf.there, before)  # Whoever found them has seen them.
        shelf.there = min(there + 1, len(splits))
        counts = [split.num_rows for split in splits]
        every = numbered_splits([str(number) for number in range(len(counts))], counts)
        complete = self.source.bounded and there == len(splits)
        return Found(every.slice(before, there - before), {"found": there}, complete)
