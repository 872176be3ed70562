"""What a choice among checkpoints depends on: what was asked for, and what the store shows."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from laminar_core.protocol.types import CheckpointId, Generation


@dataclass(frozen=True, slots=True)
class Base:
    """What a generation started from; None is a fresh start. Closed ones are not listed.

    ``floor`` is set if the base is the copy of a savepoint: then not the copy's id says what of the
    past still counts, but that of the checkpoint it was made from; 0 if that is of another job.
    """

    generation: Generation
    checkpoint_id: CheckpointId | None
    floor: CheckpointId | None = None

    @property
    def newest_kept(self) -> CheckpointId | None:
        """Of earlier generations, the newest checkpoint that may be on the timeline."""
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
    """Its deletion is decided: what is left of the checkpoint does not count any more."""


@dataclass(frozen=True, slots=True)
class Readable:
    """The manifest is sound. Whether its files are is another question."""

    generation: Generation
    parent_id: CheckpointId | None = None
    completed_at_ms: int = 0
    """By the writer's wall clock."""


ManifestFact = Absent | Unreadable | BeingDeleted | Readable


@dataclass(frozen=True, slots=True)
class RestoreFacts:
    """What is known of the store. Starts as listings; grows by the answers to questions.

    ``candidates`` are all ids that have anything stored. ``newest_commit_by`` is the
    generation of the newest commit record, None if there is none. ``damage`` has an entry for each
    checkpoint whose files were all read: what is wrong, or None.
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
class Wish:
    """What was asked for: one particular checkpoint, or one completed before a wall-clock time.

    ``allow_fresh`` permits to start empty although checkpoints existed, if nothing else was asked.
    """

    checkpoint_id: CheckpointId | None = None
    before_ms: int | None = None
    allow_fresh: bool = False
