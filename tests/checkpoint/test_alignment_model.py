"""The cut is consistent in every order of arrival, with queues, timeouts, aborts and ends."""

from collections import Counter, deque

import hypothesis.strategies as st
from hypothesis import given, settings

from laminar_core.checkpoint.alignment import (
    Aligning,
    Disposition,
    disposition,
    initial,
    records_arrivals,
    step,
)
from laminar_core.checkpoint.alignment_events import (
    AlignmentTimedOut,
    BarrierArrived,
    BarrierReached,
    CaptureChannel,
    DiscardCheckpoint,
    EndArrived,
    EndReached,
    SealInputs,
    TakeSnapshot,
)
from laminar_core.checkpoint.types import ChannelId, CheckpointBarrier, CheckpointId

BARRIER, END = "|", "$"


class OneOperator:
    """A subtask with real queues: what travels enters a queue, what is processed leaves it."""

    def __init__(self, channels: int, barrier: CheckpointBarrier) -> None:
        self.barrier = barrier
        self.state = initial(frozenset(ChannelId(c) for c in range(channels)))
        self.queues: list[deque[str]] = [deque() for _ in range(channels)]
        self.processed: list[str] = []
        self.cut: Counter[str] | None = None
        self.captured: Counter[str] = Counter()
        self.cuts = self.seals = 0

    def arrive(self, c: int, item: str) -> None:
        channel = ChannelId(c)
        self.queues[c].append(item)
        if item == BARRIER:
            self.on(BarrierArrived(channel, self.barrier))
        elif item == END:
            self.on(EndArrived(channel))
        elif records_arrivals(self.state, channel):
            self.captured[item] += 1

    def can_process(self, c: int) -> bool:
        held = disposition(self.state, ChannelId(c)) is Disposition.HOLD
        return bool(self.queues[c]) and not held

    def process(self, c: int) -> None:
        item = self.queues[c].popleft()
        if item == BARRIER:
            self.on(BarrierReached(ChannelId(c), self.barrier))
        elif item == END:
            self.on(EndReached(ChannelId(c)))
        else:
            self.processed.append(item)

    def on(self, event) -> None:
        self.state, effects = step(self.state, event)
        for effect in effects:
            match effect:
                case TakeSnapshot():
                    self.cut, self.cuts = Counter(self.processed), self.cuts + 1
                case CaptureChannel(_, channel, _):
                    queued = list(self.queues[channel])
                    ahead = queued[: queued.index(BARRIER)] if BARRIER in queued else queued
                    self.captured.update(x for x in ahead if x != END)
                case SealInputs():
                    self.seals += 1
                case DiscardCheckpoint():
                    self.captured.clear()
                case _:
                    pass


@st.composite
def worlds(draw):
    """Per channel: batches before the barrier, whether it has one, batches behind it, its end."""
    channels = draw(st.integers(1, 4))
    streams = []
    for c in range(channels):
        before = [f"{c}-{i}" for i in range(draw(st.integers(0, 4)))]
        if draw(st.booleans()) or c == 0:
            after = [f"{c}+{i}" for i in range(draw(st.integers(0, 3)))]
            streams.append([*before, BARRIER, *after])
        else:
            streams.append([*before, END])
    return streams


@settings(max_examples=600, deadline=None)
@given(st.data(), worlds(), st.sampled_from(["aligned", "timeout", "unaligned"]))
def test_snapshot_plus_channel_state_is_what_preceded_the_barriers(data, streams, mode) -> None:
    """Goal: the cut is consistent (Chandy & Lamport 1985, section 3) in any order of arrival.

    Method: hypothesis moves one item into a queue, processes one, or fires the alignment timer.
    """
    before = Counter(
        x for s in streams for x in (s[: s.index(BARRIER)] if BARRIER in s else s) if x != END
    )
    barrier = CheckpointBarrier(
        CheckpointId(1),
        alignment_timeout_ms={"aligned": None, "timeout": 50, "unaligned": 0}[mode],
        unaligned=mode == "unaligned",
    )
    operator = OneOperator(len(streams), barrier)
    while True:
        moves = [("arrive", c) for c, s in enumerate(streams) if s]
        moves += [("process", c) for c in range(len(streams)) if operator.can_process(c)]
        if mode == "timeout" and isinstance(operator.state, Aligning):
            moves.append(("timer", 0))
        if not moves:
            break
        what, c = data.draw(st.sampled_from(moves))
        if what == "arrive":
            operator.arrive(c, streams[c].pop(0))
        elif what == "process":
            operator.process(c)
        else:
            operator.on(AlignmentTimedOut(barrier.checkpoint_id))
    assert not any(operator.queues), "liveness: everything queued was processed in the end"
    assert (operator.cuts, operator.seals) == (1, 1)
    assert operator.cut is not None
    assert operator.cut + operator.captured == before
    if mode == "aligned":
        assert not operator.captured
