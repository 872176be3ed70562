"""What the coordinator machine is told, and what it orders: events in, effects out."""

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
    """Time passed. Due whenever ``next_wakeup_ms`` says so; more often is harmless."""


@dataclass(frozen=True, slots=True)
class CheckpointRequested:
    """Somebody asks for a checkpoint; ``request_id`` names who gets the answer.

    ``once``: a stop checkpoint that fails is not tried again, and the job goes on.
    """

    kind: CheckpointKind
    request_id: str
    once: bool = False


@dataclass(frozen=True, slots=True)
class StopRevoked:
    """The stop checkpoint completed, and the job does not end with it: it goes on."""


@dataclass(frozen=True, slots=True)
class AlignmentTimeoutChanged:
    """For checkpoints from now on. None: always aligned. 0: unaligned from the start."""

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
class DeletionsPending:
    """So many given-up checkpoints are not over; ``given_up`` counts them."""

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
    """Tell every worker that the alignment budget is spent: barriers overtake from now on."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True)
class PublishManifest:
    """Write the manifest; answer ``Published`` or ``StoreFailed``."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True)
class CommitCheckpoint:
    """The checkpoint is decided: commit its output, retrying for ever, then tell the workers."""

    checkpoint_id: CheckpointId
    kind: CheckpointKind


@dataclass(frozen=True, slots=True)
class AbortCheckpoint:
    """Tell every worker to give this checkpoint up."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True)
class RecordOutcome:
    """Write the history entry."""

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
    """A late acknowledgement named these parts; nobody will ever use them."""

    checkpoint_id: CheckpointId
    subtasks: frozenset[SubtaskId]


@dataclass(frozen=True, slots=True)
class AnswerRequest:
    """Tell whoever asked how it ended."""

    request_id: str
    checkpoint_id: CheckpointId | None
    outcome: Outcome
    reason: str


@dataclass(frozen=True, slots=True)
class ResumeSources:
    """Tell every worker that the job does not end with the stop checkpoint: read on."""


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
    | ResumeSources
    | FailJob
)
