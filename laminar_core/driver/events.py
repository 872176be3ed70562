"""The events that a running job publishes: one record each, JSON on demand.

``time_ms`` is the driver's wall clock in milliseconds since 1970. The field ``event`` names the
record; ``laminar run --json`` prints one per line.
"""

from collections.abc import Callable
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from laminar_core.errors import BrokenLink
from laminar_core.protocol.types import CheckpointKind
from laminar_core.protocol.unaligned import UnalignedCheckpointMetrics
from laminar_core.protocol.waiting import WaitsFor
from laminar_core.records.bad_rows import NO_BAD_ROWS, BadRowTotals
from laminar_core.records.damage import DamagedFile
from laminar_core.records.operator_numbers import OperatorNumbers
from laminar_core.records.sink_numbers import SinkNumbers
from laminar_core.records.source_numbers import SourceNumbers


class _Event(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    time_ms: int


class RejectedCheckpoint(BaseModel):
    """A newer checkpoint that was not restored, and why."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    checkpoint_id: int
    reason: str


class StandbyWaiting(_Event):
    """A standby waits; published when it begins, and when the reason changes."""

    event: Literal["standby-waiting"] = "standby-waiting"
    generation: int | None
    """The newest generation of the job; None: it never ran."""
    reason: str
    is_warm: bool
    """Its Spark session is open."""


class StandbyTakesOver(_Event):
    """A standby claims the job; another one may be faster."""

    event: Literal["standby-takes-over"] = "standby-takes-over"
    generation: int
    """The generation that it follows."""
    reason: str


class StandbyEnded(_Event):
    """A standby has nothing to wait for any more."""

    event: Literal["standby-ended"] = "standby-ended"
    reason: str


class GenerationStarted(_Event):
    """The job is claimed and what it continues from is chosen."""

    event: Literal["generation-started"] = "generation-started"
    generation: int
    parallelism: int
    restored_checkpoint_id: int | None
    rejected: tuple[RejectedCheckpoint, ...] = ()
    rows_total: int | None
    """Rows of all sources, over the whole job; None if one is unbounded."""
    reset: tuple[str, ...] = ()
    """State that was dropped on request, line by line."""
    restored_workers: int | None = None
    """The number of workers of the checkpoint, if it is restored with another one."""


class RestoreProgressed(_Event):
    """Progress of reading the restored checkpoint; published by size, and at the end."""

    event: Literal["restore-progress"] = "restore-progress"
    generation: int
    files: int
    files_total: int
    size_bytes: int
    bytes_total: int
    percent: float


class WorkersRunning(_Event):
    """All workers are connected and begin."""

    event: Literal["workers-running"] = "workers-running"
    generation: int
    pids: tuple[int, ...]
    hosts: tuple[str, ...]


class DataFlowing(_Event):
    """The first rows of this generation have been processed."""

    event: Literal["data-flowing"] = "data-flowing"
    generation: int


class ProgressMade(_Event):
    """Totals over the whole job; they go back when a generation restores."""

    event: Literal["progress"] = "progress"
    rows_in: int
    rows_out: int
    rows_late: int
    bad_rows: BadRowTotals = Field(default=NO_BAD_ROWS, exclude_if=lambda totals: not totals)
    """Messages of sources that were no rows, and what became of them."""
    rows_total: int | None
    rows_per_s: float
    watermark_us: int | None
    unaligned: UnalignedCheckpointMetrics = UnalignedCheckpointMetrics()
    """Metrics of all subtasks in this generation."""
    uncommitted_checkpoints: int = 0
    """Completed checkpoints whose output waits for its commit."""
    commit_ms: float | None = None
    """Duration of the last commit, with all its attempts."""
    commit_retries: int = 0
    """Attempts of commits that failed in this generation."""
    fenced: int = 0
    """Attempts that failed because another driver had taken a sink over."""
    sources: dict[str, SourceNumbers] = Field(default={}, exclude_if=lambda found: not found)
    """By operator."""
    sinks: dict[str, SinkNumbers] = Field(default={}, exclude_if=lambda found: not found)
    """By operator; only sinks with a committer."""
    operators: dict[str, OperatorNumbers] = Field(default={}, exclude_if=lambda found: not found)
    """By operator, sources and sinks included, in this generation."""
    pending_checkpoints: int = Field(default=0, exclude_if=lambda count: not count)
    """Checkpoints under way."""


class OperatorAtWork(_Event):
    """An operator has been computing for long, and its worker does nothing else meanwhile."""

    event: Literal["operator-at-work"] = "operator-at-work"
    generation: int
    worker: int
    operator_id: str
    since_ms: int
    """The driver's wall clock when it began."""
    busy_ms: float


class OperatorBytes(BaseModel):
    """An operator's part of a checkpoint, over all workers."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    size_bytes: int
    """Bytes that a restore reads, without data in flight."""
    written_bytes: int
    """Bytes uploaded for it."""


class ChannelWait(BaseModel):
    """How long a barrier was missing on the channels from one sender to one vertex."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    vertex_id: str
    upstream: str
    """The vertex of the sender."""
    sender: int
    """The sender's worker."""
    barrier_ms: float
    """Time from the receiver's first barrier until this one was reached, of the slowest receiver.
    """


class CheckpointCompleted(_Event):
    """The checkpoint completed: its manifest is durable."""

    event: Literal["checkpoint-completed"] = "checkpoint-completed"
    checkpoint_id: int
    generation: int
    kind: CheckpointKind
    mode: str
    duration_ms: float
    alignment_ms: float
    sync_ms: float
    async_ms: float
    size_bytes: int
    """Bytes of all files that a restore reads."""
    written_bytes: int = 0
    """Bytes uploaded for it: changed state, and data in flight."""
    inflight_bytes: int = 0
    """The part of it that was in flight."""
    inflight_rows: int = 0
    bad_rows: dict[str, BadRowTotals] = Field(default={}, exclude_if=lambda found: not found)
    """By source, up to the checkpoint; only sources with any."""
    start_delay_ms: float = Field(default=0.0, exclude_if=lambda time: not time)
    """Longest time from the trigger until the first barrier reached a subtask."""
    operators: dict[str, OperatorBytes] = Field(default={}, exclude_if=lambda found: not found)
    """By operator."""
    channels: tuple[ChannelWait, ...] = Field(default=(), exclude_if=lambda found: not found)
    """The slowest channels, longest wait first; none where barriers overtook, or had one way."""


class MissingChannel(BaseModel):
    """A channel on which a barrier was missing: subtask ``sender`` of the vertex ``upstream``."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    upstream: str
    sender: int


class MissingSubtask(BaseModel):
    """A subtask that had not acknowledged a checkpoint when it expired."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    vertex_id: str
    subtask_index: int
    operators: tuple[str, ...]
    host: str
    waits_for: WaitsFor | None
    """None: its worker had not reported it."""
    channels: tuple[MissingChannel, ...] = ()
    """The first of those that it waited for."""
    channel_count: int = 0
    """Number of all channels that it waits for."""


class CheckpointFailed(_Event):
    """The checkpoint did not complete; the job continues."""

    event: Literal["checkpoint-failed"] = "checkpoint-failed"
    checkpoint_id: int
    generation: int
    kind: CheckpointKind
    outcome: str
    reason: str
    missing: tuple[MissingSubtask, ...] = ()
    """If it expired: the first subtasks that it waited for."""
    missing_count: int = 0
    """Number of all missing subtasks."""


class CleanUpFailed(_Event):
    """Files that nothing needs are still in the store: of an attempt, or of old checkpoints."""

    event: Literal["clean-up-failed"] = "clean-up-failed"
    checkpoint_id: int
    reason: str


class SplitsNotFound(_Event):
    """A source may have input that it does not read; the job continues with the rest."""

    event: Literal["splits-not-found"] = "splits-not-found"
    generation: int
    operator_id: str
    problem: str
    """Reported once as long as it lasts."""


class FilesDamaged(_Event):
    """Stored files are lost or damaged; what they held is in memory, and is written again."""

    event: Literal["files-damaged"] = "files-damaged"
    generation: int
    found_by: Literal["listing", "reading"]
    files: tuple[DamagedFile, ...]
    checkpoint_ids: tuple[int, ...]
    """Completed checkpoints that name one of them: they cannot be restored."""
    rewritten_operators: tuple[str, ...]
    """Operators that will write their whole state with the next checkpoint.

    That checkpoint then needs none of the damaged files.
    """


class StoreLost(_Event):
    """The store is not the one in which the job was claimed; nothing completes until it is back."""

    event: Literal["store-lost"] = "store-lost"
    generation: int
    code: Literal["store-gone", "store-replaced"]
    reason: str


class StoreBack(_Event):
    """The store of the job is there again."""

    event: Literal["store-back"] = "store-back"
    generation: int


class CommitDelayed(_Event):
    """A sink did not take the output of a checkpoint; it is tried again until it does.

    Published at the first attempt that fails, once for each checkpoint.
    """

    event: Literal["commit-delayed"] = "commit-delayed"
    checkpoint_id: int
    reason: str
    uncommitted_checkpoints: int
    """Completed checkpoints whose output waits, with this one."""


class NotEncrypted(_Event):
    """A reader of the cluster's network can get the workers' key from Spark's traffic."""

    event: Literal["not-encrypted"] = "not-encrypted"
    missing: tuple[str, ...]
    """Spark's settings that would prevent it."""


class SinkWarning(_Event):
    """A sink accepts the job, and says what may go wrong."""

    event: Literal["sink-warning"] = "sink-warning"
    sink: str
    warning: str


class ApplicationEnded(_Event):
    """The Spark application of a driver that died is over, and its cores are free."""

    event: Literal["application-ended"] = "application-ended"
    generation: int
    """The generation whose claim names it."""
    application_id: str
    master: str


class ApplicationLeft(_Event):
    """The Spark application of an earlier driver may still hold cores of the cluster."""

    event: Literal["application-left"] = "application-left"
    generation: int
    application_id: str
    master: str
    reason: str
    """Why it was not ended, and what to do."""


class ThresholdTooLow(_Event):
    """Many checkpoints in a row waited for the alignment timeout, and overtook then."""

    event: Literal["threshold-too-low"] = "threshold-too-low"
    checkpoints: int
    alignment_timeout_ms: int


class CommandAnswered(_Event):
    """A command to the running job has a result."""

    event: Literal["command-answered"] = "command-answered"
    number: int
    command: Literal["checkpoint", "savepoint", "stop", "cancel", "mode"]
    actor: str
    outcome: str
    reason: str
    checkpoint_id: int | None
    savepoint: str | None


class UnreachablePair(BaseModel):
    """A worker whose greeting did not arrive at another one."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    sender: int
    sender_host: str
    receiver: int
    receiver_host: str
    address: str
    """The address at which the sender tries to reach the receiver."""


class GenerationFailed(_Event):
    """This execution is over; ``restart_in_ms`` is None if it was the last."""

    event: Literal["generation-failed"] = "generation-failed"
    generation: int
    code: str
    reason: str
    restart_in_ms: float | None
    unreachable: tuple[UnreachablePair, ...] = Field(default=(), exclude_if=lambda pairs: not pairs)
    """The first workers that cannot reach each other, if that was the cause."""
    unreachable_count: int = Field(default=0, exclude_if=lambda count: not count)
    """The number of all such pairs."""
    links: tuple[BrokenLink, ...] = Field(default=(), exclude_if=lambda links: not links)
    """Connections between workers that stayed away, if that is the reason."""
    damaged_file: DamagedFile | None = Field(default=None, exclude_if=lambda file: file is None)
    """The file of the restored checkpoint that a worker found damaged, if that is the reason."""
    traceback: str = Field(default="", exclude_if=lambda text: not text)
    """The traceback of a worker's error, if that is the reason and it was not Laminar's own."""


class Finished(_Event):
    """The job is over and everything is committed."""

    event: Literal["finished"] = "finished"
    outcome: Literal["finished", "stopped"]
    rows_in: int
    rows_out: int
    rows_late: int
    bad_rows: BadRowTotals = Field(default=NO_BAD_ROWS, exclude_if=lambda totals: not totals)
    checkpoints: int
    """Completed by this run, over all its generations."""


JobEvent = (
    GenerationStarted
    | RestoreProgressed
    | WorkersRunning
    | DataFlowing
    | ProgressMade
    | OperatorAtWork
    | CheckpointCompleted
    | CheckpointFailed
    | CleanUpFailed
    | SplitsNotFound
    | FilesDamaged
    | StoreLost
    | StoreBack
    | CommitDelayed
    | NotEncrypted
    | SinkWarning
    | ApplicationEnded
    | ApplicationLeft
    | ThresholdTooLow
    | CommandAnswered
    | GenerationFailed
    | Finished
    | StandbyWaiting
    | StandbyTakesOver
    | StandbyEnded
)
"""Any of the events."""
JobListener = Callable[[JobEvent], None]
"""A function that receives every event of a job."""


def ignore(event: JobEvent) -> None:
    """Ignore the event."""
    del event
