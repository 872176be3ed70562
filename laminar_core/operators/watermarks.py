"""Watermarks derived from rows: event time with a bounded delay."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from laminar_core.operators.base import (
    ANY_MODE,
    JsonObject,
    OutputMode,
    PendingSnapshot,
    Snapshot,
    SubtaskContext,
)
from laminar_core.operators.columns import require_columns
from laminar_core.operators.windows import known_times_us, require_time_column
from laminar_core.protocol.split_watermarks import SplitWatermarks
from laminar_core.protocol.types import CheckpointId, Watermark
from laminar_core.state.rescaling import Redistribution


@dataclass(frozen=True, slots=True)
class AssignWatermarks:
    """Follow the largest event time in ``column``, ``max_delay_us`` behind it.

    A row up to ``max_delay_us`` older than the newest one seen is in time. The watermark is
    exactly ``newest - max_delay_us``, as in Spark. Flink's is one unit less, because there a
    watermark promises rows *newer* than it and here rows *not older*; windows fire alike.
    Event time begins anew here: watermarks from upstream end.
    """

    redistribution: ClassVar[Redistribution] = "union"
    makes_event_time: ClassVar[bool] = True
    accepts: ClassVar[frozenset[OutputMode]] = ANY_MODE
    keeps_keys: ClassVar[bool] = True
    operator_id: str
    column: str
    max_delay_us: int

    def describe(self) -> JsonObject:
        """Return column and delay."""
        return {"kind": "watermark", "column": self.column, "max_delay_us": self.max_delay_us}

    def output_schema(self, input_schema: pa.Schema) -> pa.Schema:
        """Return the input's schema.

        Raises:
            ConfigurationError: the column is missing (WRONG_SCHEMA) or not a time
                (UNSUPPORTED_TYPE).
        """
        require_columns(input_schema, [self.column])
        require_time_column(input_schema, self.column)
        return input_schema

    def open(self, context: SubtaskContext, input_schema: pa.Schema) -> "WatermarkAssigner":
        """Create the running instance."""
        del context, input_schema
        return WatermarkAssigner(self)


class WatermarkAssigner:
    """Tracks the newest event time; after a restore it continues from there, never back."""

    def __init__(self, spec: AssignWatermarks) -> None:
        self._spec = spec
        self._newest_us: int | None = None
        self._emitted_us: int | None = None
        self._restored_us: int | None = None
        self._splits: SplitWatermarks | None = None
        self._split_id: int | None = None

    def follow(self, splits: SplitWatermarks) -> None:
        """Take the least over the splits of the source instead of the newest row."""
        self._splits = splits

    def from_split(self, split_id: int) -> None:
        """Note the split of the next batches."""
        self._split_id = split_id

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch | Watermark]:
        """Yield the batch, then the watermark if it rose. Rows without event time do not count.

        Raises:
            DataError: an event time so far off that it cannot be right (ARITHMETIC_OVERFLOW).
        """
        if batch.num_rows:
            self._observe(batch)
            yield batch
        yield from self.risen()

    def risen(self) -> Iterator[Watermark]:
        """Yield the watermark if it rose."""
        if self._splits is not None and self._splits.least_us is not None:
            self._take(self._splits.least_us)
        if self._newest_us is not None:
            watermark_us = self._newest_us - self._spec.max_delay_us
            if self._emitted_us is None or watermark_us > self._emitted_us:
                self._emitted_us = watermark_us
                yield Watermark(watermark_us)

    def on_watermark(self, watermark_us: int) -> Iterable[pa.RecordBatch]:
        """Yield nothing: results do not depend on event time."""
        del watermark_us
        return ()

    def output_watermark(self, watermark_us: int) -> int | None:
        """Return what was certain at the restored cut; later watermarks come with their rows.

        One from upstream is about another event time.
        """
        del watermark_us
        return self._restored_us

    def snapshot(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        """Pin the newest event time."""
        del checkpoint_id
        snapshot = Snapshot(properties={"newest_us": self._newest_us})
        return lambda: snapshot

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        """Continue from the oldest of the snapshots, so that no row of any of them becomes late."""
        newest = [snapshot.properties["newest_us"] for snapshot in snapshots]
        known = [time_us for time_us in newest if isinstance(time_us, int)]
        self._newest_us = min(known) if known and len(known) == len(newest) else None
        if self._newest_us is not None:
            self._restored_us = self._newest_us - self._spec.max_delay_us

    def _observe(self, batch: pa.RecordBatch) -> None:
        times = batch.column(self._spec.column)
        if times.null_count:
            times = times.drop_null()
        if len(times):
            newest_us = int(known_times_us(times, self._spec.column).max())
            if self._splits is None or self._split_id is None:
                self._take(newest_us)
            else:
                self._splits.rows(self._split_id, newest_us)

    def _take(self, newest_us: int) -> None:
        self._newest_us = newest_us if self._newest_us is None else max(newest_us, self._newest_us)
