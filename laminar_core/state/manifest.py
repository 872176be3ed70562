"""What is written down as JSON: the manifest of a checkpoint and the records around it.

Every record is immutable, refuses unknown fields and wrong types, and says its ``format_version``.
Readers accept every version ever released (``tests/golden``); writers write only the newest.
``*_at_ms`` is the writer's wall clock in milliseconds since 1970 and orders nothing: clocks step.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator
from pydantic_core import from_json

from laminar_core.checkpoint.types import AlignmentMode, CheckpointKind
from laminar_core.errors import ConfigurationError, CorruptCheckpointError, ErrorCode
from laminar_core.state.paths import check_key

JsonObject = dict[str, JsonValue]
Positive = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Record(BaseModel):
    """Base of everything written as JSON."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)

    def to_bytes(self) -> bytes:
        """JSON in UTF-8; the same record always gives the same bytes."""
        return self.model_dump_json(indent=1).encode() + b"\n"


class FileRef(Record):
    """A stored object, named so that a reader can tell whether it got exactly that object."""

    path: str = Field(description="Relative to the job's folder.")
    size_bytes: Count
    sha256: Sha256

    @model_validator(mode="after")
    def _stays_inside_the_job(self) -> Self:
        try:
            check_key(self.path)
        except ConfigurationError as error:
            raise ValueError(str(error)) from error
        return self


class SubtaskEntry(Record):
    """One operator subtask's part of a checkpoint."""

    operator_id: str
    subtask_index: Count
    state: FileRef | None = Field(description="None: this subtask holds no rows.")
    row_count: Count
    properties: JsonObject = {}
    committables: tuple[JsonObject, ...] = ()
    sync_ms: float
    async_ms: float


class ChannelEntry(Record):
    """Event time of one input channel at the cut, to be restored before anything is replayed."""

    input_id: Count
    watermark_us: int | None
    idle: bool


class AlignmentEntry(Record):
    """How one task vertex met the barrier."""

    vertex_id: str
    subtask_index: Count
    mode: AlignmentMode
    start_delay_ms: float
    alignment_ms: float
    watermark_us: int | None
    channels: tuple[ChannelEntry, ...] = ()


class InflightEntry(FileRef):
    """Elements that an unaligned barrier overtook on one input, and the file they are in."""

    operator_id: str
    input_id: Count
    event_count: Count


class CheckpointManifestV1(Record):
    """A completed checkpoint, format 1. Creating this object completes it."""

    format_version: Literal[1] = 1
    job: str
    generation: Positive = Field(description="Fencing token of the writer.")
    checkpoint_id: Positive
    parent_checkpoint_id: Positive | None = Field(description="None: the first of a fresh start.")
    kind: CheckpointKind
    mode: AlignmentMode
    is_unaligned: bool = False
    triggered_at_ms: int
    completed_at_ms: int
    duration_ms: float
    max_parallelism: Positive
    parallelism: dict[str, Positive] = Field(description="operator_id -> number of subtasks.")
    fingerprint: dict[str, Sha256] = Field(description="operator_id -> digest of its description.")
    operators_description: dict[str, JsonObject] = Field(description="Explains a mismatch.")
    code_version: str
    subtasks: tuple[SubtaskEntry, ...]
    alignment: tuple[AlignmentEntry, ...] = ()
    inflight_data: tuple[InflightEntry, ...] = ()

    @model_validator(mode="after")
    def _is_one_consistent_cut(self) -> Self:
        wanted = Counter((op, index) for op, n in self.parallelism.items() for index in range(n))
        listed = Counter((s.operator_id, s.subtask_index) for s in self.subtasks)
        if listed != wanted:
            missing, unexpected = sorted(wanted - listed), sorted(listed - wanted)
            raise ValueError(f"no single cut: missing {missing}, unexpected {unexpected}")
        if (self.parent_checkpoint_id or 0) >= self.checkpoint_id:
            raise ValueError("a parent is older than its child")
        paths = Counter(file.path for file in self.files())
        if repeated := sorted(path for path, count in paths.items() if count > 1):
            raise ValueError(f"listed twice: {repeated}")
        return self

    @model_validator(mode="after")
    def _mode_is_consistent(self) -> Self:
        if self.is_unaligned != (self.mode == "unaligned"):
            raise ValueError(f"is_unaligned is {self.is_unaligned} but the mode is {self.mode}")
        if self.inflight_data and not self.is_unaligned:
            raise ValueError("an aligned checkpoint has no in-flight data")
        return self

    @model_validator(mode="after")
    def _fingerprint_is_of_the_description(self) -> Self:
        digests = {op: fingerprint_of(text) for op, text in self.operators_description.items()}
        if digests != self.fingerprint:
            raise ValueError("the fingerprint is not that of the operators' description")
        if unknown := sorted(self.parallelism.keys() - self.fingerprint.keys()):
            raise ValueError(f"operators without description: {unknown}")
        return self

    def files(self) -> tuple[FileRef, ...]:
        """Every object that has to be whole for this checkpoint to be restorable."""
        states = tuple(entry.state for entry in self.subtasks if entry.state is not None)
        return states + self.inflight_data

    @property
    def size_bytes(self) -> int:
        """Bytes of all files together, without the manifest."""
        return sum(file.size_bytes for file in self.files())


CheckpointManifest = CheckpointManifestV1
"""The newest format, and the only one that is written."""


class Owner(Record):
    """The process that made a claim. All fields together are unique: no two claims are equal."""

    host_id: str = Field(description="Host name and process namespace, for the eye and for pids.")
    boot_id: str = Field(description="Changes when the machine starts; empty if unknown.")
    pid: Positive
    pid_start_time: Count = Field(description="Clock ticks since boot; tells reused pids apart.")
    claim_number: Positive = Field(description="Counts the claims that this process tried.")
    user: str


class GenerationClaim(Record):
    """Who owns the job from here on. Create-only; the newest generation wins."""

    format_version: Literal[1] = 1
    job: str
    generation: Positive
    owner: Owner
    actor: str
    reason: str
    code_version: str
    claimed_at_ms: int


class GenerationBase(Record):
    """What a generation starts from; None is a fresh start. Create-only.

    ``closed_by`` is set when a later generation found the record missing and wrote it: the
    generation never started and constrains nothing.
    """

    format_version: Literal[1] = 1
    generation: Positive
    base_checkpoint_id: Positive | None
    closed_by: Positive | None = None

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
    at_ms: int
    progress: JsonObject = {}


class GenerationEnd(Record):
    """The generation stopped by itself and writes nothing any more."""

    format_version: Literal[1] = 1
    generation: Positive
    outcome: str
    reason: str


class TriggerRecord(Record):
    """Reserves a checkpoint id for one generation."""

    format_version: Literal[1] = 1
    checkpoint_id: Positive
    generation: Positive
    kind: CheckpointKind
    triggered_at_ms: int


class CommitRecord(Record):
    """The output of this checkpoint, and of all before it, is visible."""

    format_version: Literal[1] = 1
    checkpoint_id: Positive
    generation: Positive
    committed_at_ms: int
    committables: dict[str, Count] = Field(default={}, description="Number per sink.")


class SubtaskNumbers(Record):
    """What one operator subtask contributed, for the history."""

    operator_id: str
    subtask_index: Count
    size_bytes: Count
    row_count: Count
    sync_ms: float
    async_ms: float


Outcome = Literal["completed", "declined", "expired", "subsumed", "aborted"]


class HistoryRecord(Record):
    """How one attempt at a checkpoint ended."""

    format_version: Literal[1] = 1
    checkpoint_id: Positive
    generation: Positive
    kind: CheckpointKind
    outcome: Outcome
    reason: str
    triggered_at_ms: int
    ended_at_ms: int
    duration_ms: float
    size_bytes: Count = 0
    mode: AlignmentMode = "aligned"
    alignment_ms_max: float | None = None
    subtasks: tuple[SubtaskNumbers, ...] = ()


R = TypeVar("R", bound=Record)
_MANIFEST_VERSIONS: dict[int, type[CheckpointManifestV1]] = {1: CheckpointManifestV1}


def fingerprint_of(description: Mapping[str, JsonValue]) -> str:
    """Digest of an operator's description: equal descriptions, in any order of keys, are equal.

    >>> fingerprint_of({"a": 1, "b": 2}) == fingerprint_of({"b": 2, "a": 1})
    True
    """
    canonical = json.dumps(description, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def parse_manifest(data: bytes) -> CheckpointManifest:
    """Read a manifest of any released version.

    Raises:
        CorruptCheckpointError: no JSON, a version this Laminar does not know, or fields that
            contradict each other. Fall back to an older checkpoint.
    """
    version = _version_of(data)
    # JSON's true and 1.0 equal 1 in Python, but no Laminar ever wrote them.
    record_type = _MANIFEST_VERSIONS.get(version) if type(version) is int else None
    if record_type is None:
        raise _unreadable(
            f"manifest format {version!r} is not known, this Laminar reads "
            f"{sorted(_MANIFEST_VERSIONS)}: use the version that wrote it"
        )
    return parse_record(record_type, data)


def parse_record(record_type: type[R], data: bytes) -> R:
    """Read one record.

    Raises:
        CorruptCheckpointError: no JSON, or not such a record.
    """
    try:
        return record_type.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        problem = f"{where}: {first['msg']}" if where else first["msg"]
        raise _unreadable(f"not readable as {record_type.__name__} ({problem})") from error


def _version_of(data: bytes) -> JsonValue:
    try:
        value = from_json(data)
    except ValueError as error:
        raise _unreadable(f"the manifest is no JSON ({error})") from error
    return value.get("format_version") if isinstance(value, dict) else None


def _unreadable(message: str) -> CorruptCheckpointError:
    return CorruptCheckpointError(ErrorCode.MANIFEST_UNREADABLE, message)
