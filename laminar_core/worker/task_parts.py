"""What a task is made of, and what it hands over at a cut."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from laminar_core.operators.base import OperatorSubtask, PendingSnapshot
from laminar_core.protocol.types import ChannelId, CheckpointId, DeclineCause
from laminar_core.protocol.watermarks import WatermarkGate
from laminar_core.records.manifest import AlignmentEntry
from laminar_core.worker.channels import InputChannel
from laminar_core.worker.inflight import Captured, SnapshotLimits
from laminar_core.worker.outputs import EdgeOutput
from laminar_core.worker.pacing import PacedSource
from laminar_core.worker.segments import MergeTables
from laminar_core.worker.sinks import CommittingSink


@dataclass(frozen=True, slots=True)
class PendingPart:
    """One operator's part of a cut: the asynchronous phase is still to be run."""

    operator_id: str
    pending: PendingSnapshot
    sync_ms: float
    merge: MergeTables | None = None
    """Set if it is of what changed: how that is put together with what was written before."""
    renews: bool = False
    """It is the whole state, and begins a new chain: what was written before is lost."""


@dataclass(frozen=True, slots=True)
class Cut:
    """What a task hands over at the cut, for the background."""

    checkpoint_id: CheckpointId
    vertex_id: str
    parts: tuple[PendingPart, ...]


class TaskListener(Protocol):
    """What a task tells its worker."""

    def on_operator(self, operator_id: str) -> None:
        """Note that this operator, source or sink computes from now on."""
        ...

    def on_cut(self, cut: Cut) -> None:
        """A snapshot was taken; finish it. More of the checkpoint may follow."""
        ...

    def on_captured(self, vertex_id: str, captured: Captured) -> None:
        """In-flight data of a cut; write it."""
        ...

    def on_complete(self, checkpoint_id: CheckpointId, alignment: AlignmentEntry) -> None:
        """Nothing more of this task belongs to the checkpoint: acknowledge what is durable."""
        ...

    def on_discard(self, checkpoint_id: CheckpointId) -> None:
        """This checkpoint will not complete here."""
        ...

    def on_decline(self, checkpoint_id: CheckpointId, cause: DeclineCause, reason: str) -> None:
        """Tell the coordinator that this task has no part for the checkpoint."""
        ...


class Snapshottable(Protocol):
    """Anything in a chain with a part in the checkpoint."""

    def snapshot(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        """Synchronous phase of a snapshot."""
        ...


@dataclass(frozen=True, slots=True)
class TaskParts:
    """What a task is made of. Exactly one of ``source`` and ``inputs`` feeds it."""

    vertex_id: str
    subtask_index: int
    source: PacedSource | None
    inputs: Sequence[InputChannel]
    operators: Sequence[tuple[str, OperatorSubtask]]
    source_id: str | None
    sink: CommittingSink | None
    sink_id: str | None
    outputs: Sequence[EdgeOutput]
    gate: WatermarkGate
    newest_id: CheckpointId
    limits: SnapshotLimits = field(default_factory=SnapshotLimits)
    aligned_only: frozenset[ChannelId] = frozenset()
    """Inputs on which no barrier may overtake."""
    feedback: frozenset[ChannelId] = frozenset()
    """Inputs that come back to the head of a loop."""
    loop: str | None = None
    """The loop that the vertex is in."""
    inside: frozenset[ChannelId] = frozenset()
    """Inputs that come from the same loop, feedback included."""
    incremental: bool = False
    """Operators that can are asked for what changed since the last cut, and not for everything."""
    finished: bool = False
    """The restored source had ended: it is not read again."""
    replay_edges: Sequence[Sequence[ChannelId]] = ()
    """Inputs by edge, in the order of their senders: what was restored on them goes first."""
    senders: Mapping[ChannelId, tuple[str, int]] = field(default_factory=dict)
    """Per input: the sending vertex, and which subtask of it."""
    announced_us: int | None = None
    """Event time that receivers have to hear of, because the number of senders has changed."""
