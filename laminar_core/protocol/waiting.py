"""The reasons why a checkpoint is not complete at a subtask yet. For display only."""

from dataclasses import dataclass
from enum import StrEnum

from laminar_core.protocol.alignment_state import Aligning, Idle, Recording, State
from laminar_core.protocol.types import ChannelId, CheckpointId


class WaitsFor(StrEnum):
    """Why a subtask has not acknowledged a checkpoint yet."""

    BARRIERS = "barriers"
    """It has not reached the barrier on some input channels."""
    IN_FLIGHT = "in-flight"
    """The cut is made; the barrier has not arrived on some channels, which are recorded."""
    UPLOAD = "upload"
    """The cut is made, and what belongs to it is being written."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A checkpoint that is under way in a subtask, and the channels without its barrier."""

    checkpoint_id: CheckpointId
    waits_for: WaitsFor
    channels: frozenset[ChannelId]


def waiting(state: State) -> Waiting | None:
    """Return what the subtask waits for; None if no checkpoint is under way in its channels.

    A checkpoint that was triggered counts before its first barrier comes.
    """
    match state:
        case Aligning(barrier=barrier, target=target, aligned=aligned):
            return Waiting(barrier.checkpoint_id, WaitsFor.BARRIERS, target - aligned)
        case Recording(barrier=barrier, pending=pending):
            return Waiting(barrier.checkpoint_id, WaitsFor.IN_FLIGHT, pending)
        case Idle(gate):
            triggered = gate.triggered
            if triggered is None or triggered.checkpoint_id <= gate.newest_id:
                return None
            return Waiting(triggered.checkpoint_id, WaitsFor.BARRIERS, gate.awaited)
