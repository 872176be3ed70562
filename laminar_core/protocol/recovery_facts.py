"""Facts for choosing a checkpoint to restore: the request, and the contents of the store."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from laminar_core.protocol.types import CheckpointId, Generation


@dataclass(frozen=True, slots=True)
class Base:
    """The checkpoint that a generation started from; None for a fresh start.

    Closed bases are not listed. ``floor`` is set if the base is the copy of a savepoint. The floor
    then decides how much of the past still counts, instead of the copy's id: it is the checkpoint
    that the savepoint was made from, or 0 if that belongs to another job.
    """

    generation: Generation
    checkpoint_id: CheckpointId | None
    floor: CheckpointId | None = None
    has_reset: bool = False
    """Whether a part of the pipeline did not continue from it; the record says which."""

    @property
    def newest_kept(self) -> CheckpointId | None:
        """The newest checkpoint of earlier generations that may be on the timeline."""
        return self.checkpoint_id if self.floor is None else self.floor


@dataclass(frozen=True, slots=True)
class Absent:
    """There is no manifest: the checkpoint never completed."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """There is a manifest and it cannot be read. The reservation of the id may name its writer."""

    reason: str
    generation: Generation | None = None


@dataclass(frozen=True, slots=True)
class BeingDeleted:
    """The deletion of this checkpoint is decided, so files that are left of it do not count."""


@dataclass(frozen=True, slots=True)
class Readable:
    """The manifest is sound. Whether its files are is another question."""

    generation: Generation
    parent_id: CheckpointId | None = None
    completed_at_ms: int = 0
    """Time of completion, by the writer's wall clock."""


ManifestFact = Absent | Unreadable | BeingDeleted | Readable


@dataclass(frozen=True, slots=True)
class RestoreFacts:
    """Known facts about the store. They start as listings and grow by the answers to questions.

    ``candidates`` are all ids with any stored object. ``newest_commit_by`` is the generation of the
    newest commit record, None if there is none. ``damage`` has an entry for each checkpoint whose
    files were all read: a description of the damage, or None.
    """

    candidates: frozenset[CheckpointId]
    bases: tuple[Base, ...]
    committed: frozenset[CheckpointId] = frozenset()
    newest_commit_by: Generation | None = None
    manifests: Mapping[CheckpointId, ManifestFact] = field(
        default_factory=dict[CheckpointId, ManifestFact]
    )
    damage: Mapping[CheckpointId, str | None] = field(
        default_factory=dict[CheckpointId, str | None]
    )


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    """The requested checkpoint, or a time before which it completed; by default the newest.

    ``before_ms`` is wall-clock time. ``allow_fresh`` permits an empty start although checkpoints
    existed, if neither is given.
    """

    checkpoint_id: CheckpointId | None = None
    before_ms: int | None = None
    allow_fresh: bool = False
