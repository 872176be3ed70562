"""Everything a worker has to know before it starts; travels inside Spark's task."""

from dataclasses import dataclass, field

import pyarrow as pa

from laminar_core.checkpoint.types import CheckpointId, Generation
from laminar_core.checkpoint.unaligned import Direction
from laminar_core.operators.base import Snapshot, SubtaskContext
from laminar_core.runtime.inflight import SnapshotLimits
from laminar_core.runtime.plan import Plan
from laminar_core.runtime.transport import CoordinatorAddress
from laminar_core.state.arrow_codec import Compression
from laminar_core.state.inflight import InflightElement
from laminar_core.state.manifest import (
    AlignmentEntry,
    CheckpointManifest,
    EdgeRef,
    SubtaskEntry,
)
from laminar_core.storage.checkpoint_store import CheckpointStore


@dataclass(frozen=True, slots=True)
class Deployment:
    """One generation of a job."""

    job: str
    generation: Generation
    parallelism: int
    plan: Plan
    store_uri: str
    address: CoordinatorAddress
    restored: CheckpointManifest | None
    """What to continue from; None is a fresh start."""
    splits: dict[str, pa.Table] = field(default_factory=dict)
    """Per source, all splits of all subtasks."""

    limits: SnapshotLimits = field(default_factory=SnapshotLimits)
    inflight_compression: Compression | None = None

    def context(self, operator_id: str, subtask_index: int) -> SubtaskContext:
        """Where a subtask of this generation runs."""
        return SubtaskContext(
            operator_id, subtask_index, self.parallelism, self.plan.max_parallelism, self.generation
        )

    @property
    def newest_id(self) -> CheckpointId:
        """Barriers up to this one are stale."""
        return CheckpointId(0 if self.restored is None else self.restored.checkpoint_id)


class RestoredState:
    """One worker's part of the checkpoint that its generation continues from."""

    def __init__(self, deployment: Deployment, subtask_index: int, store: CheckpointStore) -> None:
        self._deployment = deployment
        self._subtask_index = subtask_index
        self._store = store

    def snapshots(self, operator_id: str) -> list[Snapshot]:
        """What the operator continues from; empty on a fresh start.

        Raises:
            CorruptCheckpointError: a state file is not what the manifest says.
        """
        entry = self._entry(operator_id)
        if entry is None:
            return []
        tables = map(self._store.read_state, entry.segments)  # One at a time: they may be large.
        return [Snapshot(tables, dict(entry.properties), entry.committables)]

    def splits(self, operator_id: str) -> pa.Table:
        """This subtask's splits with their offsets."""
        entry = self._entry(operator_id)
        every = self._deployment.splits[operator_id]
        if entry is None:
            mine = range(self._subtask_index, every.num_rows, self._deployment.parallelism)
            return every.take(pa.array(mine, pa.int64()))
        return pa.concat_tables([every.slice(0, 0), *map(self._store.read_state, entry.segments)])

    def inflight(
        self, direction: Direction, edge: EdgeRef, far_end: int, schema: pa.Schema
    ) -> list[InflightElement]:
        """What was queued at this subtask's end of a channel; ``far_end`` is the other subtask.

        Raises:
            CorruptCheckpointError: a file is not what the manifest says.
        """
        manifest = self._deployment.restored
        for entry in manifest.inflight_data if manifest is not None else ():
            ends = (entry.sender, entry.receiver)
            near, far = ends if direction == "output" else reversed(ends)
            here = (entry.direction, near, far, entry.edge)
            if here == (direction, self._subtask_index, far_end, edge):
                return self._store.read_inflight(entry, schema)
        return []

    def alignment(self, vertex_id: str) -> AlignmentEntry | None:
        """Watermarks at the cut."""
        manifest = self._deployment.restored
        for entry in manifest.alignment if manifest is not None else ():
            if (entry.vertex_id, entry.subtask_index) == (vertex_id, self._subtask_index):
                return entry
        return None

    def _entry(self, operator_id: str) -> SubtaskEntry | None:
        manifest = self._deployment.restored
        for entry in manifest.subtasks if manifest is not None else ():
            if (entry.operator_id, entry.subtask_index) == (operator_id, self._subtask_index):
                return entry
        return None
