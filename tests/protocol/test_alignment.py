"""Traces of the alignment machine: one line in, one line out, to be checked by eye.

Words: ``a>1`` barrier 1 arrived on channel a, ``a:1`` it was reached; ``>U1``/``:U1`` the same with
an unaligned barrier, ``T1`` with a timeout; ``a>$`` / ``a:$`` end of input arrived / reached;
``a:x1`` cancel marker; ``g1`` trigger; ``t1`` timeout; ``n1`` abort notice; ``f1`` snapshot failed;
``a?`` asks what may be done with the channel's data now. Channels ``l`` and ``m`` close a loop,
nothing overtakes on ``x`` and ``y``.
"""

import pytest

from laminar_core.errors import ProtocolError
from laminar_core.protocol.alignment import (
    ABORT_NOTICES_MAX,
    BarrierAligner,
    step,
)
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
    State,
    disposition,
    initial,
    records_arrivals,
)
from laminar_core.protocol.types import ChannelId, CheckpointBarrier, CheckpointId

NAMES = "abclmxy"
FEEDBACK, ALIGNED_ONLY = "lm", "xy"


def channel(name: str) -> ChannelId:
    return ChannelId(NAMES.index(name))


def barrier(word: str) -> CheckpointBarrier:
    checkpoint_id = CheckpointId(int(word[-1]))
    if word.startswith("U"):
        return CheckpointBarrier(checkpoint_id, alignment_timeout_ms=0, unaligned=True)
    return CheckpointBarrier(
        checkpoint_id, alignment_timeout_ms=1000 if word.startswith("T") else None
    )


def parse(word: str) -> Event:
    number = CheckpointId(int(word[-1])) if word[-1].isdigit() else CheckpointId(0)
    match word[0], word[1:2], word[2:]:
        case "g", _, _:
            return CheckpointTriggered(barrier(word[1:]))
        case "t", _, _:
            return AlignmentTimedOut(number)
        case "n", _, _:
            return CheckpointAborted(number)
        case "f", _, _:
            return SnapshotFailed(number, "disk")
        case c, ">", "$":
            return EndArrived(channel(c))
        case c, ":", "$":
            return EndReached(channel(c))
        case c, ":", rest if rest.startswith("x"):
            return CancelReceived(channel(c), number)
        case c, ">", rest:
            return BarrierArrived(channel(c), barrier(rest))
        case c, _, rest:
            return BarrierReached(channel(c), barrier(rest))


def show(effect: Effect) -> str:
    match effect:
        case TakeSnapshot(b, mode):
            return f"{'CUT' if mode == 'aligned' else 'UCUT'}{b.checkpoint_id}"
        case CaptureChannel(n, c, recording):
            return f"{'record' if recording else 'capture'}{n}{NAMES[c]}"
        case SealChannelState(n, c):
            return f"seal{n}{NAMES[c]}"
        case SealInputs(n):
            return f"sealed{n}"
        case DiscardCheckpoint(n):
            return f"discard{n}"
        case ForwardCancel(n):
            return f"cancel{n}"
        case DeclineCheckpoint(n, cause, _):
            return f"{cause}{n}"


def start(channels: str) -> State:
    return initial(
        frozenset(channel(c) for c in channels),
        feedback=frozenset(channel(c) for c in channels if c in FEEDBACK),
        aligned_only=frozenset(channel(c) for c in channels if c in ALIGNED_ONLY),
    )


def trace(script: str, channels: str = "ab") -> str:
    state = start(channels)
    happened: list[str] = []
    for word in script.split():
        if word.endswith("?"):
            c = channel(word[0])
            held = disposition(state, c).name.lower()
            happened.append(held + ("+record" if records_arrivals(state, c) else ""))
        else:
            state, effects = step(state, parse(word))
            happened += [show(effect) for effect in effects]
    return " ".join(happened)


ALIGNED = [
    ("a:1 a? b?", "hold process"),
    ("a:1 b:1 a?", "CUT1 sealed1 process"),
    ("b:1 a:1 b:2 a:2", "CUT1 sealed1 CUT2 sealed2"),
    ("a>1 a? b>1 a:1 b:1", "process CUT1 sealed1"),
    ("a:T1 b:T1", "CUT1 sealed1"),
    ("a>T1 a:T1 b:T1", "CUT1 sealed1"),
]
UNALIGNED = [
    # A channel already aligned is carried over and not captured; the other records until arrival.
    (
        "a:T1 t1 a? b? b>T1 b? b:T1",
        "UCUT1 record1b process process+record seal1b sealed1 process",
    ),
    ("a:T1 b>T1 t1", "UCUT1 capture1b sealed1"),
    ("a>U1 b>U1", "UCUT1 capture1a record1b seal1b sealed1"),
    ("a>U1 a:U1 b>U1 b:U1", "UCUT1 capture1a record1b seal1b sealed1"),
    # An unaligned barrier switches a checkpoint that is aligning.
    ("a:T1 b>U1", "UCUT1 capture1b sealed1"),
    # The queue is seen once only: the barrier that was overtaken is reached later, and is stale.
    (
        "a>U1 b>U1 a:U1 b:U1 a>U2",
        "UCUT1 capture1a record1b seal1b sealed1 UCUT2 capture2a record2b",
    ),
    # A timeout of a checkpoint that is over, or of another one, does nothing.
    ("a:T1 b:T1 t1", "CUT1 sealed1"),
    ("a:T1 t2 a?", "hold"),
    ("t1", ""),
    # The budget was spent before the barrier came: it switches on arrival.
    ("t1 a>T1 b>T1", "UCUT1 capture1a record1b seal1b sealed1"),
    ("t1 a:T2 a?", "hold"),
    # A checkpoint without a budget is aligned however long it takes.
    ("a:1 t1 a? b:1", "hold CUT1 sealed1"),
]
STALE = [
    ("a:2 b:2 a:1 b:1 a?", "CUT2 sealed2 process"),
    ("a:1 b:1 b:1", "CUT1 sealed1"),
    ("a:1 b:2 a?", "discard1 subsumed1 cancel1 process"),
    ("a:1 b:2 a:2", "discard1 subsumed1 cancel1 CUT2 sealed2"),
    ("a>U1 b>U2", "UCUT1 capture1a record1b discard1 subsumed1 cancel1 UCUT2 record2a capture2b"),
    # The older barrier, still in flight on b, must not close b for the newer checkpoint.
    ("a>U2 b>U1 b? b>U2", "UCUT2 capture2a record2b process+record seal2b sealed2"),
]
CANCELLED = [
    ("a:1 b:x1 a? a:1", "discard1 cancel1 process"),
    ("b:x1 a:1 a?", "cancel1 process"),
    ("a:1 b:x2 a?", "discard1 subsumed1 cancel1 cancel2 process"),
    ("a:2 b:2 a:x1", "CUT2 sealed2"),
    ("a:1 b:1 a:x1", "CUT1 sealed1"),
    ("a>U1 b:x1 b?", "UCUT1 capture1a record1b discard1 cancel1 process"),
]
ABORTED = [
    ("a:1 n1 a? b:1", "discard1 cancel1 process"),
    ("a:T1 n1 t1", "discard1 cancel1"),
    ("n1 a:1 a? b:1", "cancel1 process"),
    ("n1 a:2 b:2", "CUT2 sealed2"),
    # A notice for a later one is kept while an earlier one is cut.
    ("n2 a:1 b:1 a:2 a?", "CUT1 sealed1 cancel2 process"),
    ("a:1 b:1 n1", "CUT1 sealed1 discard1"),
    ("a:1 f1 a?", "discard1 failed1 cancel1 process"),
    ("a:1 b:1 f1", "CUT1 sealed1 discard1 failed1 cancel1"),
]
ENDED = [
    ("a:1 b:$", "CUT1 sealed1"),
    ("b:$ a:1", "CUT1 sealed1"),
    ("a:$ b:$ g1", "CUT1 sealed1"),
    ("g1 a:$ b:$", "CUT1 sealed1"),
    ("g1 a:1 b:1 a:$ b:$", "CUT1 sealed1"),
    ("a:$ b:$ g1 g1 g2", "CUT1 sealed1 CUT2 sealed2"),
    ("n1 g1 a:$ b:$ g2", "cancel1 CUT2 sealed2"),
    ("a:$ b:$ n1 g1 g2", "cancel1 CUT2 sealed2"),
    # All ends are queued: no barrier will come, and what is ahead of the ends is captured.
    ("a>$ b>$ gU1 a:$ b:$", "UCUT1 capture1a capture1b sealed1"),
    ("gU1 a>$ b? b>$", "process UCUT1 capture1a capture1b sealed1"),
    ("a:$ gT1 b>$ t1", "UCUT1 capture1b sealed1"),
    ("t1 a:$ gT1 b>$", "UCUT1 capture1b sealed1"),
    ("a>$ b>$ gT1 a:$ b:$", "CUT1 sealed1"),
    ("a>$ b>$ g1 t1 a:$ b:$", "CUT1 sealed1"),
    ("a>$ gU1 t1 b>U1 b:U1", "UCUT1 capture1a capture1b sealed1"),
    # The end is queued when the cut is made: nothing more to record on that channel.
    ("b>$ a:T1 t1", "UCUT1 capture1b sealed1"),
    ("a:T1 t1 b>$ b:$", "UCUT1 record1b seal1b sealed1"),
]


SUBSUMED = "discard1 subsumed1 cancel1"
LOOPS = [
    # Nobody waits for the loop; what is on its way in it is recorded until the barrier is back.
    ("a:1 l? l>1 l? l:1", "CUT1 record1l process+record seal1l sealed1 process"),
    ("a:1 l>1 m>1", "CUT1 record1l record1m seal1l seal1m sealed1"),
    ("a>U1 l>1", "UCUT1 capture1a record1l seal1l sealed1"),
    ("l>$ a:1", "CUT1 capture1l sealed1"),
    ("a:1 l>$", "CUT1 record1l seal1l sealed1"),
    # Another head was earlier: its barrier comes back before ours, and what follows it is post-cut.
    ("l>1 l? l:1 l? a? a:1 l?", "process hold process CUT1 sealed1 process"),
    ("l>1 a:1 l? l:1", "CUT1 capture1l sealed1 process"),
    ("l>T1 l:T1 m? a:T1 m>T1", "process CUT1 record1m seal1m sealed1"),
    ("l>U1 a>U1", "UCUT1 record1a capture1l seal1a sealed1"),
    ("l>1 l:1 n1 l? a:1", "discard1 cancel1 process"),
    ("a:$ l>1 l:1 g1", "CUT1 sealed1"),
    # Abort, or a newer barrier: the log is dropped, and the loop's barrier is stale.
    (
        "a:1 n1 l? l>1 l:1 a:2 l>2",
        "CUT1 record1l discard1 cancel1 process CUT2 record2l seal2l sealed2",
    ),
    ("a:1 a:2 l>1 l? l>2", f"CUT1 record1l {SUBSUMED} CUT2 record2l process+record seal2l sealed2"),
    ("a:1 l:x1", "CUT1 record1l discard1 cancel1"),
    # Without running inputs from outside the trigger is the barrier.
    ("a:$ g1 l>1", "CUT1 record1l seal1l sealed1"),
    ("a:$ g1 g2 l>1 l>2", f"CUT1 record1l {SUBSUMED} CUT2 record2l seal2l sealed2"),
    ("a:$ l:$ g1", "CUT1 sealed1"),
    # The barrier of another head is faster than the own trigger.
    ("a:$ l>1 g1 l:1", "CUT1 sealed1"),
]
ALIGNED_ONLY_TRACES = [
    # An unaligned cut waits for the channel that nothing overtakes, and captures the others.
    ("a>U1 x? x:U1", "process UCUT1 capture1a sealed1"),
    ("x:U1", "UCUT1 record1a"),
    ("x:T1 t1 a>T1", "UCUT1 record1a seal1a sealed1"),
    ("a:T1 t1 a? x:T1", "hold UCUT1 sealed1"),
    ("a>U1 x:$", "UCUT1 capture1a sealed1"),
    ("a>U1 a:U1 a? x>U1 x:U1 a?", "hold UCUT1 sealed1 process"),
    ("a>U1 n1 x:U1", "discard1 cancel1"),
    ("x>$ a>$ gU1 x? x:$", "process UCUT1 capture1a sealed1"),
]


@pytest.mark.parametrize(("script", "happened"), LOOPS)
def test_trace_of_the_head_of_a_loop(script: str, happened: str) -> None:
    assert trace(script, channels="al" + "m" * ("m>" in script)) == happened


@pytest.mark.parametrize(("script", "happened"), ALIGNED_ONLY_TRACES)
def test_trace_with_a_channel_that_nothing_overtakes(script: str, happened: str) -> None:
    assert trace(script, channels="ax") == happened


@pytest.mark.parametrize(
    ("script", "happened"), ALIGNED + UNALIGNED + STALE + CANCELLED + ABORTED + ENDED
)
def test_trace(script: str, happened: str) -> None:
    assert trace(script) == happened


def test_a_single_input_is_cut_at_once() -> None:
    assert trace("a:1 a:2", channels="a") == "CUT1 sealed1 CUT2 sealed2"


def test_a_source_is_cut_by_its_trigger() -> None:
    assert trace("g1 g2 g1", channels="") == "CUT1 sealed1 CUT2 sealed2"


def test_an_unaligned_trigger_cuts_a_source_unaligned() -> None:
    assert trace("gU1", channels="") == "UCUT1 sealed1"


@pytest.mark.parametrize("script", ["a:1 a:1", "a>U1 a>U1", "a:$ a:$"])
def test_what_a_fifo_channel_cannot_do_is_refused_and_changes_nothing(script: str) -> None:
    *before, last = script.split()
    state = start("ab")
    for word in before:
        state, _ = step(state, parse(word))
    with pytest.raises(ProtocolError):
        step(state, parse(last))


def test_abort_notices_are_bounded_and_the_oldest_go_first() -> None:
    state = start("a")
    for n in range(1, ABORT_NOTICES_MAX + 3):
        state, _ = step(state, CheckpointAborted(CheckpointId(n)))
    assert len(state.gate.abort_notices) == ABORT_NOTICES_MAX
    assert min(state.gate.abort_notices) == 3


def test_the_aligner_starts_above_the_restored_checkpoint() -> None:
    aligner = BarrierAligner(frozenset({channel("a")}), newest_id=CheckpointId(7))
    assert aligner.on(BarrierReached(channel("a"), barrier("7"))) == ()
    assert not aligner.holds(channel("a"))
    assert len(aligner.on(BarrierReached(channel("a"), barrier("8")))) == 2
