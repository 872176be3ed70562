"""Events and effects of the alignment machine."""

from dataclasses import dataclass

from laminar_core.protocol.types import (
    AlignmentMode,
    ChannelId,
    CheckpointBarrier,
    CheckpointId,
    DeclineCause,
)

# --- events -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BarrierArrived:
    """A barrier entered the channel's input queue; data may be queued ahead of it."""

    channel: ChannelId
    barrier: CheckpointBarrier


@dataclass(frozen=True, slots=True)
class BarrierReached:
    """Everything ahead of the barrier has been processed."""

    channel: ChannelId
    barrier: CheckpointBarrier


@dataclass(frozen=True, slots=True)
class EndArrived:
    """The end of the channel entered its input queue."""

    channel: ChannelId


@dataclass(frozen=True, slots=True)
class EndReached:
    """Everything on the channel has been processed."""

    channel: ChannelId


@dataclass(frozen=True, slots=True)
class CancelReceived:
    """Upstream gave the checkpoint up and will not send its barrier on this channel."""

    channel: ChannelId
    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True)
class CheckpointTriggered:
    """The coordinator asks subtasks without running inputs for a snapshot."""

    barrier: CheckpointBarrier


@dataclass(frozen=True, slots=True)
class AlignmentTimedOut:
    """The checkpoint's alignment budget is spent, by the coordinator's clock."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True)
class CheckpointAborted:
    """The coordinator gave the checkpoint up."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True)
class SnapshotFailed:
    """This subtask could not write its part."""

    checkpoint_id: CheckpointId
    reason: str


Event = (
    BarrierArrived
    | BarrierReached
    | EndArrived
    | EndReached
    | CancelReceived
    | CheckpointTriggered
    | AlignmentTimedOut
    | CheckpointAborted
    | SnapshotFailed
)


# --- effects ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TakeSnapshot:
    """Cut: send the barrier on, then snapshot; nothing may come in between.

    An aligned barrier goes to the tail of every output queue, an unaligned one to the head of
    those whose edge lets it overtake.
    """

    barrier: CheckpointBarrier
    mode: AlignmentMode


@dataclass(frozen=True, slots=True)
class CaptureChannel:
    """Copy what is queued ahead of the channel's barrier; if ``recording``, also what arrives."""

    checkpoint_id: CheckpointId
    channel: ChannelId
    recording: bool


@dataclass(frozen=True, slots=True)
class SealChannelState:
    """The channel's barrier arrived: its recording is complete."""

    checkpoint_id: CheckpointId
    channel: ChannelId


@dataclass(frozen=True, slots=True)
class SealInputs:
    """No input channel is open any more: acknowledge as soon as all parts are durable."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True)
class DiscardCheckpoint:
    """Drop captures and snapshots of this checkpoint; a write under way may be abandoned."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True)
class ForwardCancel:
    """Send a cancel marker on every output, so that receivers do not wait for our barrier."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True)
class DeclineCheckpoint:
    """Decline the checkpoint at the coordinator.

    ``cause`` decides whether it counts; ``reason`` is for people.
    """

    checkpoint_id: CheckpointId
    cause: DeclineCause
    reason: str


Effect = (
    TakeSnapshot
    | CaptureChannel
    | SealChannelState
    | SealInputs
    | DiscardCheckpoint
    | ForwardCancel
    | DeclineCheckpoint
)
