"""Align the input channels of one subtask at the cut, or switch to unaligned.

The machine receives what happens on the subtask's input channels and answers with effects. The
caller carries these out in order, without letting a record, watermark or timer in between (PROTOCOL
section 2). The machine never sees the data: the runtime asks ``disposition`` before it takes a
batch from a channel and ``records_arrivals`` before it enqueues one.

There is one path. A checkpoint starts aligned, a timeout switches it to unaligned, and an unaligned
barrier is a timeout of zero (Flink, AbstractAlternatingAlignedBarrierHandlerState). The coordinator
decides about the timeout; a barrier that arrives after it switches on arrival.

Two kinds of channels are special. The queue of an *aligned-only* channel is never captured, so even
an unaligned cut waits until the channel's barrier is reached (PROTOCOL section 7). A *feedback*
channel closes a loop. No cut waits for its barrier, which mostly comes back after the cut; batches
that are on their way at the cut are recorded until it does (PROTOCOL section 8, FLIP-16). The
barrier comes back earlier only if it is of another head, which has already cut; data behind it is
then held.

A barrier is seen twice: it *arrives* when it enters the input queue, maybe behind data, and it is
*reached* when everything before it has been processed. Alignment counts barriers that were reached;
the recording of a channel ends when its barrier arrives. Closing the recording only when the
barrier is reached would save post-cut rows twice (ERRATA, table of document 000).

Invariants, checked by ``tests/protocol/test_alignment_model.py``:

I1  A checkpoint id is cut at most once, and ids of cuts strictly increase.
I2  At a cut, every record sent before its channel's barrier is either processed or captured
    (queued ahead of the barrier, or recorded until the barrier arrives), never both.
I3  No record behind a barrier that was reached is processed before the cut (``HOLD``).
I4  Nothing waits for a feedback channel, and an aligned-only channel is never captured.
I5  Nothing waits for ever: a channel that ends counts as its barrier, and an abort, a cancel
    marker or a newer barrier releases every channel.

Source: PROTOCOL sections 1 to 6; FLIP-76; FLIP-147; Carbone et al. 2015.
"""

from dataclasses import replace

from laminar_core.errors import ErrorCode, ProtocolError
from laminar_core.protocol.alignment_events import (
    AlignmentTimedOut,
    BarrierArrived,
    BarrierReached,
    CancelReceived,
    CaptureChannel,
    CheckpointAborted,
    CheckpointTriggered,
    DeclineCheckpoint,
    DiscardCheckpoint,
    Effect,
    EndArrived,
    EndReached,
    Event,
    ForwardCancel,
    SealChannelState,
    SealInputs,
    SnapshotFailed,
    TakeSnapshot,
)
from laminar_core.protocol.alignment_state import (
    NOTHING_SEEN,
    Aligning,
    Disposition,
    Gate,
    Idle,
    Recording,
    State,
    disposition,
    initial,
    records_arrivals,
)
from laminar_core.protocol.types import (
    AlignmentMode,
    ChannelId,
    CheckpointBarrier,
    CheckpointId,
    DeclineCause,
)

ABORT_NOTICES_MAX = 64
"""Abort notices remembered for barriers not seen yet; the oldest are forgotten first."""

Step = tuple[State, tuple[Effect, ...]]


def step(state: State, event: Event) -> Step:
    """Advance by one event. Pure: same arguments, same result, no I/O.

    Raises:
        ProtocolError: the event cannot happen on a FIFO channel; the state is intact.
    """
    match event:
        case AlignmentTimedOut(checkpoint_id):
            return _on_timeout(state, checkpoint_id)
        case BarrierArrived(channel, barrier):
            return _on_arrival(state, channel, barrier)
        case BarrierReached(channel, barrier):
            return _on_reached(state, channel, barrier)
        case EndArrived(channel):
            return _on_end_arrival(state, channel)
        case EndReached(channel):
            return _on_end_reached(state, channel)
        case CancelReceived(_, checkpoint_id):
            return _on_cancel(state, checkpoint_id)
        case CheckpointTriggered(barrier):
            return _on_trigger(state, barrier)
        case CheckpointAborted(checkpoint_id):
            return _on_abort_notice(state, checkpoint_id)
        case SnapshotFailed(checkpoint_id, reason):
            return _on_failure(state, checkpoint_id, reason)


# --- barriers -----------------------------------------------------------------------------------


def _on_arrival(state: State, channel: ChannelId, barrier: CheckpointBarrier) -> Step:
    if isinstance(state, Recording) and state.barrier.checkpoint_id == barrier.checkpoint_id:
        return _seal(state, channel)
    if channel not in state.gate.feedback and barrier.alignment_timeout_ms is None:
        return state, ()  # Can never overtake, so only reaching it counts.
    state, effects = _admit(state, barrier)
    if not isinstance(state, Aligning) or not _is_for(state, barrier):
        return state, effects
    state = replace(state, arrived=state.arrived | {channel})
    if not _overtakes(state.gate, barrier):
        return state, effects
    after, more = _overtake(state)
    return after, effects + more


def _on_reached(state: State, channel: ChannelId, barrier: CheckpointBarrier) -> Step:
    state, effects = _admit(state, barrier)
    if not isinstance(state, Aligning) or not _is_for(state, barrier):
        return state, effects  # Stale, or the cut is already made.
    if channel in state.aligned:
        raise ProtocolError(
            ErrorCode.DUPLICATE_BARRIER,
            f"barrier {barrier.checkpoint_id} came twice on channel {channel}",
        )
    after, more = _advance(replace(state, aligned=state.aligned | {channel}), barrier)
    return after, effects + more


def _on_timeout(state: State, checkpoint_id: CheckpointId) -> Step:
    if isinstance(state, Aligning) and state.barrier.checkpoint_id == checkpoint_id:
        return (state, ()) if state.unaligned_barrier is None else _overtake(state)
    newest = max(state.gate.timed_out_id, checkpoint_id)
    return _cut_if_triggered(_with_gate(state, replace(state.gate, timed_out_id=newest)))


def _overtakes(gate: Gate, barrier: CheckpointBarrier) -> bool:
    if barrier.alignment_timeout_ms is None:
        return False  # A savepoint, say: aligned however long it takes.
    return barrier.unaligned or barrier.checkpoint_id == gate.timed_out_id


def _is_for(state: Aligning, barrier: CheckpointBarrier) -> bool:
    return state.barrier.checkpoint_id == barrier.checkpoint_id


def _admit(state: State, barrier: CheckpointBarrier) -> Step:
    """Start the barrier's checkpoint if it is newer than everything seen (PROTOCOL section 5)."""
    checkpoint_id = barrier.checkpoint_id
    if checkpoint_id <= state.gate.newest_id:
        return state, ()
    idle, effects = _give_way(state)
    gate = _seen(idle.gate, checkpoint_id)
    if checkpoint_id in idle.gate.abort_notices:
        return Idle(gate), (*effects, ForwardCancel(checkpoint_id))
    return Aligning(gate, barrier, gate.awaited, _unaligned(barrier)), effects


def _unaligned(barrier: CheckpointBarrier) -> CheckpointBarrier | None:
    """The barrier to send if this checkpoint overtakes; made early, because that is urgent."""
    if barrier.alignment_timeout_ms is None:
        return None
    return barrier if barrier.unaligned else replace(barrier, unaligned=True)


def _seen(gate: Gate, checkpoint_id: CheckpointId) -> Gate:
    later = frozenset(n for n in gate.abort_notices if n > checkpoint_id)
    return replace(gate, newest_id=max(gate.newest_id, checkpoint_id), abort_notices=later)


def _advance(state: Aligning, barrier: CheckpointBarrier) -> Step:
    """Cut if it is time: every channel is aligned, or need not be any more."""
    if state.overtaking or _overtakes(state.gate, barrier):
        return _overtake(state)
    return (state, ()) if state.target - state.aligned else _cut(state, state.barrier, "aligned")


def _overtake(state: Aligning) -> Step:
    """Cut without the channels that may be captured; the others are still waited for."""
    if state.gate.aligned_only & state.target - state.aligned:
        return replace(state, overtaking=True), ()
    assert state.unaligned_barrier is not None, "this checkpoint may overtake"
    return _cut(state, state.unaligned_barrier, "unaligned")


def _cut(state: Aligning, barrier: CheckpointBarrier, mode: AlignmentMode) -> Step:
    """Cut now. Aligned channels have nothing before the cut left, so they are not captured."""
    gate, checkpoint_id = state.gate, barrier.checkpoint_id
    captured = (state.target | (gate.open & gate.feedback)) - state.aligned
    pending = captured - state.arrived - gate.ending
    captures = [CaptureChannel(checkpoint_id, c, c in pending) for c in sorted(captured)]
    if pending:
        return Recording(gate, barrier, pending), (TakeSnapshot(barrier, mode), *captures)
    effects = (TakeSnapshot(barrier, mode), *captures, SealInputs(checkpoint_id))
    return Idle(gate), effects


def _seal(state: Recording, channel: ChannelId) -> Step:
    if channel not in state.pending:
        raise ProtocolError(
            ErrorCode.DUPLICATE_BARRIER,
            f"barrier {state.barrier.checkpoint_id} came twice on channel {channel}",
        )
    checkpoint_id = state.barrier.checkpoint_id
    sealed = SealChannelState(checkpoint_id, channel)
    pending = state.pending - {channel}
    if pending:
        return replace(state, pending=pending), (sealed,)
    return Idle(state.gate), (sealed, SealInputs(checkpoint_id))


# --- end of input (PROTOCOL section 6, FLIP-147) ------------------------------------------------


def _on_end_arrival(state: State, channel: ChannelId) -> Step:
    state = _with_gate(state, replace(state.gate, ending=state.gate.ending | {channel}))
    if records_arrivals(state, channel):
        assert isinstance(state, Recording)
        return _seal(state, channel)
    return _cut_if_triggered(state)


def _on_end_reached(state: State, channel: ChannelId) -> Step:
    gate = state.gate
    if channel not in gate.open:
        raise ProtocolError(ErrorCode.ILLEGAL_EVENT, f"channel {channel} ended twice")
    gate = replace(gate, open=gate.open - {channel}, ending=gate.ending - {channel})
    state = _with_gate(state, gate)
    if isinstance(state, Aligning):
        return _advance(replace(state, aligned=state.aligned | {channel}), state.barrier)
    return _cut_if_triggered(state)


def _on_trigger(state: State, barrier: CheckpointBarrier) -> Step:
    gate = state.gate
    if gate.triggered is None or barrier.checkpoint_id > gate.triggered.checkpoint_id:
        state = _with_gate(state, replace(gate, triggered=barrier))
    return _cut_if_triggered(state)


def _cut_if_triggered(state: State) -> Step:
    """Use the trigger as the barrier if no running input is left that could deliver one.

    An input whose end is queued behind data does not run either, but only a cut that may overtake
    need not wait until that data is processed.
    """
    gate = state.gate
    barrier = gate.triggered
    if barrier is None or barrier.checkpoint_id <= gate.newest_id:
        return state, ()
    if gate.awaited and not (gate.awaited <= gate.ending and _overtakes(gate, barrier)):
        return state, ()
    state, effects = _admit(state, barrier)
    if not isinstance(state, Aligning):
        return state, effects
    after, more = _advance(state, barrier)
    return after, effects + more


def _with_gate(state: State, gate: Gate) -> State:
    return replace(state, gate=gate)


# --- giving up (PROTOCOL section 5) -------------------------------------------------------------


def _on_cancel(state: State, checkpoint_id: CheckpointId) -> Step:
    if not isinstance(state, Idle) and state.barrier.checkpoint_id == checkpoint_id:
        idle, effects = _drop(state)
        return idle, (*effects, ForwardCancel(checkpoint_id))
    if checkpoint_id <= state.gate.newest_id:
        return state, ()
    idle, effects = _give_way(state)
    return Idle(_seen(idle.gate, checkpoint_id)), (*effects, ForwardCancel(checkpoint_id))


def _on_abort_notice(state: State, checkpoint_id: CheckpointId) -> Step:
    if not isinstance(state, Idle) and state.barrier.checkpoint_id == checkpoint_id:
        idle, effects = _drop(state)
        return idle, (*effects, ForwardCancel(checkpoint_id))
    if checkpoint_id <= state.gate.newest_id:
        return state, (DiscardCheckpoint(checkpoint_id),)  # Cut here; the upload may still run.
    notices = sorted({*state.gate.abort_notices, checkpoint_id})[-ABORT_NOTICES_MAX:]
    return _with_gate(state, replace(state.gate, abort_notices=frozenset(notices))), ()


def _on_failure(state: State, checkpoint_id: CheckpointId, reason: str) -> Step:
    effects: tuple[Effect, ...] = (
        DeclineCheckpoint(checkpoint_id, DeclineCause.FAILED, reason),
        ForwardCancel(checkpoint_id),
    )
    if not isinstance(state, Idle) and state.barrier.checkpoint_id == checkpoint_id:
        state, dropped = _drop(state)
        return state, (*dropped, *effects)
    return state, (DiscardCheckpoint(checkpoint_id), *effects)


def _give_way(state: State) -> tuple[Idle, tuple[Effect, ...]]:
    """Drop the pending checkpoint, if any, for a newer one; decline it and cancel it downstream."""
    if isinstance(state, Idle):
        return state, ()
    checkpoint_id = state.barrier.checkpoint_id
    idle, effects = _drop(state)
    return idle, (
        *effects,
        DeclineCheckpoint(checkpoint_id, DeclineCause.SUBSUMED, "subsumed by a newer checkpoint"),
        ForwardCancel(checkpoint_id),
    )


def _drop(state: Aligning | Recording) -> tuple[Idle, tuple[Effect, ...]]:
    return Idle(state.gate), (DiscardCheckpoint(state.barrier.checkpoint_id),)


class BarrierAligner:
    """The machine with its state: what a subtask holds."""

    def __init__(
        self,
        channels: frozenset[ChannelId],
        newest_id: CheckpointId = NOTHING_SEEN,
        *,
        feedback: frozenset[ChannelId] = frozenset(),
        aligned_only: frozenset[ChannelId] = frozenset(),
    ) -> None:
        self.state: State = initial(
            channels, newest_id, feedback=feedback, aligned_only=aligned_only
        )

    def on(self, event: Event) -> tuple[Effect, ...]:
        """Take one event; the caller carries the effects out, in order."""
        self.state, effects = step(self.state, event)
        return effects

    def holds(self, channel: ChannelId) -> bool:
        """Return whether the channel must not be read now."""
        return disposition(self.state, channel) is Disposition.HOLD

    def records(self, channel: ChannelId) -> bool:
        """Return whether data arriving on the channel now belongs to the pending checkpoint."""
        return records_arrivals(self.state, channel)
