"""Messages between workers and the coordinator: small JSON records, validated on both ends.

Every message carries the generation of its sender; a receiver drops messages of another one.
"""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Annotated, Literal, TypeVar

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from laminar_core.codec.arrow import decode_table, encode_table
from laminar_core.errors import BrokenLink, CorruptCheckpointError, ErrorCode, ProtocolError
from laminar_core.link.unix_sockets import NearEndpoint
from laminar_core.link.versions import Versions
from laminar_core.objectstore.request_counts import RequestCounts
from laminar_core.protocol.termination import LoopCounts
from laminar_core.protocol.types import (
    CheckpointBarrier,
    CheckpointId,
    CheckpointKind,
    DeclineCause,
)
from laminar_core.protocol.unaligned import UnalignedCheckpointMetrics
from laminar_core.protocol.waiting import WaitsFor
from laminar_core.records.bad_rows import NO_BAD_ROWS, BadRowTotals
from laminar_core.records.channel_entries import AlignmentEntry, InflightEntry
from laminar_core.records.damage import DamagedFile
from laminar_core.records.manifest_fields import SubtaskEntry
from laminar_core.records.record import FileRef
from laminar_core.records.source_numbers import SourceNumbers


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    generation: int
    worker: int = -1
    """Index of the worker that sends; -1 is the coordinator."""
    sequence: int | None = None
    """Number of the message at its sender; None: it may be lost."""
    confirmed: int = 0
    """Number of the receiver's numbered messages that arrived without a gap."""


# --- worker to coordinator ----------------------------------------------------------------------


class Register(_Message):
    """The worker's data socket is bound; it waits for its peers."""

    type: Literal["register"] = "register"
    pid: int
    host: str
    endpoint: str
    public_key: str
    near: NearEndpoint | None = None
    """Where workers of the same host can send to; None: only at ``endpoint``."""
    claim_sha256: str | None
    """Digest of the generation's claim as this worker finds it in the store: it sees the same one
    as the driver. None: there is none."""
    versions: Versions
    open_files_max: int | None
    """Files that the process may open; None: any number."""


class GreetingsMissing(_Message):
    """The workers whose greetings have not arrived here yet; none: all have."""

    type: Literal["greetings-missing"] = "greetings-missing"
    senders: tuple[int, ...]


class Restoring(_Message):
    """The worker runs, and reads its part of the state; it registers when it has."""

    type: Literal["restoring"] = "restoring"
    files: int
    files_total: int
    size_bytes: int
    bytes_total: int


class SourceProgress(BaseModel):
    """How far one source is on one worker."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    rows_unread: int
    """Rows left to read, in splits whose length is known."""
    splits_added: int = 0
    """Splits that came while the worker ran; ``rows_unread`` includes them."""
    numbers: SourceNumbers = SourceNumbers()
    slowest_us: int | None = None
    """Event time of its slowest split that can be read; None: there is none, or it is not asked."""


class OperatorWork(BaseModel):
    """Totals of an operator in one worker, since the start of its generation."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    rows_in: int = 0
    rows_out: int = 0
    busy_ms: float = 0.0
    backpressured_ms: float = 0.0
    """Time for which an output of its vertex was full, so that the vertex took nothing."""
    queued_batches: int | None = None
    """Batches that wait at the inputs now; None: its input comes from the same vertex."""
    rows_expired: int = 0
    """Rows and values of its state that expired, in the whole history of the job."""


class Progress(_Message):
    """Sign of life of the loop. Row counts are totals of the job's history."""

    type: Literal["progress"] = "progress"
    rows_in: int
    rows_out: int
    rows_late: int
    bad_rows: BadRowTotals = NO_BAD_ROWS
    flowing: bool
    """Rows were read here in this generation, or rows that had been in flight were replayed."""
    watermark_us: int | None
    unaligned: UnalignedCheckpointMetrics = UnalignedCheckpointMetrics()
    drained: bool
    """Every input has ended here and everything is flushed."""
    given_up: int = 0
    """Given-up checkpoints whose parts this worker has not finished."""
    requests: RequestCounts | None = None
    """The worker's requests to the store since its start; None: not counted."""
    sources: Mapping[str, SourceProgress] = {}
    """By operator, all sources."""
    operators: Mapping[str, OperatorWork] = {}
    """By operator, all operators, sources and sinks; empty: as they were in the last report."""
    at_ms: float = 0.0
    """The worker's monotonic clock, by which the times of ``operators`` are compared."""


class Alive(_Message):
    """Sign of life of the worker's process, sent beside its loop by a thread of its own."""

    type: Literal["alive"] = "alive"
    operator_id: str = ""
    """The operator at work; empty: none is."""
    operator_ms: float = 0.0
    """How long it has been there."""
    step_ms: float = 0.0
    """The loop has been in its present step for so long; 0: it waits."""


class WaitingChannel(BaseModel):
    """A channel on which a barrier is missing, by its sender."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    upstream: str
    sender: int


class WaitingVertex(BaseModel):
    """Conditions that the worker's subtask of a vertex waits for.

    ``channels`` are the first of them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    vertex_id: str
    waits_for: WaitsFor
    channels: tuple[WaitingChannel, ...] = ()
    channel_count: int = 0


class WaitingCheckpoint(_Message):
    """A checkpoint has been under way here for long; the next report replaces this one."""

    type: Literal["waiting"] = "waiting"
    checkpoint_id: CheckpointId
    vertices: tuple[WaitingVertex, ...]


class SnapshotAck(_Message):
    """All parts of this worker are durable."""

    type: Literal["snapshot-ack"] = "snapshot-ack"
    checkpoint_id: CheckpointId
    entries: tuple[SubtaskEntry, ...]
    alignment: tuple[AlignmentEntry, ...]
    inflight_files: tuple[FileRef, ...] = ()
    inflight: tuple[InflightEntry, ...] = ()


class SnapshotDecline(_Message):
    """This worker has no part for the checkpoint. ``reason`` is for people."""

    type: Literal["snapshot-decline"] = "snapshot-decline"
    checkpoint_id: CheckpointId
    cause: DeclineCause
    reason: str


class LoopReport(_Message):
    """The worker's counters of each loop, taken between two units of work."""

    type: Literal["loop-report"] = "loop-report"
    round_number: int
    loops: dict[str, LoopCounts]


class FileUnreadable(_Message):
    """A file that this worker needed for a merge is missing or damaged."""

    type: Literal["file-unreadable"] = "file-unreadable"
    operator_id: str
    file: FileRef


class WorkerFailed(_Message):
    """The worker cannot go on; it exits after this."""

    type: Literal["worker-failed"] = "worker-failed"
    code: str
    reason: str
    restart_helps: bool
    links: tuple[BrokenLink, ...] = ()
    """The connections that stayed away, if that is the reason."""
    damaged_file: DamagedFile | None = None
    """The file of the restored checkpoint that is damaged, if that is the reason."""
    traceback: str = ""
    """The traceback of an error that is not Laminar's own."""


# --- coordinator to worker ----------------------------------------------------------------------


class Peer(BaseModel):
    """The address where a worker receives data."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    endpoint: str
    public_key: str
    near: NearEndpoint | None = None
    host: str = ""


class Peers(_Message):
    """Everybody has registered: connect to all others, and greet them."""

    type: Literal["peers"] = "peers"
    peers: tuple[Peer, ...]


class Begin(_Message):
    """All greetings have arrived: begin to work."""

    type: Literal["begin"] = "begin"


class Announce(_Message):
    """A checkpoint whose barriers overtake is about to be triggered."""

    type: Literal["announce"] = "announce"
    checkpoint_id: CheckpointId


class Trigger(_Message):
    """Take a snapshot: sources cut now, the others when the barrier comes."""

    type: Literal["trigger"] = "trigger"
    checkpoint_id: CheckpointId
    kind: CheckpointKind
    created_ms: int
    alignment_timeout_ms: int | None
    unaligned: bool

    def barrier(self) -> CheckpointBarrier:
        """Return the barrier to inject."""
        return CheckpointBarrier(
            self.checkpoint_id,
            self.kind,
            self.created_ms,
            self.alignment_timeout_ms,
            self.unaligned,
        )


class AlignmentTimeout(_Message):
    """The checkpoint's alignment budget is spent: its barriers overtake from now on."""

    type: Literal["alignment-timeout"] = "alignment-timeout"
    checkpoint_id: CheckpointId


class Abort(_Message):
    """The checkpoint is aborted."""

    type: Literal["abort"] = "abort"
    checkpoint_id: CheckpointId


class Completed(_Message):
    """The checkpoint is complete and its output committed."""

    type: Literal["completed"] = "completed"
    checkpoint_id: CheckpointId


class Hold(_Message):
    """Sources pause, or read on: as much output waits for its commit as may wait, or less."""

    type: Literal["hold"] = "hold"
    held: bool


class Resume(_Message):
    """The job continues after a checkpoint that was meant to be its last."""

    type: Literal["resume"] = "resume"


class Renew(_Message):
    """Stored files of these operators are lost: write the whole state with the next checkpoint."""

    type: Literal["renew"] = "renew"
    operators: tuple[tuple[str, int], ...]
    """Pairs of operator and subtask."""

    def operators_at(self, subtask_index: int) -> frozenset[str]:
        """Return the operators whose subtask ``subtask_index`` must write its whole state."""
        return frozenset(operator for operator, index in self.operators if index == subtask_index)


class AddSplits(_Message):
    """Read these splits, too; or: you have all splits of this source.

    In order with ``Trigger``: a checkpoint contains the splits that were added before it.
    """

    type: Literal["add-splits"] = "add-splits"
    operator_id: str
    splits: str
    """A table of splits; see ``encode_splits``. Empty: none."""
    complete: bool
    """Nothing more will be added."""


class WatermarkTarget(_Message):
    """The event time of the slowest split of the job: splits too far ahead of it are held.

    It may be late: then splits are held for longer, or not yet.
    """

    type: Literal["watermark-target"] = "watermark-target"
    time_us: int | None
    """None: each worker goes by its own splits."""


class LoopWave(_Message):
    """A request for a ``LoopReport``, to find out whether a loop still contains data."""

    type: Literal["loop-wave"] = "loop-wave"
    round_number: int


class LoopsOver(_Message):
    """Nothing is left in these loops: their heads end."""

    type: Literal["loops-over"] = "loops-over"
    loops: tuple[str, ...]


class Ping(_Message):
    """The coordinator is alive."""

    type: Literal["ping"] = "ping"


class Finish(_Message):
    """The last checkpoint is committed: send the collected rows, and exit."""

    type: Literal["finish"] = "finish"


class Cancel(_Message):
    """The generation is over: exit at once."""

    type: Literal["cancel"] = "cancel"


ToCoordinator = (
    Register
    | GreetingsMissing
    | Restoring
    | Progress
    | Alive
    | WaitingCheckpoint
    | SnapshotAck
    | SnapshotDecline
    | LoopReport
    | FileUnreadable
    | WorkerFailed
)
CheckpointMessage = Trigger | AlignmentTimeout | Abort | Completed | Hold | Resume
LoopMessage = LoopWave | LoopsOver
SourceMessage = AddSplits | WatermarkTarget
StartMessage = Peers | Begin
ToWorker = (
    StartMessage
    | Announce
    | CheckpointMessage
    | Renew
    | SourceMessage
    | LoopMessage
    | Ping
    | Finish
    | Cancel
)
_TO_COORDINATOR = TypeAdapter[ToCoordinator](Annotated[ToCoordinator, Field(discriminator="type")])
_TO_WORKER = TypeAdapter[ToWorker](Annotated[ToWorker, Field(discriminator="type")])
M = TypeVar("M")


def encode_splits(splits: pa.Table) -> str:
    """Return a table of splits as text for a message."""
    return b64encode(encode_table(splits)).decode()


def decode_splits(text: str) -> pa.Table | None:
    """Return the table of splits; None if there is none.

    Raises:
        CorruptCheckpointError: it is no such table; both ends run the same Laminar.
    """
    if not text:
        return None
    try:
        data = b64decode(text, validate=True)
    except ValueError as error:
        raise CorruptCheckpointError(
            ErrorCode.STATE_UNREADABLE, f"not a table of splits: {error}"
        ) from error
    return decode_table(data)


def encode(message: ToCoordinator | ToWorker) -> bytes:
    """Return the message as JSON in UTF-8."""
    return message.model_dump_json().encode()


def decode_to_coordinator(data: bytes) -> ToCoordinator:
    """Read a worker's message.

    Raises:
        ProtocolError: it is none; both ends run the same Laminar, so this is a bug.
    """
    return _decode(_TO_COORDINATOR, data)


def decode_to_worker(data: bytes) -> ToWorker:
    """Read the coordinator's message.

    Raises:
        ProtocolError: it is none; both ends run the same Laminar, so this is a bug.
    """
    return _decode(_TO_WORKER, data)


def _decode(adapter: TypeAdapter[M], data: bytes) -> M:
    try:
        return adapter.validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ProtocolError(
            ErrorCode.ILLEGAL_EVENT, f"not a message ({where or 'JSON'}: {first['msg']})"
        ) from error
