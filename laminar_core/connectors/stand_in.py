"""A source that stands in for another one and reads less of it; for what only tries a job."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from laminar_core.connectors.base import (
    Discovery,
    Gap,
    Reading,
    Source,
    SourceBatch,
    SourceReader,
    SplitStatus,
)
from laminar_core.operators.base import JsonObject


@dataclass(frozen=True, slots=True)
class StandInSource(Source):
    """A source that behaves as another one; a subclass changes how it is read."""

    source: Source

    def describe(self) -> JsonObject:
        """Return the source's description, so that the position fits."""
        return self.source.describe()

    def schema(self) -> pa.Schema:
        """Return the source's schema."""
        return self.source.schema()

    @property
    def reading(self) -> Reading:
        """Return the source's way of reading."""
        return self.source.reading

    @property
    def gathers(self) -> bool:
        """Whether the source's small batches may be processed as one."""
        return self.source.gathers

    def discovery(self) -> Discovery:
        """Return the source's discovery; it only reads."""
        return self.source.discovery()

    def gaps(self, splits: pa.Table) -> Sequence[Gap]:
        """Return the source's gaps."""
        return self.source.gaps(splits)

    def open(self, splits: pa.Table) -> SourceReader:
        """Open the source."""
        return self.source.open(splits)


class StandInReader(SourceReader):
    """A reader that behaves as another one."""

    def __init__(self, reader: SourceReader) -> None:
        self._reader = reader

    def poll(self, rows_max: int) -> SourceBatch | None:
        """Return the next batch."""
        return self._reader.poll(rows_max)

    @property
    def finished(self) -> bool:
        """Whether the source itself has ended."""
        return self._reader.finished

    def add(self, splits: pa.Table) -> None:
        """Add splits to the source's reader."""
        self._reader.add(splits)

    def hold(self, split_ids: frozenset[int]) -> None:
        """Hold splits of the source's reader."""
        self._reader.hold(split_ids)

    def status(self) -> Sequence[SplitStatus]:
        """Return the status of the source's splits."""
        return self._reader.status()

    def position(self) -> pa.Table:
        """Return the source's position."""
        return self._reader.position()

    def close(self) -> None:
        """Close the source's reader."""
        self._reader.close()
