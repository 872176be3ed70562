"""What retention knows, what it is told to keep, and what it answers; nothing is decided here."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from laminar_core.protocol.recovery_facts import Base
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.records.pin import Pin

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """Which checkpoints to keep; whatever one rule keeps is kept. Only restorable ones count.

    Ids say what is newer. ``completed_at_ms``, the writer's clock, says which hour, day or week a
    checkpoint is of (UTC; weeks start on Monday), and how old it is. A clock that was wrong can
    move a checkpoint into another hour; one that is from the future is not too old.
    """

    keep_last: int = 3
    hourly: int = 0
    """Of each of the newest so many hours that have a restorable checkpoint: the newest one."""
    daily: int = 0
    weekly: int = 0
    max_age_ms: int | None = None
    """What is older is not kept by the rules above; None: nothing is too old."""
    min_kept: int = 1
    """The newest so many restorable ones are kept at any age."""
    keep_savepoints: bool = True
    """Checkpoints of the kind ``savepoint`` are kept, unless they are orphans."""
    only_announced: bool = False
    """Keep all checkpoints of generations that have not announced a default policy in their claim;
    they count all the same."""
    delete_unreadable: bool = False
    """Delete what has a manifest that cannot be read, after quarantine; else report it."""
    delete_orphans: bool = True
    """Delete files that nothing names, after quarantine; else report them."""
    quarantine_min_ms: int = DAY_MS
    history_keep: int | None = None
    """Ended attempts to remember of those that are deleted or never completed; None: all."""
    history_max_age_ms: int | None = None

    def __post_init__(self) -> None:
        assert min(self.keep_last, self.min_kept) >= 1, self
        assert min(self.hourly, self.daily, self.weekly, self.quarantine_min_ms) >= 0, self


@dataclass(frozen=True, slots=True)
class Completed:
    """A checkpoint whose manifest is sound. ``damage`` says what is wrong with its files."""

    checkpoint_id: CheckpointId
    generation: Generation
    completed_at_ms: int
    files: Mapping[str, int]
    """What the manifest names, with its length in bytes; paths below the job's folder."""
    is_savepoint: bool = False
    damage: str | None = None

    @property
    def size_bytes(self) -> int:
        """Of all files, also of those that other checkpoints name."""
        return sum(self.files.values())


@dataclass(frozen=True, slots=True)
class Unreadable:
    """There is a manifest and it cannot be read: what it names is unknown."""

    checkpoint_id: CheckpointId
    reason: str
    manifest_path: str


@dataclass(frozen=True, slots=True)
class Incomplete:
    """Reserved, and without a manifest: it left files, or may still be published.

    ``generation`` reserved it; None: that is unknown.
    """

    checkpoint_id: CheckpointId
    generation: Generation | None


@dataclass(frozen=True, slots=True)
class StoredFile:
    """An object of the job, told by its name.

    ``part``: a state or in-flight file in the folder of ``checkpoint_id``. ``shared``: written by
    ``generation`` for several checkpoints. ``unknown``: no name that Laminar gives.
    """

    path: str
    size_bytes: int
    kind: Literal["part", "shared", "unknown"]
    checkpoint_id: CheckpointId | None = None
    generation: Generation | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """A checkpoint that ended and has no manifest: its history, commit and deletion are recorded.

    What has not ended has none of these records (FLINK-40384).
    """

    checkpoint_id: CheckpointId
    ended_at_ms: int | None = None
    """When that was, if it matters to the policy."""


@dataclass(frozen=True, slots=True)
class RetentionFacts:
    """The store as it was read. Owners are read first, then pins, files, and manifests.

    A manifest that a running generation publishes later names nothing but files of its newest
    manifest, and files that none has named yet. So what is read here stays true.
    """

    now_ms: int
    newest_generation: Generation | None
    bases: tuple[Base, ...]
    """Of all generations that started; the newest one may be missing."""
    checkpoints: tuple[Completed | Unreadable | Incomplete, ...] = ()
    announced: frozenset[Generation] = frozenset()
    """Those whose claim says that a default policy applies to what they complete."""
    committed: frozenset[CheckpointId] = frozenset()
    marked: frozenset[CheckpointId] = frozenset()
    """Those with a deletion marker: their deletion was decided earlier."""
    pins: Mapping[CheckpointId, tuple[Pin, ...]] = field(
        default_factory=dict[CheckpointId, tuple[Pin, ...]]
    )
    files: tuple[StoredFile, ...] = ()
    traces: tuple[Trace, ...] = ()
    quarantined: Mapping[str, int] = field(default_factory=dict[str, int])
    """Path to the time at which an earlier apply first saw it as an orphan."""


CheckpointAction = Literal["keep", "delete", "blocked", "report"]
"""``blocked``: it would go, but not now. ``report``: it needs somebody to look at it."""

FileAction = Literal["keep", "delete", "quarantine", "report"]


@dataclass(frozen=True, slots=True)
class CheckpointVerdict:
    """What becomes of a checkpoint, and every reason for it."""

    checkpoint_id: CheckpointId
    action: CheckpointAction
    reasons: tuple[str, ...]
    size_bytes: int = 0
    """Of everything that it names."""
    completed_at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class FileVerdict:
    """What becomes of a file. ``checkpoint_id``: it goes together with that one."""

    path: str
    action: FileAction
    reason: str
    size_bytes: int
    checkpoint_id: CheckpointId | None = None


@dataclass(frozen=True, slots=True)
class RetentionPlan:
    """Everything classified, before anything is deleted.

    ``forgotten`` are checkpoints whose last traces go. ``abandoned`` never completed, and their
    generation is over: their place is taken before any file is deleted that they might name.
    """

    generation: Generation | None
    blocked: str | None
    checkpoints: tuple[CheckpointVerdict, ...]
    files: tuple[FileVerdict, ...]
    forgotten: tuple[CheckpointId, ...]
    abandoned: tuple[CheckpointId, ...]
    released: tuple[str, ...]
    """Paths in quarantine where nothing is stored any more."""

    @property
    def deleted_ids(self) -> tuple[CheckpointId, ...]:
        """Checkpoints that go, oldest first."""
        return tuple(v.checkpoint_id for v in self.checkpoints if v.action == "delete")

    @property
    def deleted_files(self) -> tuple[FileVerdict, ...]:
        """Files that go."""
        return tuple(file for file in self.files if file.action == "delete")

    @property
    def quarantined_files(self) -> tuple[FileVerdict, ...]:
        """Files that are seen as orphans for the first time."""
        return tuple(file for file in self.files if file.action == "quarantine")

    @property
    def deleted_bytes(self) -> int:
        """How much space this gives back, without manifests and records."""
        return sum(file.size_bytes for file in self.deleted_files)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (
            self.deleted_ids
            or self.deleted_files
            or self.quarantined_files
            or self.forgotten
            or self.released
        )
