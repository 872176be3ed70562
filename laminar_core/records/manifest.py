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
from typing import Annotated, Literal, Self, TypeVar

from pydantic import Field, JsonValue, ValidationError, model_validator

from laminar_core.errors import CorruptCheckpointError, ErrorCode
from laminar_core.protocol.edges import PartitioningKind, may_overtake
from laminar_core.protocol.types import CheckpointKind, ResolvedMode
from laminar_core.records.actor import ActorKind, Attributed, kind_by_name
from laminar_core.records.audit_ref import Audited, AuditRef
from laminar_core.records.file_parts import FilePart, problem_of
from laminar_core.records.limits import FILE_BYTES_MAX, ITEMS_MAX, PATH_LENGTH_MAX
from laminar_core.records.partial_reset import PartialReset
from laminar_core.records.paths import Direction
from laminar_core.records.record import (
    CheckpointNumber,
    Count,
    DurationMs,
    FileBytes,
    FileRef,
    JsonObject,
    Many,
    Parallelism,
    PerOperator,
    Positive,
    Prose,
    Record,
    Sealed,
    Sha256,
    TimeMs,
    TimeUs,
    why_beyond_limits,
)
from laminar_core.records.savepoint_use import SavepointUse
from laminar_core.records.seal import unseal
from laminar_core.records.segment import SegmentRef, TableName, total_bytes, total_rows
from laminar_core.records.spark_application import SparkApplication

_MISSING_MAX = 1_000
_NAMED_MAX = 20
_PROBLEM_LENGTH_MAX = 500
"""Bounds of a message about missing subtasks: how many are counted, how many named, its length."""


class SubtaskEntry(Record):
    """One operator subtask's part of a checkpoint."""

    operator_id: str
    subtask_index: Count
    segments: Many[SegmentRef] = Field(
        default=(), description="Those of a table, merged in this order, are its rows."
    )
    expired_us: Annotated[dict[TableName, TimeUs], Field(max_length=ITEMS_MAX)] = Field(
        default_factory=dict,
        exclude_if=lambda expired: not expired,
        description="Table -> rows that expire then or before are void, though they are listed.",
    )
    written_bytes: Count = Field(
        default=0, description="State that was uploaded since the checkpoint before."
    )
    properties: JsonObject = Field(default_factory=dict)
    committables: Many[JsonObject] = ()
    sync_ms: DurationMs
    async_ms: DurationMs

    @property
    def row_count(self) -> int:
        """The rows of all segments. Overlapping segments make it larger than the number of keys."""
        return total_rows(self.segments)

    @property
    def size_bytes(self) -> int:
        """The bytes of all segments, including those that an earlier checkpoint wrote."""
        return total_bytes(self.segments)


class ChannelEntry(Record):
    """Event time of one input channel at the cut, to be restored before anything is replayed."""

    input_id: Count
    watermark_us: TimeUs | None
    idle: bool


SLOWEST_CHANNELS_MAX = 4
"""Channels grow with the square of the workers; per subtask so many are named, the slowest."""


class ChannelAlignment(Record):
    """How long the barrier took to reach a subtask on one of its input channels."""

    input_id: Count
    upstream: str = Field(description="vertex_id of the sender.")
    sender: Count = Field(description="Subtask of the upstream vertex.")
    barrier_ms: DurationMs | None = Field(
        description="From the subtask's first barrier until this one was reached; None: overtaken."
    )


class AlignmentEntry(Record):
    """How one subtask of a vertex aligned.

    ``switched`` includes a subtask whose barrier the timeout moved to the head of an output queue.
    ``finished``: its input had ended and was flushed; a restore does not read a finished source
    again. Elements left in its output queues may be overtaken like any others.
    """

    vertex_id: str
    subtask_index: Count
    mode: ResolvedMode
    start_delay_ms: DurationMs
    alignment_ms: DurationMs
    watermark_us: TimeUs | None
    channels: Many[ChannelEntry] = ()
    finished: bool = False
    slowest_channels: tuple[ChannelAlignment, ...] = Field(
        default=(),
        max_length=SLOWEST_CHANNELS_MAX,
        exclude_if=lambda channels: not channels,  # Written as before where none is named.
        description="Slowest first; none where there is one channel, or that are not known.",
    )


class EdgeRef(Record):
    """An edge by what is stable about it; two vertices can be joined by several (PROTOCOL 10).

    ``feedback``: back to the head of a loop, so logged at *every* cut, also an aligned one.
    """

    upstream: str = Field(description="vertex_id of the sender.")
    downstream: str = Field(description="vertex_id of the receiver.")
    input_index: Count = Field(description="Position among the edges into the receiver.")
    feedback: bool = False


class EdgeEntry(EdgeRef):
    """An edge of the pipeline, and how it divides rows among the subtasks of the receiver."""

    partitioning: PartitioningKind
    loop: str | None = Field(
        default=None, description="The loop that both ends are in, named after its first head."
    )

    @property
    def may_overtake(self) -> bool:
        """Whether an unaligned barrier may overtake the data on it."""
        return may_overtake(self.partitioning, self.loop)


class InflightEntry(Record):
    """Elements that were in flight on one channel at the cut, and their place in a file.

    A file has the elements of many channels. Length and digest are those of the part.
    ``operator_id`` is the first operator of the receiving vertex for ``input``, the last one of the
    sending vertex for ``output``. ``subtask_index`` is the owner of the queue, ``input_id`` the
    number of the channel there.
    """

    path: str = Field(description="One of inflight_files.", max_length=PATH_LENGTH_MAX)
    offset: FileBytes = Field(description="Of the part's first byte.")
    size_bytes: Annotated[int, Field(ge=1, le=FILE_BYTES_MAX)]
    sha256: Sha256
    operator_id: str
    direction: Direction
    subtask_index: Count
    input_id: Count
    edge: EdgeRef
    sender: Count = Field(description="Subtask of the edge's upstream vertex.")
    receiver: Count = Field(description="Subtask of the edge's downstream vertex.")
    event_count: Count = Field(description="Batches, watermarks and idle marks.")
    row_count: Count

    @model_validator(mode="after")
    def _was_in_the_queue_of_one_end(self) -> Self:
        recorder = "receiver" if self.direction == "input" else "sender"
        if self.subtask_index != (self.receiver if recorder == "receiver" else self.sender):
            raise ValueError(f"an {self.direction} queue must be recorded by its {recorder}")
        return self

    @property
    def end(self) -> int:
        """Return the offset of the first byte behind the part."""
        return self.offset + self.size_bytes

    @property
    def channel(self) -> str:
        """Return the end of the channel in words, for messages."""
        where = f"{self.direction} {self.input_id} of {self.operator_id}"
        ends = f"from {self.edge.upstream} {self.sender} to {self.edge.downstream} {self.receiver}"
        return f"{where} subtask {self.subtask_index}, {ends}"

    @property
    def queue(self) -> tuple[str, int, int, int, Direction]:
        """Return the identity of the queue: no two parts of a checkpoint have the same."""
        edge = self.edge
        return edge.downstream, edge.input_index, self.receiver, self.sender, self.direction


class DiscoveryEntry(Record):
    """The state of a source's discovery when the checkpoint's trigger was sent.

    The splits themselves are in the positions of the source's subtasks.
    """

    state: JsonObject = Field(description="Opaque: the source continues its discovery from it.")
    next_split_id: Count
    complete: bool = Field(description="Nothing more will ever be found.")


class CarriedOperator(Record):
    """An operator that the pipeline no longer has, and that took no part in this checkpoint.

    Its entries are those of an earlier checkpoint. It continues with them when its source returns.
    """

    source: str = Field(description="The removed source that it is, or that it was chained to.")
    checkpoint_id: CheckpointNumber = Field(description="The last checkpoint that it took part in.")


class CheckpointManifest(Sealed):
    """A completed checkpoint, in format 6, the newest. Creating this object completes it.

    ``manifest_versions`` reads all formats.
    """

    format_version: Literal[6] = 6
    job: str
    generation: Positive = Field(description="Fencing token of the writer.")
    checkpoint_id: CheckpointNumber
    parent_checkpoint_id: CheckpointNumber | None = Field(
        description="None: the first of a fresh start."
    )
    kind: CheckpointKind
    mode: ResolvedMode
    is_unaligned: bool = Field(default=False, description="The mode is not aligned.")
    triggered_at_ms: TimeMs
    completed_at_ms: TimeMs
    duration_ms: DurationMs
    max_parallelism: Parallelism
    parallelism: PerOperator[Parallelism] = Field(description="operator_id -> number of subtasks.")
    fingerprint: PerOperator[Sha256] = Field(
        description="operator_id -> digest of its description."
    )
    operators_description: PerOperator[JsonObject] = Field(description="Explains a mismatch.")
    edges: Many[EdgeEntry] = Field(
        default=(), description="Between vertices, in the order of the plan; inside one are none."
    )
    code_version: str
    subtasks: Many[SubtaskEntry]
    alignment: Many[AlignmentEntry] = ()
    inflight_files: Many[FileRef] = Field(default=(), description="What workers wrote together.")
    inflight_data: Many[InflightEntry] = ()
    discovery: PerOperator[DiscoveryEntry] = Field(
        default_factory=dict,
        description="Per source; a source without one was pinned, with nothing more to find.",
    )
    carried: PerOperator[CarriedOperator] = Field(
        default_factory=dict,
        exclude_if=lambda carried: not carried,
        description="Sources that were removed, and operators chained to them.",
    )
    imported_from: str | None = Field(default=None, description="URI of a savepoint.")
    audited: Audited = None

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
        parts = (FilePart(e.path, e.offset, e.size_bytes, e.channel) for e in self.inflight_data)
        if (problem := problem_of(sizes, parts)) is not None:
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
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        problem = _in_one_line(f"{where}: {first['msg']}" if where else first["msg"])
        raise unreadable(f"not readable as {record_type.__name__} ({problem})") from error


def _in_one_line(problem: str) -> str:
    """Names in a record can be anything, and a message shows them."""
    return " ".join(problem[:_PROBLEM_LENGTH_MAX].split())


def unreadable(message: str) -> CorruptCheckpointError:
    """Return the exception for a record that differs from what was written."""
    return CorruptCheckpointError(ErrorCode.MANIFEST_UNREADABLE, message)
