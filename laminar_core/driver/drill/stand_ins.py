"""A pipeline made safe to try: sinks count, sources end soon, operators tell what they restored.

The parts stand in for those of the real plan and describe themselves as they do, so that the
checkpoint fits. What an operator restored travels with its next snapshot, as a property, and so
reaches the scratch store with the checkpoint that the drill takes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from laminar_core.connectors.base import Sink, SinkWriter, Source, SourceReader
from laminar_core.operators.base import (
    IncrementalSubtask,
    JsonObject,
    OperatorSpec,
    OperatorSubtask,
    PendingSnapshot,
    Snapshot,
    SubtaskContext,
    output_watermark_of,
    redistribution_of,
)
from laminar_core.operators.loops import LoopHead
from laminar_core.plan.plan import Plan, Vertex
from laminar_core.protocol.types import CheckpointId, Watermark
from laminar_core.state.content import Content, content_of
from laminar_core.state.rescaling import Redistribution

PROOF = "restored_in_drill"
"""The property that says what an operator subtask restored: rows and digest."""


def drill_plan(plan: Plan, batches_max: int) -> Plan:
    """The same plan, which reads so many batches per source subtask and writes nothing."""
    return replace(plan, vertices=tuple(_vertex(v, batches_max) for v in plan.vertices))


def _vertex(vertex: Vertex, batches_max: int) -> Vertex:
    source, sink = vertex.source, vertex.sink
    if source is not None:
        source = replace(source, source=BoundedSource(source.source, batches_max))
    if sink is not None:
        sink = replace(sink, sink=CountingSink(sink.sink))
    operators = tuple(
        ProvenOperator(spec) if _is_proven(spec) else spec for spec in vertex.operators
    )
    return replace(vertex, source=source, operators=operators, sink=sink)


def proven_operators(plan: Plan) -> list[str]:
    """Ids of the operators that tell what they restored: not sources, sinks and heads of loops."""
    operators = (spec for vertex in plan.vertices for spec in vertex.operators)
    return [spec.operator_id for spec in operators if _is_proven(spec)]


def _is_proven(spec: OperatorSpec) -> bool:
    return not isinstance(spec, LoopHead)


# --- operators ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProvenOperator:
    """An operator whose subtasks tell what they restored."""

    spec: OperatorSpec

    @property
    def operator_id(self) -> str:
        """That of the operator."""
        return self.spec.operator_id

    @property
    def redistribution(self) -> Redistribution | None:
        """That of the operator."""
        return redistribution_of(self.spec)

    def describe(self) -> JsonObject:
        """As the operator does, so that the checkpoint fits."""
        return self.spec.describe()

    def output_schema(self, input_schema: pa.Schema) -> pa.Schema:
        """That of the operator."""
        return self.spec.output_schema(input_schema)

    def open(self, context: SubtaskContext, input_schema: pa.Schema) -> "ProvenSubtask":
        """Open the operator."""
        subtask = self.spec.open(context, input_schema)
        if isinstance(subtask, IncrementalSubtask):
            return ProvenIncrementalSubtask(subtask)
        return ProvenSubtask(subtask)


class ProvenSubtask:
    """Snapshots right after the restore, before any row, and tells what that has."""

    def __init__(self, subtask: OperatorSubtask) -> None:
        self._subtask = subtask
        self._restored: Content | None = None

    @property
    def late_row_count(self) -> int:
        """That of the operator, if it counts late rows."""
        return getattr(self._subtask, "late_row_count", 0)

    def process(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch | Watermark]:
        """As the operator does."""
        return self._subtask.process(batch)

    def on_watermark(self, watermark_us: int) -> Iterable[pa.RecordBatch]:
        """As the operator does."""
        return self._subtask.on_watermark(watermark_us)

    def output_watermark(self, watermark_us: int) -> int | None:
        """As the operator does."""
        return output_watermark_of(self._subtask, watermark_us)

    def snapshot(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        """That of the operator, with the proof."""
        return self.proven(self._subtask.snapshot(checkpoint_id))

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        """Restore, and look at once at what there is."""
        self._subtask.restore([_without_proof(snapshot) for snapshot in snapshots])
        self._restored = content_of(self._subtask.snapshot(CheckpointId(1))().tables)

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


class ProvenIncrementalSubtask(ProvenSubtask):
    """The same of an operator that also tells what changed."""

    def __init__(self, subtask: IncrementalSubtask) -> None:
        # It is an operator subtask as well: the two protocols cannot be named together.
        whole: Any = subtask
        super().__init__(whole)
        self._incremental = subtask

    def snapshot_changes(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        """That of the operator, with the proof."""
        return self.proven(self._incremental.snapshot_changes(checkpoint_id))

    def merge_tables(
        self, tables: Iterable[pa.Table], finished_window_us: int | None
    ) -> Iterable[pa.Table]:
        """As the operator does."""
        return self._incremental.merge_tables(tables, finished_window_us)


def _without_proof(snapshot: Snapshot) -> Snapshot:
    """A drill that is restarted finds its own property; operators need not know it."""
    properties = {name: value for name, value in snapshot.properties.items() if name != PROOF}
    return replace(snapshot, properties=properties)


# --- sources --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BoundedSource:
    """Gives a few batches of another source, and then nothing more, without an end."""

    source: Source
    batches_max: int

    def describe(self) -> JsonObject:
        """As the source does, so that the position fits."""
        return self.source.describe()

    def schema(self) -> pa.Schema:
        """That of the source."""
        return self.source.schema()

    def discover(self) -> pa.Table:
        """Those of the source."""
        return self.source.discover()

    def check(self, splits: pa.Table) -> None:
        """As the source does."""
        self.source.check(splits)

    def open(self, splits: pa.Table) -> "BoundedReader":
        """Go on where the checkpoint was."""
        return BoundedReader(self.source.open(splits), self.batches_max)


class BoundedReader:
    """Reads a few batches."""

    def __init__(self, reader: SourceReader, batches_max: int) -> None:
        self._reader = reader
        self._left = batches_max

    def poll(self) -> pa.RecordBatch | None:
        """The next batch, while there is one to give."""
        batch = self._reader.poll() if self._left > 0 else None
        self._left -= batch is not None
        return batch

    @property
    def finished(self) -> bool:
        """The source itself has ended; that it gives no more here is no end."""
        return self._reader.finished

    def position(self) -> pa.Table:
        """That of the source."""
        return self._reader.position()

    def close(self) -> None:
        """Let go of the source."""
        self._reader.close()


# --- sinks ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CountingSink:
    """Takes rows in place of another sink and keeps none; the real one is never opened."""

    sink: Sink

    def describe(self) -> JsonObject:
        """As the sink does, so that the checkpoint fits."""
        return self.sink.describe()

    def check(self, schema: pa.Schema) -> None:
        """Any rows will do; to ask the sink could create something."""

    def open(self, context: SubtaskContext, schema: pa.Schema) -> SinkWriter:
        """Start counting; the runtime counts the rows of every sink."""
        del context, schema
        return CountingWriter()

    def committer(self) -> None:
        """None: there is nothing to make visible."""
        return


class CountingWriter:
    """Drops every row."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Drop it."""

    def snapshot(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        """Nothing to keep."""
        del checkpoint_id
        return Snapshot

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        """What was pre-committed is the real sink's business."""

    def collected(self) -> Iterable[pa.RecordBatch]:
        """No rows."""
        return ()

    def close(self) -> None:
        """Nothing is held."""
