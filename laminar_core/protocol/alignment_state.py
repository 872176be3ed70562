"""State of the alignment machine: one subtask's view of the checkpoints that pass through it."""

from dataclasses import dataclass
from enum import Enum, auto

from laminar_core.protocol.types import ChannelId, CheckpointBarrier, CheckpointId

NOTHING_SEEN = CheckpointId(0)


@dataclass(frozen=True, slots=True)
class Gate:
    """The part of the state that outlives a single checkpoint."""

    open: frozenset[ChannelId]
    """Channels that are still running: the end of their input has not been reached."""
    ending: frozenset[ChannelId] = frozenset()
    """Open channels whose end has arrived and waits behind data in their queue."""
    newest_id: CheckpointId = NOTHING_SEEN
    """Highest checkpoint started, cut or cancelled here; lower ones are stale."""
    abort_notices: frozenset[CheckpointId] = frozenset()
    """Aborted before their barrier came."""
    triggered: CheckpointBarrier | None = None
    """Newest trigger. It starts the cut itself when all inputs have ended."""
    timed_out_id: CheckpointId = NOTHING_SEEN
    """Newest checkpoint whose alignment budget is spent; its barrier may not have arrived yet."""
    feedback: frozenset[ChannelId] = frozenset()
    """Channels that close a loop (PROTOCOL section 8)."""
    aligned_only: frozenset[ChannelId] = frozenset()
    """Channels that no barrier may overtake."""

    @property
    def awaited(self) -> frozenset[ChannelId]:
        """Return the open channels from outside every loop: only their barriers are waited for."""
        return self.open - self.feedback


@dataclass(frozen=True, slots=True)
class Idle:
    """No checkpoint is pending here."""

    gate: Gate


@dataclass(frozen=True, slots=True)
class Aligning:
    """Waiting until the barrier has been reached on every channel of ``target``."""

    gate: Gate
    barrier: CheckpointBarrier
    target: frozenset[ChannelId]
    unaligned_barrier: CheckpointBarrier | None = None
    """The barrier to send if this checkpoint overtakes; None if it never may."""
    aligned: frozenset[ChannelId] = frozenset()
    arrived: frozenset[ChannelId] = frozenset()
    """Channels whose barrier is in the queue, but not yet reached.

    Nothing more is recorded on them if the checkpoint becomes unaligned.
    """
    overtaking: bool = False
    """Turned unaligned; only aligned-only channels are still waited for."""


@dataclass(frozen=True, slots=True)
class Recording:
    """The cut is made; the channels in ``pending`` are recorded until their barrier arrives."""

    gate: Gate
    barrier: CheckpointBarrier
    pending: frozenset[ChannelId]


State = Idle | Aligning | Recording


def initial(
    channels: frozenset[ChannelId],
    newest_id: CheckpointId = NOTHING_SEEN,
    *,
    feedback: frozenset[ChannelId] = frozenset(),
    aligned_only: frozenset[ChannelId] = frozenset(),
) -> State:
    """Return the first state of a subtask with these channels.

    Checkpoint ids up to ``newest_id`` are stale.
    """
    assert feedback | aligned_only <= channels, "special channels are channels"
    gate = Gate(channels, newest_id=newest_id, feedback=feedback, aligned_only=aligned_only)
    return Idle(gate)


class Disposition(Enum):
    """May the runtime take the next batch or watermark of a channel?"""

    PROCESS = auto()
    HOLD = auto()


def disposition(state: State, channel: ChannelId) -> Disposition:
    """Return whether a channel may be read.

    Held data stays in its queue, so none is lost.
    """
    if isinstance(state, Aligning) and channel in state.aligned:
        return Disposition.HOLD
    return Disposition.PROCESS


def records_arrivals(state: State, channel: ChannelId) -> bool:
    """Return whether data arriving on the channel now belongs to the pending checkpoint."""
    return isinstance(state, Recording) and channel in state.pending
