"""Late rows of windows and sessions as a side output, although rows are combined on their way.

What the merging side gets are accumulators, and a row cannot be taken out of these. So rows that
may be late travel as they are, to a second input of the merging side, which decides about each.
``RowsBehind`` parts them from the others before they are combined: a row may be late if it is late
for the sender's own watermark. The merging side is never further in event time, because its
watermark is the minimum of its senders', and each arrives before the rows that were sent after it.

There is one exception. A source that is idle does not hold the merging side back, and comes back
with rows that are late there and not here. So behind a source that can become idle, all rows count
as rows that may be late.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from laminar_core.operators.aggregation import (
    Combiner,
    PartialAggregate,
    WindowAggregate,
    WindowAggregator,
)
from laminar_core.operators.base import (
    LATE,
    Emitted,
    JsonObject,
    OutputMode,
    PendingSnapshot,
    Side,
    Snapshot,
    SubtaskContext,
)
from laminar_core.operators.columns import require_columns
from laminar_core.operators.progress import least_watermark_us, progress_properties
from laminar_core.operators.sessions import (
    PartialSessions,
    SessionAggregator,
    SessionCombiner,
    Sessions,
)
from laminar_core.operators.windows import event_times_us, require_time_column
from laminar_core.protocol.types import WATERMARK_MIN_US, CheckpointId
from laminar_core.state.rescaling import Redistribution

BEHIND = "behind"
"""The side output of rows that may be late."""
ALL_ROWS = "all_rows"
"""The property of a snapshot of ``RowsBehind`` that says that each row may be late."""
PARTS, ROWS = 0, 1
"""The inputs of the merging side."""


@dataclass(frozen=True, slots=True)
class RowsBehind:
    """Send rows that may be late to the side output ``behind``; pass the others on.

    ``reach_us``: a row that is not further behind the watermark cannot be late.
    """

    redistribution: ClassVar[Redistribution] = "union"
    needs_event_time: ClassVar[bool] = True
    operator_id: str
    time_column: str
    reach_us: int
    all_rows: bool = False
    """Whether each row may be late, because others may have let event time pass."""

    def describe(self) -> JsonObject:
        """Return the time column; the rest only decides which way a row takes."""
        return {"kind": "rows-behind", "time_column": self.time_column}

    def output_schema(self, input_schema: pa.Schema) -> pa.Schema:
        """Return the input's schema.

        Raises:
            ConfigurationError: the column is missing (WRONG_SCHEMA) or not a time
                (UNSUPPORTED_TYPE).
        """
        require_columns(input_schema, [self.time_column])
        require_time_column(input_schema, self.time_column)
        return input_schema

    def side_outputs(self, *inputs: pa.Schema) -> Mapping[str, pa.Schema]:
        """Return the columns of the rows that may be late: those of the input."""
        (rows,) = inputs
        return {BEHIND: rows}

    def open(self, context: SubtaskContext, input_schema: pa.Schema) -> "BehindParter":
        """Create the running instance."""
        del context, input_schema
        return BehindParter(self)


class BehindParter:
    """The running instance; its watermark never goes back, also over restores."""

    def __init__(self, spec: RowsBehind) -> None:
        self._spec = spec
        self._all_rows = spec.all_rows
        """It stays so in later runs: receivers that went on without this sender are ahead of it."""
        self._watermark_us: int | None = None

    def process(self, batch: pa.RecordBatch) -> Iterator[Emitted]:
        """Yield the rows that are in time, and apart those that may be late.

        Before the first watermark each row may be late: a receiver may know of one.

        Raises:
            DataError: a row has no usable event time.
        """
        times_us = event_times_us(batch, self._spec.time_column)
        if self._all_rows or self._watermark_us is None:
            yield Side(BEHIND, batch)
            return
        behind = times_us < self._watermark_us - self._spec.reach_us
        if not behind.any():
            yield batch
            return
        yield Side(BEHIND, batch.filter(pa.array(behind)))
        if not behind.all():
            yield batch.filter(pa.array(~behind))

    def on_watermark(self, watermark_us: int) -> Iterable[pa.RecordBatch]:
        """Note which rows may be late from now on; yield nothing."""
        if self._watermark_us is None or watermark_us > self._watermark_us:
            self._watermark_us = watermark_us
        return ()

    def output_watermark(self, watermark_us: int) -> int:
        """Return the watermark: rows are passed on at once, as they are."""
        return watermark_us

    def snapshot(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        """Pin the watermark, and whether each row may be late."""
        del checkpoint_id
        properties = progress_properties(self._watermark_us, None)
        if self._all_rows:
            properties = {**properties, ALL_ROWS: True}
        snapshot = Snapshot(properties=properties)
        return lambda: snapshot

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        """Continue from the least watermark: no receiver was further than any sender.

        Unless each row may be late, or might have been in an earlier run.
        """
        self._watermark_us = least_watermark_us(snapshots)
        self._all_rows |= any(ALL_ROWS in snapshot.properties for snapshot in snapshots)


@dataclass(frozen=True, slots=True)
class WithLateRows:
    """An aggregation with the side output ``late``: each row that is late, as it came.

    Inputs: the output of ``combine``, and rows that it has not combined, exchanged by the same key.
    State and results are those of ``merge``.
    """

    redistribution: ClassVar[Redistribution] = "keyed"
    needs_event_time: ClassVar[bool] = True
    combine: PartialAggregate | PartialSessions
    merge: WindowAggregate | Sessions

    @property
    def operator_id(self) -> str:
        """The id of the aggregation."""
        return self.merge.operator_id

    @property
    def input_names(self) -> Sequence[str]:
        """The names of both inputs."""
        return ("partial results", "rows that may be late")

    @property
    def output_mode(self) -> OutputMode:
        """Whether results replace earlier ones of their key and window."""
        return self.merge.output_mode

    @property
    def updates_by(self) -> tuple[str, ...]:
        """The columns by which they do."""
        return getattr(self.merge, "updates_by", ())

    def describe(self) -> JsonObject:
        """Return what the aggregation is, and that it keeps late rows."""
        return {**self.merge.describe(), "late_rows": True}

    def output_schema(self, *inputs: pa.Schema) -> pa.Schema:
        """Return the columns of the aggregation."""
        return self.merge.output_schema(inputs[PARTS])

    def side_outputs(self, *inputs: pa.Schema) -> Mapping[str, pa.Schema]:
        """Return the columns of late rows: all that came."""
        return {LATE: inputs[ROWS]}

    def state_tables(self, *inputs: pa.Schema) -> Mapping[str, pa.Schema]:
        """Return the state of the aggregation."""
        return self.merge.state_tables(inputs[PARTS])

    def open(self, context: SubtaskContext, *inputs: pa.Schema) -> "LateRowsGiver":
        """Create the running instance."""
        combiner = self.combine.open(context, inputs[ROWS])
        # Rows that are in time can be combined, however far behind others they are.
        combiner.on_watermark(WATERMARK_MIN_US)
        return LateRowsGiver(self, combiner, self.merge.open(context, inputs[PARTS]))


@dataclass(frozen=True, slots=True)
class WindowsWithLateRows(WithLateRows):
    """Windows have accumulators that can be added, see ``plan.evolving``."""

    merge: WindowAggregate

    def first_values(self, *inputs: pa.Schema) -> Mapping[str, pa.Scalar]:
        """Return, by accumulator that can be added, its value before the first row."""
        return self.merge.first_values(inputs[PARTS])

    def kept_together(self) -> Iterable[tuple[str, ...]]:
        """Return the accumulators of each aggregate that is computed from several."""
        return self.merge.kept_together()


class LateRowsGiver:
    """One subtask, with the state of the aggregation."""

    def __init__(
        self,
        spec: WithLateRows,
        combiner: Combiner | SessionCombiner,
        merging: WindowAggregator | SessionAggregator,
    ) -> None:
        self._time_column = spec.combine.time_column
        self._combiner = combiner
        self._merging = merging

    @property
    def late_row_count(self) -> int:
        """The number of late rows so far."""
        return self._merging.late_row_count

    def process_input(self, index: int, batch: pa.RecordBatch) -> Iterator[Emitted]:
        """Take partial results or rows into the state; yield the rows that are late.

        Raises:
            DataError: an integer sum leaves 64 bits (ARITHMETIC_OVERFLOW).
        """
        if index == PARTS:
            yield from self._merging.process(batch)
            return
        times_us = event_times_us(batch, self._time_column)
        late = self._merging.count_late(pa.Table.from_batches([batch]), times_us)
        if late.any():
            yield Side(LATE, batch.filter(pa.array(late)))
            batch = batch.filter(pa.array(~late))
        for partial in self._combiner.process(batch):
            yield from self._merging.process(partial)

    def on_watermark(self, watermark_us: int) -> Iterator[pa.RecordBatch]:
        """Yield the results that are complete; see the aggregation."""
        return self._merging.on_watermark(watermark_us)

    def output_watermark(self, watermark_us: int) -> int:
        """Return the watermark behind the aggregation."""
        return self._merging.output_watermark(watermark_us)

    def snapshot(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        """Pin the state of the aggregation."""
        return self._merging.snapshot(checkpoint_id)

    def snapshot_changes(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        """Pin what changed in it since the last call."""
        return self._merging.snapshot_changes(checkpoint_id)

    def merge_tables(
        self, name: str, tables: Iterable[pa.Table], expired_us: int | None
    ) -> Iterable[pa.Table]:
        """Put tables of consecutive snapshots together."""
        return self._merging.merge_tables(name, tables, expired_us)

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        """Restore the aggregation."""
        self._merging.restore(snapshots)
