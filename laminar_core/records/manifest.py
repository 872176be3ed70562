"""JSON records of checkpoints: the manifest, and the records around it.

Every record is immutable, refuses unknown fields and wrong types, and contains its
``format_version``. Readers accept every version ever released (``tests/golden``); writers write
only the newest. ``*_at_ms`` is the writer's wall clock in milliseconds since 1970 and orders
nothing: clocks step.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Literal, Self, TypeVar

from pydantic import Field, JsonValue, ValidationError, model_validator

from laminar_core.errors import CorruptCheckpointError, ErrorCode
from laminar_core.protocol.types import CheckpointKind, ResolvedMode
from laminar_core.records.actor import ActorKind, Attributed, kind_by_name
from laminar_core.records.audit_ref import Audited, AuditRef
from laminar_core.records.channel_entries import AlignmentEntry, InflightEntry
from laminar_core.records.file_parts import problem_of
from laminar_core.records.manifest_fields import ManifestFields
from laminar_core.records.partial_reset import PartialReset
from laminar_core.records.record import (
    CheckpointNumber,
    Count,
    DurationMs,
    FileRef,
    JsonObject,
    Many,
    PerOperator,
    Positive,
    Prose,
    Record,
    Sealed,
    TimeMs,
    why_beyond_limits,
)
from laminar_core.records.savepoint_use import SavepointUse
from laminar_core.records.seal import unseal
from laminar_core.records.spark_application import SparkApplication
from laminar_core.records.stored_manifest import StoredManifest

_MISSING_MAX = 1_000
_NAMED_MAX = 20
_PROBLEM_LENGTH_MAX = 500
"""Bounds of a message about missing subtasks: how many are counted, how many named, its length."""


class CheckpointManifest(ManifestFields[FileRef]):
    """A completed checkpoint, with an entry for each channel. Creating this object completes it.

    It is written as a ``StoredManifest``; ``manifest_versions`` reads all formats.
    """

    def to_bytes(self) -> bytes:
        """Return the manifest as sealed JSON in the newest format."""
        return StoredManifest.of(self).to_bytes()

    @model_validator(mode="after")
    def _is_one_consistent_cut(self) -> Self:
        listed = Counter((s.operator_id, s.subtask_index) for s in self.subtasks)
        subtasks = sum(self.parallelism.values())
        if subtasks > len(self.subtasks) + _MISSING_MAX:  # Counted before it is spelled out.
            raise ValueError(f"the manifest lists {len(self.subtasks)} of {subtasks} subtasks")
        wanted = Counter((op, index) for op, n in self.parallelism.items() for index in range(n))
        if listed != wanted:
            missing, unexpected = sorted(wanted - listed), sorted(listed - wanted)
            raise ValueError(
                f"subtasks and parallelism differ: missing {missing[:_NAMED_MAX]}, "
                f"unexpected {unexpected[:_NAMED_MAX]}"
            )
        if (self.parent_checkpoint_id or 0) >= self.checkpoint_id:
            raise ValueError("a parent is older than its child")
        paths = Counter(file.path for file in self.files())
        if repeated := sorted(path for path, count in paths.items() if count > 1):
            raise ValueError(f"listed twice: {repeated[:_NAMED_MAX]}")
        return self

    @model_validator(mode="after")
    def _mode_is_consistent(self) -> Self:
        if self.is_unaligned != (self.mode != "aligned"):
            raise ValueError(f"is_unaligned is {self.is_unaligned} but the mode is {self.mode}")
        if self.mode != (resolved := resolved_mode(self.alignment, self.inflight_data)):
            raise ValueError(f"the mode is {self.mode} but the parts say {resolved}")
        return self

    @model_validator(mode="after")
    def _inflight_data_has_an_owner(self) -> Self:
        subtasks = {(s.operator_id, s.subtask_index) for s in self.subtasks}
        listed = {(e.operator_id, e.subtask_index) for e in self.inflight_data}
        if ghosts := sorted(listed - subtasks):
            raise ValueError(f"in-flight data of unknown subtasks: {ghosts[:_NAMED_MAX]}")
        queues = Counter(entry.queue for entry in self.inflight_data)
        if repeated := sorted(queue for queue, count in queues.items() if count > 1):
            raise ValueError(f"one queue has several parts: {repeated[:_NAMED_MAX]}")
        return self

    @model_validator(mode="after")
    def _inflight_data_is_in_its_files(self) -> Self:
        sizes = {file.path: file.size_bytes for file in self.inflight_files}
        if (problem := problem_of(sizes, self.inflight_data)) is not None:
            raise ValueError(f"in-flight data: {problem}")
        return self

    @model_validator(mode="after")
    def _fingerprint_is_of_the_description(self) -> Self:
        digests = {op: fingerprint_of(text) for op, text in self.operators_description.items()}
        if digests != self.fingerprint:
            raise ValueError("the fingerprint is not that of the operators' description")
        if unknown := sorted(self.parallelism.keys() - self.fingerprint.keys()):
            raise ValueError(f"operators without description: {unknown[:_NAMED_MAX]}")
        return self

    @model_validator(mode="after")
    def _discovery_is_of_its_sources(self) -> Self:
        if unknown := sorted(self.discovery.keys() - self.parallelism.keys()):
            raise ValueError(f"discovery of unknown operators: {unknown[:_NAMED_MAX]}")
        return self

    @model_validator(mode="after")
    def _what_is_carried_is_there(self) -> Self:
        sources = {carried.source for carried in self.carried.values()}
        if unknown := sorted(self.carried.keys() - self.parallelism.keys()):
            raise ValueError(f"carries unknown operators: {unknown[:_NAMED_MAX]}")
        if alone := sorted(sources - self.carried.keys()):
            raise ValueError(f"carries operators without their sources: {alone[:_NAMED_MAX]}")
        return self

    def files(self) -> tuple[FileRef, ...]:
        """Return every file that must be whole for this checkpoint to be restorable."""
        states = tuple(segment for entry in self.subtasks for segment in entry.segments)
        return states + self.inflight_files

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all files together, without the manifest."""
        return sum(file.size_bytes for file in self.files())

    @property
    def written_bytes(self) -> int:
        """Bytes uploaded for this checkpoint: changed state, and data in flight."""
        return sum(entry.written_bytes for entry in self.subtasks) + self.inflight_bytes

    @property
    def workers(self) -> int:
        """The number of workers: worker i hosts subtask i of every operator of the pipeline."""
        there = (n for op, n in self.parallelism.items() if op not in self.carried)
        return max(there, default=1)

    @property
    def inflight_bytes(self) -> int:
        """The part of ``size_bytes`` that was in flight."""
        return sum(entry.size_bytes for entry in self.inflight_data)

    @property
    def inflight_rows(self) -> int:
        """Rows that a restore replays before any new ones."""
        return sum(entry.row_count for entry in self.inflight_data)


class Owner(Record):
    """The process that made a claim. All fields together are unique: no two claims are equal."""

    host_id: str = Field(description="Host name and process namespace, for the eye and for pids.")
    boot_id: str = Field(description="Changes when the machine starts; empty if unknown.")
    pid: Positive
    pid_start_time: Count = Field(description="Clock ticks since boot; tells reused pids apart.")
    claim_number: Positive = Field(description="Counts the claims that this process tried.")
    user: str


class GenerationClaim(Attributed):
    """The claim by which a generation takes ownership of a job. Create-only; the newest wins."""

    format_version: Literal[1, 2, 3] = 3
    job: str
    generation: Positive
    owner: Owner
    actor: str
    actor_kind: ActorKind = Field(default_factory=kind_by_name)
    reason: Prose
    code_version: str
    claimed_at_ms: TimeMs
    announced: AuditRef | None = Field(default=None, description="Where the audit log says so.")
    default_retention: JsonObject | None = Field(
        default=None,
        exclude_if=lambda policy: policy is None,
        description="Nobody asked to keep what this completes: the policy that applies to it.",
    )
    spark: SparkApplication | None = Field(
        default=None,
        exclude_if=lambda application: application is None,
        description="Whoever continues after the driver's death ends it. Since format 3.",
    )

    @model_validator(mode="after")
    def _names_the_application_since_format_3(self) -> Self:
        if self.spark is not None and self.format_version <= 2:  # noqa: PLR2004 - a format
            raise ValueError("spark came with format 3")
        return self


class GenerationBase(Sealed):
    """The checkpoint that a generation starts from; None is a fresh start. Create-only.

    ``closed_by`` is set when a later generation found the record missing and wrote it: the
    generation never started and constrains nothing.
    """

    format_version: Literal[1] = 1
    generation: Positive
    base_checkpoint_id: CheckpointNumber | None
    closed_by: Positive | None = None
    savepoint: SavepointUse | None = Field(default=None, description="The base is its copy.")
    reset: PartialReset | None = Field(
        default=None,
        exclude_if=lambda reset: reset is None,
        description="What does not continue from the base.",
    )
    audited: Audited = None

    @model_validator(mode="after")
    def _a_part_is_reset_beside_a_rest(self) -> Self:
        if self.reset is not None and self.base_checkpoint_id is None:
            raise ValueError("a part is reset while the rest continues from a checkpoint")
        return self

    @model_validator(mode="after")
    def _a_savepoint_is_copied(self) -> Self:
        if self.savepoint is not None and self.base_checkpoint_id is None:
            raise ValueError("a savepoint becomes a checkpoint, which is then the base")
        return self

    @model_validator(mode="after")
    def _closed_by_a_later_one(self) -> Self:
        if self.closed_by is None:
            return self
        if self.closed_by <= self.generation or self.base_checkpoint_id is not None:
            raise ValueError("only a later generation closes, and what it closes has no base")
        return self


class Heartbeat(Record):
    """Sign of life of the owning driver; overwritten, and alive as long as it changes."""

    format_version: Literal[1] = 1
    sequence: Count
    at_ms: TimeMs
    progress: JsonObject = Field(default_factory=dict)
    audited: Audited = None


class GenerationEnd(Record):
    """The generation stopped by itself and writes nothing any more."""

    format_version: Literal[1, 2] = 2
    generation: Positive
    outcome: str
    reason: Prose
    audited: Audited = None
    gave_up: bool | None = Field(
        default=None,
        exclude_if=lambda known: known is None,
        description="Whether its driver starts no other one after it. Since format 2.",
    )

    @model_validator(mode="after")
    def _knows_whether_it_gave_up_since_format_2(self) -> Self:
        if self.gave_up is not None and self.format_version == 1:
            raise ValueError("gave_up came with format 2")
        return self


class TriggerRecord(Record):
    """Reserves a checkpoint id for one generation."""

    format_version: Literal[1] = 1
    checkpoint_id: CheckpointNumber
    generation: Positive
    kind: CheckpointKind
    triggered_at_ms: TimeMs


class CommitRecord(Record):
    """The output of this checkpoint, and of all before it, is visible."""

    format_version: Literal[1] = 1
    checkpoint_id: CheckpointNumber
    generation: Positive
    committed_at_ms: TimeMs
    committables: PerOperator[Count] = Field(default={}, description="Number per sink.")


class SubtaskNumbers(Record):
    """Numbers of one operator subtask for the history."""

    operator_id: str
    subtask_index: Count
    size_bytes: Count
    row_count: Count
    sync_ms: DurationMs
    async_ms: DurationMs


Outcome = Literal["completed", "declined", "expired", "subsumed", "aborted"]


class HistoryRecord(Record):
    """The outcome of one attempt at a checkpoint."""

    format_version: Literal[1] = 1
    checkpoint_id: CheckpointNumber
    generation: Positive
    kind: CheckpointKind
    outcome: Outcome
    reason: Prose
    triggered_at_ms: TimeMs
    ended_at_ms: TimeMs
    duration_ms: DurationMs
    size_bytes: Count = 0
    written_bytes: Count | None = Field(
        default=None, description="Of these, what was uploaded; None in older records: all."
    )
    inflight_bytes: Count = 0
    mode: ResolvedMode = "aligned"
    alignment_ms_max: DurationMs | None = None
    subtasks: Many[SubtaskNumbers] = ()


R = TypeVar("R", bound=Record)


def fingerprint_of(description: Mapping[str, JsonValue]) -> str:
    """Return the digest of an operator's description; the order of keys does not matter.

    >>> fingerprint_of({"a": 1, "b": 2}) == fingerprint_of({"b": 2, "a": 1})
    True
    """
    canonical = json.dumps(description, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def resolved_mode(
    alignment: Iterable[AlignmentEntry], inflight: Iterable[InflightEntry]
) -> ResolvedMode:
    """Return the mode of a whole checkpoint, given its subtasks' modes.

    One switched subtask means that the timeout took effect, else an unaligned one that it was
    triggered so, even if others (in a loop) aligned. Elements overtaken without either: a switch.
    """
    modes = {entry.mode for entry in alignment}
    if "unaligned" in modes and "switched" not in modes:
        return "unaligned"
    overtaken = any(not entry.edge.feedback for entry in inflight)
    return "switched" if overtaken or "switched" in modes else "aligned"


def parse_record(record_type: type[R], data: bytes) -> R:
    """Read one record.

    Raises:
        CorruptCheckpointError: no JSON, or not such a record.
    """
    if (problem := why_beyond_limits(data)) is not None:
        raise unreadable(f"not readable as {record_type.__name__} ({problem})")
    try:
        return record_type.model_validate_json(unseal(data))
    except ValidationError as error:
        raise no_such_record(record_type.__name__, error) from error


def no_such_record(name: str, error: ValidationError) -> CorruptCheckpointError:
    """Return the exception for fields that are not those of such a record."""
    return unreadable(f"not readable as {name} ({first_problem(error)})")


def first_problem(error: ValidationError) -> str:
    """Return the first thing that is wrong, and where it is."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return _in_one_line(f"{where}: {first['msg']}" if where else first["msg"])


def _in_one_line(problem: str) -> str:
    """Names in a record can be anything, and a message shows them."""
    return " ".join(problem[:_PROBLEM_LENGTH_MAX].split())


def unreadable(message: str) -> CorruptCheckpointError:
    """Return the exception for a record that differs from what was written."""
    return CorruptCheckpointError(ErrorCode.MANIFEST_UNREADABLE, message)
