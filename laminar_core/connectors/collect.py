"""A sink for small results: rows are state until the job ends, then Spark's own output."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from laminar_core.arguments import require_whole
from laminar_core.connectors.outlook import Promise
from laminar_core.connectors.plain import plain_schema
from laminar_core.errors import DataError, ErrorCode
from laminar_core.operators.base import (
    ANY_MODE,
    JsonObject,
    OutputMode,
    PendingSnapshot,
    Snapshot,
    SubtaskContext,
)
from laminar_core.protocol.types import CheckpointId
from laminar_core.store.staging import StagingArea


@dataclass(frozen=True, slots=True)
class CollectSink:
    """Rows handed to the driver at the end of a bounded job, exactly once.

    Every checkpoint holds all rows so far, so each subtask takes at most ``max_rows``.
    """

    accepts: ClassVar[frozenset[OutputMode]] = ANY_MODE
    """Every row is collected as it was emitted, each update of a key, too."""
    max_rows: int = 1_000_000

    def __post_init__(self) -> None:
        require_whole(self.max_rows, 1, "max_rows")

    def describe(self) -> JsonObject:
        """Return only the kind: the rows depend on no option."""
        return {"connector": "collect"}

    def check(self, schema: pa.Schema, promise: Promise | None = None) -> Sequence[str]:
        """Accept any schema: every Arrow type can be state."""
        del schema, promise
        return ()

    def open(self, context: SubtaskContext, schema: pa.Schema) -> "CollectSinkWriter":
        """Start collecting rows of ``schema``."""
        del context
        return CollectSinkWriter(self.max_rows, plain_schema(schema))

    def committer(self, staging: StagingArea | None = None) -> None:
        """Return None: the rows are part of the state."""
        del staging


class CollectSinkWriter:
    """The rows of one subtask, in memory and in every checkpoint."""

    def __init__(self, max_rows: int, schema: pa.Schema) -> None:
        self._max_rows = max_rows
        self._schema = schema
        self._batches: list[pa.RecordBatch] = []
        self._row_count = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Keep rows.

        Raises:
            DataError: there are more than ``max_rows``.
        """
        if self._row_count + batch.num_rows > self._max_rows:
            raise DataError(
                ErrorCode.TOO_MANY_ROWS,
                f"CollectSink takes at most {self._max_rows:,} rows per subtask: aggregate "
                f"further, raise max_rows, or write to a ParquetSink",
            )
        if batch.num_rows:
            self._row_count += batch.num_rows
            self._batches.append(batch.cast(self._schema))

    def snapshot(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        """Pin all rows so far."""
        del checkpoint_id
        batches = tuple(self._batches)
        schema = self._schema
        tables = [pa.Table.from_batches(batches, schema)] if batches else []
        return lambda: Snapshot.of(tables)

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        """Start with the rows of these snapshots."""
        for snapshot in snapshots:
            for table in snapshot.rows():
                for batch in table.to_batches():
                    self.write(batch)

    def collected(self) -> Iterable[pa.RecordBatch]:
        """Return all rows."""
        return tuple(self._batches)

    def close(self) -> None:
        """Release the rows."""
        self._batches = []
