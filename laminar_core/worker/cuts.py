"""A task's cut: the parts of its snapshot, whose asynchronous phase is still to be run."""

from dataclasses import dataclass

from laminar_core.operators.base import PendingSnapshot
from laminar_core.protocol.types import CheckpointId
from laminar_core.worker.segments import MergeTables


@dataclass(frozen=True, slots=True)
class PendingPart:
    """One operator's part of a cut: the asynchronous phase is still to be run."""

    operator_id: str
    pending: PendingSnapshot
    sync_ms: float
    merge: MergeTables | None = None
    """Set if it is of what changed: how that is put together with what was written before."""
    renews: bool = False
    """Whether it is the whole state and begins a new chain, because earlier files are lost."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The parts of a task's cut, for the background."""

    checkpoint_id: CheckpointId
    vertex_id: str
    parts: tuple[PendingPart, ...]
    only_changes: bool = False
    """Whether state is written as changes. Then what else there is, such as positions of a source,
    is small."""

    @property
    def can_be_written_aside(self) -> bool:
        """Whether it is small, and continues nothing that was written before."""
        return self.only_changes and all(part.merge is None for part in self.parts)
