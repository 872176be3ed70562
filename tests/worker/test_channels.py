"""A channel is FIFO, bounded by credit, and merges nothing but watermarks side by side."""

from collections import deque
from itertools import groupby

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_core.errors import ProtocolError
from laminar_core.protocol.types import (
    Batch,
    CancelMarker,
    ChannelId,
    CheckpointBarrier,
    CheckpointId,
    EndOfInput,
    Idle,
    Watermark,
)
from laminar_core.worker.channels import (
    CREDITS_PER_CHANNEL,
    OUTPUT_QUEUE_BATCHES,
    InputChannel,
    OutputChannel,
)

BARRIER = CheckpointBarrier(CheckpointId(1))
LETTERS = {"B": BARRIER, "C": CancelMarker(CheckpointId(1)), "I": Idle(), "E": EndOfInput()}


class Rows(int):
    """A number in place of rows, and their size in bytes."""

    @property
    def nbytes(self) -> int:
        return int(self)


def parse(word: str):
    """``r1`` rows, ``w1`` watermark, ``B`` barrier, ``C`` cancel, ``I`` idle, ``E`` end."""
    if word in LETTERS:
        return LETTERS[word]
    return Batch(Rows(word[1:])) if word[0] == "r" else Watermark(int(word[1:]))


def spell(element) -> str:
    match element:
        case Batch(number):
            return f"r{number}"
        case Watermark(time_us):
            return f"w{time_us}"
    return next(letter for letter, known in LETTERS.items() if known == element)


def output(script: str) -> tuple[OutputChannel, list[str]]:
    sent: list[str] = []
    channel = OutputChannel(lambda element: sent.append(spell(element)))
    for word in script.split():
        channel.put(parse(word))
    return channel, sent


def merged(words: list[str]) -> list[str]:
    """Each run of watermarks as its highest one: what a channel may make of ``words``."""
    runs = [(kind, list(run)) for kind, run in groupby(words, key=lambda word: word[0])]
    return [
        word
        for kind, run in runs
        for word in ([max(run, key=lambda w: int(w[1:]))] if kind == "w" else run)
    ]


@pytest.mark.parametrize(
    ("script", "sent", "left"),
    [
        ("r1 r2 r3 r4", "r1 r2 r3 r4", ""),
        ("r1 r2 r3 r4 r5 w1 B", "r1 r2 r3 r4", "r5 w1 B"),
        ("w1 B C I E", "w1 B C I E", ""),
        ("w1 w2 w3", "w3", ""),
        ("w3 w1", "w3", ""),
        ("w1 r1 w2", "w1 r1 w2", ""),
        ("w1 B w2", "w1 B w2", ""),
        ("w1 I w2", "w1 I w2", ""),
        ("r1 r2 r3 r4 w1 r5 w2 w3 E", "r1 r2 r3 r4 w1", "r5 w3 E"),
    ],
)
def test_elements_leave_in_order_as_far_as_credit_goes(script: str, sent: str, left: str) -> None:
    channel, gone = output(script)
    channel.flush()
    assert " ".join(gone) == sent
    assert channel.empty == (not left)
    del gone[:]
    if out := CREDITS_PER_CHANNEL - channel.credits:
        channel.give(out)
    channel.flush()
    assert " ".join(gone) == left


def test_flush_says_whether_anything_left() -> None:
    channel, _ = output("r1 r2 r3 r4 r5")
    assert channel.flush()
    assert not channel.flush()
    channel.give(1)
    assert channel.flush()


def test_a_sender_is_held_back_by_batches_and_by_nothing_else() -> None:
    channel, _ = output("B w1 I " + " ".join(f"r{n}" for n in range(OUTPUT_QUEUE_BATCHES - 1)))
    assert channel.has_room
    channel.put(parse("r9"))
    assert not channel.has_room
    channel.flush()
    assert channel.has_room


@pytest.mark.parametrize(
    ("script", "sent"),
    [
        ("r60 r40 r1", "r60 r40"),
        ("r60 w1 r41 B", "r60 w1"),
        ("r500 r1", "r500"),
        ("r1 r500", "r1"),
        ("w1 B r500", "w1 B r500"),
    ],
)
def test_no_more_bytes_are_out_than_the_receiver_has_room_for_or_a_single_batch(
    script: str, sent: str
) -> None:
    gone: list[str] = []
    channel = OutputChannel(lambda element: gone.append(spell(element)), bytes_max=100)
    for word in script.split():
        channel.put(parse(word))
    channel.flush()
    assert " ".join(gone) == sent
    while not channel.empty:
        channel.give(1)
        channel.flush()
    assert " ".join(gone) == script


@pytest.mark.parametrize("batches", [-1, 0, 2, 5])
def test_credit_that_was_never_out_is_refused(batches: int) -> None:
    channel, _ = output("r1")
    channel.flush()
    with pytest.raises(ProtocolError, match=f"{batches} credits came back and 1 are out"):
        channel.give(batches)
    assert channel.credits == CREDITS_PER_CHANNEL - 1


def test_credit_goes_back_for_batches_once() -> None:
    granted: list[int] = []
    channel = InputChannel(ChannelId(0), granted.append)
    for word in ["r1", "w1", "r2", "B", "r3"]:
        channel.arrive(parse(word))
    assert [spell(channel.take()) for _ in range(4)] == ["r1", "w1", "r2", "B"]
    channel.give_back()
    channel.give_back()
    assert granted == [2]
    assert len(channel) == 1


def test_a_stream_of_nothing_but_watermarks_does_not_pile_up_at_a_busy_receiver() -> None:
    """Rows that are all filtered out leave watermarks behind, and these need no credit."""
    channel = InputChannel(ChannelId(0), lambda _: None)
    channel.arrive(parse("r1"))
    for time_us in range(1000):
        channel.arrive(Watermark(time_us))
    assert len(channel) == 2
    assert [spell(channel.take()) for _ in range(2)] == ["r1", "w999"]


ELEMENTS = st.one_of(
    st.integers(0, 99).map(lambda n: f"r{n}"),
    st.integers(0, 99).map(lambda n: f"w{n}"),
    st.sampled_from(["B", "C", "I"]),
)


BYTES_MAX = 150
"""Less than credit alone lets out."""


class Link:
    """Both ends of a channel, and what is under way between them."""

    def __init__(self) -> None:
        self.under_way: deque = deque()
        self.sender = OutputChannel(self.under_way.append, BYTES_MAX)
        self.receiver = InputChannel(ChannelId(0), self.sender.give)
        self.received: list[str] = []
        self._taken = 0

    def flush(self) -> None:
        self.sender.flush()

    def carry(self) -> None:
        if self.under_way:
            self.receiver.arrive(self.under_way.popleft())

    def take(self) -> None:
        if len(self.receiver):
            self.received.append(spell(self.receiver.take()))
            self._taken += self.received[-1][0] == "r"

    def give(self) -> None:
        self.receiver.give_back()
        self._taken = 0

    @property
    def empty(self) -> bool:
        return self.sender.empty and not self.under_way and not len(self.receiver)

    def credits_in_all(self) -> int:
        return self.sender.credits + len(self.sizes_out()) + self._taken

    def sizes_out(self) -> list[int]:
        """The batches that are under way or queued at the receiver."""
        both = (*self.under_way, *self.receiver._queue)
        return [e.data.nbytes for e in both if isinstance(e, Batch)]


ACTIONS = (Link.flush, Link.carry, Link.take, Link.give)


@given(st.lists(st.one_of(ELEMENTS, st.sampled_from(ACTIONS))))
def test_what_arrives_is_what_was_sent_and_the_credit_is_conserved(steps: list) -> None:
    """Goal: whatever the interleaving, no element is lost, repeated, or passed by another one.

    Method: a link that carries one element at a time. After each step, credits held, under way,
    queued and taken add up to what the channel began with, and no more bytes are out than the
    receiver has room for, or a single batch.
    """
    link, sent = Link(), []
    for step in steps:
        if callable(step):
            step(link)
        else:
            sent.append(step)
            link.sender.put(parse(step))
        assert link.credits_in_all() == CREDITS_PER_CHANNEL
        assert link.sender.credits >= 0
        assert sum(link.sizes_out()) <= BYTES_MAX or len(link.sizes_out()) == 1
    while not link.empty:
        for action in ACTIONS:
            action(link)
    assert merged(link.received) == merged(sent)


# --- barriers that overtake, and what was in flight ---------------------------------------------


def spelled(elements) -> str:
    return " ".join(map(spell, elements))


def drained(channel: OutputChannel, sent: list[str]) -> str:
    while channel.flush():
        channel.credits = CREDITS_PER_CHANNEL
    return " ".join(sent)


@pytest.mark.parametrize(
    ("queued", "passed", "order"),
    [
        ("", "", "B"),
        ("r1 w2 I r3", "r1 w2 I r3", "B r1 w2 I r3"),
        ("r1 C r2", "r1 r2", "B r1 C r2"),
        ("r1 E", "r1", "B r1 E"),
    ],
)
def test_a_barrier_that_overtakes_takes_the_head_and_copies_what_it_passes(queued, passed, order):
    channel, sent = output(queued)
    assert spelled(channel.put_barrier(BARRIER, overtake=True)) == passed
    assert drained(channel, sent) == order


@pytest.mark.parametrize(
    ("queued", "order"), [("", "B"), ("r1 w2", "r1 w2 B"), ("r1 E", "r1 B E"), ("E", "B E")]
)
def test_a_barrier_in_its_place_is_behind_the_data_and_before_the_end(queued, order):
    channel, sent = output(queued)
    assert channel.put_barrier(BARRIER, overtake=False) == []
    assert drained(channel, sent) == order


@pytest.mark.parametrize("overtake", [True, False])
def test_an_end_that_left_stands_for_every_barrier(overtake):
    channel, sent = output("r1 E")
    drained(channel, sent)
    assert channel.put_barrier(BARRIER, overtake=overtake) == []
    assert channel.empty


def test_a_barrier_that_waits_overtakes_only_what_is_ahead_of_it_and_says_so():
    channel, _ = output("r1 r2")
    channel.put_barrier(BARRIER, overtake=False)
    channel.put(parse("r3"))
    assert channel.waits(CheckpointId(1))
    assert not channel.waits(CheckpointId(2))
    assert channel.time_out(CheckpointId(2)) == []
    assert spelled(channel.time_out(CheckpointId(1))) == "r1 r2"
    channel.credits = 0
    left: list = []
    channel._deliver = left.append
    channel.flush()
    assert [element.unaligned for element in left] == [True]
    assert not channel.waits(CheckpointId(1))
    assert channel.time_out(CheckpointId(1)) == []


def test_restored_output_needs_credit_and_room_like_anything_else():
    channel, sent = output("")
    channel.restore([parse("r1"), parse("w2"), parse("r3")])
    assert not channel.has_room
    assert drained(channel, sent) == "r1 w2 r3"


def test_restored_input_comes_first_and_gives_no_credit_back():
    given: list[int] = []
    channel = InputChannel(ChannelId(0), given.append)
    channel.restore([parse("r1"), parse("w2")])
    channel.arrive(parse("r3"))
    assert [spell(channel.take()) for _ in range(3)] == ["r1", "w2", "r3"]
    channel.give_back()
    assert given == [1]
    assert (channel.batches_restored, channel.batches_replayed) == (1, 1)


def test_what_is_ahead_of_a_barrier_ends_there_and_leaves_markers_out():
    channel = InputChannel(ChannelId(0), lambda _: None)
    for word in ("r1", "C", "w2", "I", "B", "r3"):
        channel.arrive(parse(word))
    assert spelled(channel.ahead_of(CheckpointId(1))) == "r1 w2 I"
    assert spelled(channel.ahead_of(CheckpointId(2))) == "r1 w2 I r3"
    assert len(channel) == 6


def test_a_slice_leaves_the_rest_of_its_batch_first_and_its_credit_with_it():
    given: list[int] = []
    channel = InputChannel(ChannelId(0), given.append)
    channel.arrive(Batch(pa.record_batch({"n": [1, 2, 3, 4, 5]})))
    channel.arrive(Watermark(9))
    parts = []
    for _ in range(3):
        element = channel.take(2)
        assert isinstance(element, Batch)
        parts.append(element.data.column("n").to_pylist())
        channel.give_back()
    assert parts == [[1, 2], [3, 4], [5]]
    assert given == [1]
    assert channel.take(2) == Watermark(9)
