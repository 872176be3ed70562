"""State of the coordinator machine. It is frozen: a step returns a new one."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.protocol.coordinator_events import SubtaskId
from laminar_core.protocol.types import CheckpointId, CheckpointKind


@dataclass(frozen=True, slots=True, eq=False)
class SubtaskSet:
    """Subtasks that only become more; adding n of them one by one costs O(n log n) in all.

    A frozen set that grows by one is copied whole. Here a new part is merged with earlier ones
    only while those are not larger, so each subtask is copied at most log2(n) times.
    """

    parts: tuple[frozenset[SubtaskId], ...] = ()
    """Disjoint, each larger than all behind it."""
    size: int = 0

    def add(self, subtasks: Iterable[SubtaskId]) -> "SubtaskSet":
        """Return a set that also contains ``subtasks``; known ones change nothing."""
        new = frozenset(s for s in subtasks if s not in self)
        if not new:
            return self
        size, parts = self.size + len(new), self.parts
        while parts and len(parts[-1]) <= len(new):
            new |= parts[-1]
            parts = parts[:-1]
        return SubtaskSet((*parts, new), size)

    def __len__(self) -> int:
        """Return the number of subtasks."""
        return self.size

    def __contains__(self, subtask: SubtaskId) -> bool:
        """Return whether the subtask is in the set."""
        return any(subtask in part for part in self.parts)

    def __eq__(self, other: object) -> bool:
        """Compare by content; the order of additions does not matter."""
        return isinstance(other, SubtaskSet) and self._all() == other._all()

    def __hash__(self) -> int:
        """Return a hash of the content: equal sets have equal hashes."""
        return hash(self._all())

    def _all(self) -> frozenset[SubtaskId]:
        return frozenset[SubtaskId]().union(*self.parts)


@dataclass(frozen=True, slots=True)
class Request:
    """A checkpoint that waits for its turn."""

    kind: CheckpointKind
    request_ids: tuple[str, ...] = ()
    not_before_ms: int = 0
    once: bool = False
    """If it fails it is over, also if the job was to end with it."""


@dataclass(frozen=True, slots=True)
class Pending:
    """A checkpoint whose number is at least being reserved, and that has not ended."""

    checkpoint_id: CheckpointId
    kind: CheckpointKind
    request_ids: tuple[str, ...]
    triggered_ms: int
    """When it is due, until its barrier is injected; a request that waits makes that earlier."""
    phase: Literal["reserving", "reserved", "collecting", "publishing"] = "reserving"
    acknowledged: SubtaskSet = SubtaskSet()
    alignment_due_ms: int | None = None
    """When the alignment budget is spent. None: there is no budget, or it is spent already."""
    once: bool = False


@dataclass(frozen=True, slots=True)
class CoordinatorState:
    """Everything the coordinator knows; ``expected`` is fixed for the generation."""

    config: CoordinatorConfig
    expected: frozenset[SubtaskId]
    next_id: CheckpointId
    next_periodic_ms: int | None
    pending: tuple[Pending, ...] = ()
    queue: tuple[Request, ...] = ()
    last_completed_id: CheckpointId | None = None
    last_ended_ms: int | None = None
    consecutive_failures: int = 0
    ending: bool = False
    """A stop or final checkpoint was requested, so no periodic one is triggered any more."""
    deletions: int = 0
    """Checkpoints that were given up and are not over, in the store or at a worker."""
    uncommitted: int = 0
    """Completed checkpoints whose output waits for its commit."""

    @property
    def is_held(self) -> bool:
        """Whether so much output waits for its commit that sources pause."""
        limit = self.config.max_uncommitted
        return limit is not None and self.uncommitted >= limit

    @property
    def may_start(self) -> bool:
        """Whether another checkpoint may start.

        Neither the pending checkpoints nor the pending deletions may exceed the limit.
        """
        limit = self.config.max_concurrent
        return len(self.pending) < limit and self.deletions <= limit

    def find(self, checkpoint_id: CheckpointId) -> Pending | None:
        """Return the pending checkpoint with this id, or None."""
        return next((p for p in self.pending if p.checkpoint_id == checkpoint_id), None)

    def having(self, changed: Pending) -> "CoordinatorState":
        """Return the state with ``changed`` in place of the pending checkpoint of the same id."""
        pending = tuple(
            changed if p.checkpoint_id == changed.checkpoint_id else p for p in self.pending
        )
        return replace(self, pending=pending)

    def without(self, gone: Pending) -> "CoordinatorState":
        """Return the state without one of its pending checkpoints."""
        pending = tuple(p for p in self.pending if p.checkpoint_id != gone.checkpoint_id)
        return replace(self, pending=pending)
