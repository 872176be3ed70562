"""A task's cut: one part for each operator, whose asynchronous phase is still to be run."""

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
    incremental: bool = False
    """Whether operators with keyed state write their changes only, and not all of their state."""

    @property
    def is_small(self) -> bool:
        """Whether it has no keyed state, only things such as a source's positions.

        An incremental part continues a chain, and has a way to merge it. A cut without any has
        nothing that must be written in the order of the cuts.
        """
        return self.incremental and all(part.merge is None for part in self.parts)
