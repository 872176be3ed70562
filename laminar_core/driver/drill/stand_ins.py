"""A pipeline made safe to try: sinks count, sources end soon, operators report their state.

The stand-ins have the same descriptions as the real parts, so that the checkpoint fits. A restored
operator's report is a property of its next snapshot, and so reaches the scratch store with the
drill's checkpoint.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import pyarrow as pa

from laminar_core.connectors.base import (
    Sink,
    SinkWriter,
    SourceBatch,
    SourceReader,
    accepted_by,
)
from laminar_core.connectors.outlook import Promise
from laminar_core.connectors.stand_in import StandInReader, StandInSource
from laminar_core.operators.base import (
    AnySpec,
    IncrementalSubtask,
    JsonObject,
    MultiInputSpec,
    MultiInputSubtask,
    OperatorSpec,
    OperatorSubtask,
    OutputMode,
    PendingSnapshot,
    Side,
    Snapshot,
    Spec,
    StateTable,
    Subtask,
    SubtaskContext,
    output_watermark_of,
    redistribution_of,
    side_outputs_of,
)
from laminar_core.operators.loops import LoopHead
from laminar_core.plan.plan import Plan, Vertex
from laminar_core.protocol.types import CheckpointId
from laminar_core.state.content import Content, content_of
from laminar_core.state.named_tables import layout_of
from laminar_core.state.rescaling import Redistribution
from laminar_core.store.staging import StagingArea

S = TypeVar("S", OperatorSpec, MultiInputSpec)

PROOF = "restored_in_drill"
"""Name of the property with the restored rows and digest of an operator subtask."""


def drill_plan(plan: Plan, batches_max: int) -> Plan:
    """Return the plan with limited sources and counting sinks.

    Each source subtask reads at most ``batches_max`` batches.
    """
    return replace(plan, vertices=tuple(_vertex(v, batches_max) for v in plan.vertices))


def _vertex(vertex: Vertex, batches_max: int) -> Vertex:
    source, sink = vertex.source, vertex.sink
    if source is not None:
        source = replace(source, source=BoundedSource(source.source, batches_max))
    if sink is not None:
        sink = replace(sink, sink=CountingSink(sink.sink))
    operators = tuple(_proven(spec) for spec in vertex.operators)
    return replace(vertex, source=source, operators=operators, sink=sink)


def proven_operators(plan: Plan) -> list[str]:
    """Return the ids of operators that report their restored state.

    No sources, sinks, loop heads.
    """
    operators = (spec for vertex in plan.vertices for spec in vertex.operators)
    return [spec.operator_id for spec in operators if _is_proven(spec)]


def _is_proven(spec: Spec) -> bool:
    return not isinstance(spec, LoopHead)


def _proven(spec: AnySpec) -> AnySpec:
    if isinstance(spec, MultiInputSpec):
        return ProvenMultiInput(spec)
    return ProvenOperator(spec) if _is_proven(spec) else spec


# --- operators ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Proven(Generic[S]):
    """Stands in for an operator with one input or several."""

    spec: S

    @property
    def operator_id(self) -> str:
        """The operator's id."""
        return self.spec.operator_id

    @property
    def redistribution(self) -> Redistribution | None:
        """The operator's redistribution."""
        return redistribution_of(self.spec)

    def describe(self) -> JsonObject:
        """Return the operator's description, so that the checkpoint fits."""
        return self.spec.describe()

    def side_outputs(self, *inputs: pa.Schema) -> Mapping[str, pa.Schema]:
        """Return the operator's side outputs."""
        return side_outputs_of(self.spec, *inputs)


class ProvenOperator(_Proven[OperatorSpec]):
    """An operator whose subtasks report their restored state."""

    def output_schema(self, input_schema: pa.Schema) -> pa.Schema:
        """Return the operator's output schema."""
        return self.spec.output_schema(input_schema)

    def open(self, context: SubtaskContext, input_schema: pa.Schema) -> "ProvenSubtask":
        """Open the operator."""
        subtask = self.spec.open(context, input_schema)
        if isinstance(subtask, IncrementalSubtask):
            return ProvenIncrementalSubtask(subtask, self.describe())
        return ProvenSubtask(subtask, self.describe())


class ProvenMultiInput(_Proven[MultiInputSpec]):
    """An operator with several inputs whose subtasks report their restored state."""

    @property
    def input_names(self) -> Sequence[str]:
        """The names of the operator's inputs."""
        return self.spec.input_names

    def output_schema(self, *inputs: pa.Schema) -> pa.Schema:
        """Return the operator's output schema."""
        return self.spec.output_schema(*inputs)

    def open(self, context: SubtaskContext, *inputs: pa.Schema) -> MultiInputSubtask:
        """Open the operator."""
        subtask = self.spec.open(context, *inputs)
        if isinstance(subtask, IncrementalSubtask):
            return ProvenIncrementalInputs(subtask, self.describe())
        return ProvenInputs(subtask, self.describe())


class _ProvenState:
    """Takes a snapshot right after the restore, before any row, and reports its content.

    Rows that only say that a key has nothing do not count, as in what is read of a checkpoint.
    """

    def __init__(self, subtask: Subtask, description: JsonObject) -> None:
        self._subtask = subtask
        self._description = description
        self._restored: Content | None = None

    @property
    def late_row_count(self) -> int:
        """The operator's count of late rows, if it has one."""
        return getattr(self._subtask, "late_row_count", 0)

    def on_watermark(self, watermark_us: int) -> Iterable[pa.RecordBatch | Side]:
        """Advance the operator's event time."""
        return self._subtask.on_watermark(watermark_us)

    def output_watermark(self, watermark_us: int) -> int | None:
        """Return the operator's watermark."""
        return output_watermark_of(self._subtask, watermark_us)

    def snapshot(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        """Return the operator's snapshot with the report."""
        return self.proven(self._subtask.snapshot(checkpoint_id))

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        """Restore, and look at once at what there is."""
        self._subtask.restore([_without_proof(snapshot) for snapshot in snapshots])
        tables = self._subtask.snapshot(CheckpointId(1))().tables
        contents = (content_of([self._present(table)], table.name) for table in tables)
        self._restored = sum(contents, Content())

    def _present(self, table: StateTable) -> pa.Table:
        if not table.name:
            return table.rows
        layout = layout_of(table.name, table.rows.schema, self._description)
        return layout.present_rows(table.rows)

    def proven(self, pending: PendingSnapshot) -> PendingSnapshot:
        """Add what was restored to the properties."""
        if self._restored is None:
            return pending
        proof: JsonObject = {
            "row_count": self._restored.row_count,
            "digest": f"{self._restored.digest:016x}",
        }

        def finish() -> Snapshot:
            snapshot = pending()
            return replace(snapshot, properties={**snapshot.properties, PROOF: proof})

        return finish


class ProvenSubtask(_ProvenState):
    """A subtask with one input that reports its restored state."""

    def __init__(self, subtask: OperatorSubtask, description: JsonObject) -> None:
        super().__init__(subtask, description)
        self.process = subtask.process


class ProvenInputs(_ProvenState):
    """A subtask with several inputs that reports its restored state."""

    def __init__(self, subtask: MultiInputSubtask, description: JsonObject) -> None:
        super().__init__(subtask, description)
        self.process_input = subtask.process_input


class _ProvenChanges(_ProvenState):
    """The report of an operator with incremental snapshots."""

    def __init__(  # The subtask is an IncrementalSubtask, too.
        self,
        subtask: Any,  # noqa: ANN401
        description: JsonObject,
    ) -> None:
        super().__init__(subtask, description)
        self._incremental: IncrementalSubtask = subtask

    def snapshot_changes(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        """Return the operator's changes with the report."""
        return self.proven(self._incremental.snapshot_changes(checkpoint_id))

    def merge_tables(
        self, name: str, tables: Iterable[pa.Table], expired_us: int | None
    ) -> Iterable[pa.Table]:
        """Merge the tables with the operator."""
        return self._incremental.merge_tables(name, tables, expired_us)


class ProvenIncrementalSubtask(_ProvenChanges, ProvenSubtask):
    """A ``ProvenSubtask`` for an operator with incremental snapshots."""


class ProvenIncrementalInputs(_ProvenChanges, ProvenInputs):
    """A ``ProvenInputs`` for an operator with incremental snapshots."""


def _without_proof(snapshot: Snapshot) -> Snapshot:
    """A drill that is restarted finds its own property; operators need not know it."""
    properties = {name: value for name, value in snapshot.properties.items() if name != PROOF}
    return replace(snapshot, properties=properties)


# --- sources --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BoundedSource(StandInSource):
    """Gives a few batches of another source, and then nothing more, without an end.

    It has the gaps of the source: a drill fails where a start would be refused.
    """

    batches_max: int

    def open(self, splits: pa.Table) -> "BoundedReader":
        """Open the source at the checkpoint's position."""
        return BoundedReader(self.source.open(splits), self.batches_max)


class BoundedReader(StandInReader):
    """A reader limited to a few batches; the limit does not count as an end."""

    def __init__(self, reader: SourceReader, batches_max: int) -> None:
        super().__init__(reader)
        self._left = batches_max

    def poll(self, rows_max: int) -> SourceBatch | None:
        """Return the next batch, up to the limit."""
        batch = self._reader.poll(rows_max) if self._left > 0 else None
        self._left -= batch is not None
        return batch


# --- sinks ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CountingSink:
    """Takes rows in place of another sink and keeps none; the real one is never opened."""

    sink: Sink

    @property
    def accepts(self) -> frozenset[OutputMode]:
        """The modes that the sink takes."""
        return accepted_by(self.sink)

    def describe(self) -> JsonObject:
        """Return the sink's description, so that the checkpoint fits."""
        return self.sink.describe()

    def check(self, schema: pa.Schema, promise: Promise) -> Sequence[str]:
        """Accept any rows; calling the real sink might create files."""
        del schema, promise
        return ()

    def open(self, context: SubtaskContext, schema: pa.Schema) -> SinkWriter:
        """Start counting; the runtime counts the rows of every sink."""
        del context, schema
        return CountingWriter()

    def committer(self, staging: StagingArea) -> None:
        """Return None: there is no output to commit."""
        del staging


class CountingWriter:
    """A writer that drops every row."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Drop the rows."""

    def snapshot(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        """Return an empty snapshot."""
        del checkpoint_id
        return Snapshot

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        """Do nothing: pre-committed output belongs to the real sink."""

    def collected(self) -> Iterable[pa.RecordBatch]:
        """Return no rows."""
        return ()

    def close(self) -> None:
        """Do nothing: no resources are open."""
