"""The cut is consistent in every order of arrival, with queues, timeouts, aborts and ends."""

from collections import Counter, deque

import hypothesis.strategies as st
from hypothesis import given, settings

from laminar_core.protocol.alignment import step
from laminar_core.protocol.alignment_events import (
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
from laminar_core.protocol.alignment_state import (
    Disposition,
    disposition,
    initial,
    records_arrivals,
)
from laminar_core.protocol.types import ChannelId, CheckpointBarrier, CheckpointId
from tests.sampling import drawn

BARRIER, END = "|", "$"
PLAIN, LOOP, ORDERED = "plo"


class OneOperator:
    """A subtask with real queues: what travels enters a queue, what is processed leaves it."""

    def __init__(self, kinds: str, barrier: CheckpointBarrier) -> None:
        """``kinds`` has one letter a channel: see ``worlds``."""
        self.barrier = barrier
        channels = len(kinds)
        self.state = initial(
            frozenset(ChannelId(c) for c in range(channels)),
            feedback=frozenset(ChannelId(c) for c in range(channels) if kinds[c] == LOOP),
            aligned_only=frozenset(ChannelId(c) for c in range(channels) if kinds[c] == ORDERED),
        )
        self.queues: list[deque[str]] = [deque() for _ in range(channels)]
        self.processed: list[str] = []
        self.cut: Counter[str] | None = None
        self.captured: Counter[str] = Counter()
        self.captured_channels: set[int] = set()
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
                    self.captured_channels.add(channel)
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
    """Per channel: batches before the barrier, whether it has one, batches behind it, its end.

    Kinds: plain, closing a loop (its barrier may come after the cut, and does not start it), or one
    that no barrier overtakes.
    """
    kinds = PLAIN + "".join(draw(st.lists(st.sampled_from(PLAIN + LOOP + ORDERED), max_size=3)))
    streams = []
    for c in range(len(kinds)):
        before = [f"{c}-{i}" for i in range(draw(st.integers(0, 4)))]
        if draw(st.booleans()) or c == 0:
            after = [f"{c}+{i}" for i in range(draw(st.integers(0, 3)))]
            streams.append([*before, BARRIER, *after])
        else:
            streams.append([*before, END])
    return kinds, streams


@settings(max_examples=drawn(800), deadline=None)
@given(st.data(), worlds(), st.sampled_from(["aligned", "timeout", "unaligned"]))
def test_snapshot_plus_channel_state_is_what_preceded_the_barriers(data, world, mode) -> None:
    """Goal: the cut is consistent (Chandy & Lamport 1985, section 3) in any order of arrival.

    Method: hypothesis moves one item into a queue, processes one, or lets the budget be spent.
    """
    kinds, streams = world
    before = Counter(
        x for s in streams for x in (s[: s.index(BARRIER)] if BARRIER in s else s) if x != END
    )
    barrier = CheckpointBarrier(
        CheckpointId(1),
        alignment_timeout_ms={"aligned": None, "timeout": 50, "unaligned": 0}[mode],
        unaligned=mode == "unaligned",
    )
    operator = OneOperator(kinds, barrier)
    timeouts = 1 if mode == "timeout" else 0
    while True:
        moves = [("arrive", c) for c, stream in enumerate(streams) if stream]
        moves += [("process", c) for c in range(len(streams)) if operator.can_process(c)]
        if not moves:
            break
        moves += [("timeout", 0)] * timeouts
        what, c = data.draw(st.sampled_from(moves))
        if what == "arrive":
            operator.arrive(c, streams[c].pop(0))
        elif what == "process":
            operator.process(c)
        else:
            timeouts = 0
            operator.on(AlignmentTimedOut(barrier.checkpoint_id))
    assert not any(operator.queues), "liveness: everything queued was processed in the end"
    assert (operator.cuts, operator.seals) == (1, 1)
    assert operator.cut is not None
    assert operator.cut + operator.captured == before
    captured_kinds = {kinds[c] for c in operator.captured_channels}
    assert ORDERED not in captured_kinds
    if mode == "aligned":
        assert captured_kinds <= {LOOP}
