"""Events and effects of the coordinator machine."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from laminar_core.protocol.types import (
    CheckpointBarrier,
    CheckpointId,
    CheckpointKind,
    DeclineCause,
)


class SubtaskId(NamedTuple):
    """One subtask of one vertex of the plan."""

    vertex_id: str
    subtask_index: int


class Outcome(StrEnum):
    """The only ways a checkpoint can end."""

    COMPLETED = "completed"
    DECLINED = "declined"
    EXPIRED = "expired"
    SUBSUMED = "subsumed"
    ABORTED = "aborted"


# --- events; every one may carry the time -------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed. Due at ``next_wakeup_ms``; more often is harmless."""


@dataclass(frozen=True, slots=True)
class CheckpointRequested:
    """A checkpoint was requested; ``request_id`` identifies the requester for the answer.

    ``once``: a stop checkpoint that fails is not tried again, and the job continues.
    """

    kind: CheckpointKind
    request_id: str
    once: bool = False


@dataclass(frozen=True, slots=True)
class StopRevoked:
    """The stop checkpoint completed, but the job continues instead of ending with it."""


@dataclass(frozen=True, slots=True)
class AlignmentTimeoutChanged:
    """A new alignment timeout for later checkpoints. None: always aligned. 0: unaligned at once."""

    alignment_timeout_ms: int | None


@dataclass(frozen=True, slots=True)
class IdReserved:
    """The trigger record is durable: the id is ours."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True)
class IdTaken:
    """Another generation owns this id."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """These subtasks' parts are durable."""

    checkpoint_id: CheckpointId
    subtasks: frozenset[SubtaskId]


@dataclass(frozen=True, slots=True)
class Declined:
    """A subtask has no part for this checkpoint. ``reason`` is for people."""

    checkpoint_id: CheckpointId
    cause: DeclineCause
    reason: str


@dataclass(frozen=True, slots=True)
class Published:
    """The manifest is durable, and no newer generation had been claimed by then."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True)
class StoreFailed:
    """Reserving or publishing did not succeed inside its deadline."""

    checkpoint_id: CheckpointId
    reason: str


@dataclass(frozen=True, slots=True)
class CommitsPending:
    """The current number of completed checkpoints whose output waits for its commit."""

    count: int


@dataclass(frozen=True, slots=True)
class DeletionsPending:
    """The current number of given-up checkpoints with cleanup left; see ``given_up``."""

    count: int


Event = (
    Tick
    | CheckpointRequested
    | StopRevoked
    | AlignmentTimeoutChanged
    | IdReserved
    | IdTaken
    | Acknowledged
    | Declined
    | Published
    | StoreFailed
    | CommitsPending
    | DeletionsPending
)


# --- effects ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReserveId:
    """Create the trigger record; answer ``IdReserved``, ``IdTaken`` or ``StoreFailed``."""

    checkpoint_id: CheckpointId
    kind: CheckpointKind
    triggered_ms: int


@dataclass(frozen=True, slots=True)
class InjectBarrier:
    """Send the trigger to every worker. Must follow the durable reservation."""

    barrier: CheckpointBarrier


@dataclass(frozen=True, slots=True)
class TimeOutAlignment:
    """Notify every worker that the alignment budget is spent: barriers overtake from now on."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True)
class PublishManifest:
    """Write the manifest; answer ``Published`` or ``StoreFailed``."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True)
class CommitCheckpoint:
    """Commit the checkpoint's output, retrying until it succeeds, then notify the workers."""

    checkpoint_id: CheckpointId
    kind: CheckpointKind


@dataclass(frozen=True, slots=True)
class AbortCheckpoint:
    """Notify every worker that this checkpoint is aborted."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True)
class RecordOutcome:
    """Write the checkpoint's history entry."""

    checkpoint_id: CheckpointId
    kind: CheckpointKind
    outcome: Outcome
    reason: str
    triggered_ms: int
    ended_ms: int
    missing: tuple[SubtaskId, ...] = ()
    """If it expired: who had not acknowledged it, in order."""


@dataclass(frozen=True, slots=True)
class DiscardParts:
    """Delete parts that a late acknowledgement named; no manifest will ever list them."""

    checkpoint_id: CheckpointId
    subtasks: frozenset[SubtaskId]


@dataclass(frozen=True, slots=True)
class AnswerRequest:
    """Report to the requester how the checkpoint ended."""

    request_id: str
    checkpoint_id: CheckpointId | None
    outcome: Outcome
    reason: str


@dataclass(frozen=True, slots=True)
class HoldSources:
    """Notify every worker: sources pause, or read on, because commits wait or wait no longer."""

    held: bool


@dataclass(frozen=True, slots=True)
class ResumeSources:
    """Notify every worker that the job continues after the stop checkpoint: sources read on."""


@dataclass(frozen=True, slots=True)
class FailJob:
    """More consecutive failures than tolerated."""

    reason: str


Effect = (
    ReserveId
    | InjectBarrier
    | TimeOutAlignment
    | PublishManifest
    | CommitCheckpoint
    | AbortCheckpoint
    | RecordOutcome
    | DiscardParts
    | AnswerRequest
    | HoldSources
    | ResumeSources
    | FailJob
)
