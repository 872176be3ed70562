"""Facts, policy and plan of retention, as types without decisions."""

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
    """Which checkpoints to keep; one that any rule keeps stays. Only restorable ones count.

    Ids decide which is newer. ``completed_at_ms``, by the writer's clock, decides to which hour,
    day or week a checkpoint belongs (UTC; weeks start on Monday), and how old it is. A wrong clock
    can move a checkpoint into another hour; a time in the future does not count as too old.
    """

    keep_last: int = 3
    hourly: int = 0
    """Number of newest hours with a restorable checkpoint; the newest one of each is kept."""
    daily: int = 0
    weekly: int = 0
    max_age_ms: int | None = None
    """The rules above do not keep older checkpoints; None: no age limit."""
    min_kept: int = 1
    """The newest so many restorable ones are kept at any age."""
    keep_savepoints: bool = True
    """Checkpoints of the kind ``savepoint`` are kept, unless they are orphans."""
    only_announced: bool = False
    """Keep all checkpoints of generations that have not announced a default policy in their claim;
    they count all the same."""
    delete_unreadable: bool = False
    """Delete what has a manifest that cannot be read, after quarantine; else report it."""
    delete_left_overs: bool = True
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
    """A checkpoint whose manifest is sound. ``damage`` describes problems of its files."""

    checkpoint_id: CheckpointId
    generation: Generation
    completed_at_ms: int
    files: Mapping[str, int]
    """The files that the manifest names, with lengths in bytes; paths below the job's folder."""
    is_savepoint: bool = False
    damage: str | None = None
    staged: frozenset[str] = frozenset()
    """Paths of files with rows that the checkpoint commits."""

    @property
    def size_bytes(self) -> int:
        """The bytes of all files, including those that other checkpoints also name."""
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
    """An object of the job, classified by its name.

    ``part``: a state or in-flight file in the folder of ``checkpoint_id``. ``shared``: written by
    ``generation`` for several checkpoints. ``staged``: rows that ``generation`` left for a commit.
    ``unknown``: not a name that Laminar gives.
    """

    path: str
    size_bytes: int
    kind: Literal["part", "shared", "staged", "unknown"]
    checkpoint_id: CheckpointId | None = None
    generation: Generation | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """A checkpoint that ended and has no manifest: its history, commit and deletion are recorded.

    What has not ended has none of these records (FLINK-40384).
    """

    checkpoint_id: CheckpointId
    ended_at_ms: int | None = None
    """When the attempt ended, if the policy depends on it."""


@dataclass(frozen=True, slots=True)
class RetentionFacts:
    """The store as it was read. Owners are read first, then pins, files, and manifests.

    A manifest that a running generation publishes later names nothing but files of its newest
    manifest, and files that none has named yet. So what is read here stays true.
    """

    now_ms: int
    newest_generation: Generation | None
    bases: tuple[Base, ...]
    """The bases of all generations that started; the newest generation may have none yet."""
    checkpoints: tuple[Completed | Unreadable | Incomplete, ...] = ()
    announced: frozenset[Generation] = frozenset()
    """Generations whose claim announces a default policy for the checkpoints they complete."""
    committed: frozenset[CheckpointId] = frozenset()
    marked: frozenset[CheckpointId] = frozenset()
    """Checkpoints with a deletion marker: their deletion was decided earlier."""
    pins: Mapping[CheckpointId, tuple[Pin, ...]] = field(
        default_factory=dict[CheckpointId, tuple[Pin, ...]]
    )
    files: tuple[StoredFile, ...] = ()
    traces: tuple[Trace, ...] = ()
    quarantined: Mapping[str, int] = field(default_factory=dict[str, int])
    """Path of each left-over file to the time at which an earlier apply found it."""


CheckpointAction = Literal["keep", "delete", "blocked", "report"]
"""``blocked``: to be deleted, but not now. ``report``: a person should look at it."""

FileAction = Literal["keep", "delete", "quarantine", "report"]


@dataclass(frozen=True, slots=True)
class CheckpointVerdict:
    """The action for a checkpoint, and every reason for it."""

    checkpoint_id: CheckpointId
    action: CheckpointAction
    reasons: tuple[str, ...]
    size_bytes: int = 0
    """Bytes of all files that it names."""
    completed_at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class FileVerdict:
    """The action for a file. ``checkpoint_id``: the checkpoint that is deleted together with it."""

    path: str
    action: FileAction
    reason: str
    size_bytes: int
    checkpoint_id: CheckpointId | None = None


@dataclass(frozen=True, slots=True)
class RetentionPlan:
    """Everything classified, before anything is deleted.

    ``forgotten`` are checkpoints whose last traces are deleted. ``abandoned`` never completed, and
    their generation is over: tombstones take the place of their manifests before any file is
    deleted that they might name.
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
        """Checkpoints to delete, oldest first."""
        return tuple(v.checkpoint_id for v in self.checkpoints if v.action == "delete")

    @property
    def deleted_files(self) -> tuple[FileVerdict, ...]:
        """Files to delete."""
        return tuple(file for file in self.files if file.action == "delete")

    @property
    def quarantined_files(self) -> tuple[FileVerdict, ...]:
        """Left-over files that are found for the first time."""
        return tuple(file for file in self.files if file.action == "quarantine")

    @property
    def deleted_bytes(self) -> int:
        """The bytes that the plan frees, without manifests and records."""
        return sum(file.size_bytes for file in self.deleted_files)

    @property
    def is_empty(self) -> bool:
        """Whether the plan contains no action."""
        return not (
            self.deleted_ids
            or self.deleted_files
            or self.quarantined_files
            or self.forgotten
            or self.released
        )
