"""The rules of 1985 one by one: one line of events in, one line of effects out."""

import pytest

from laminar_core.errors import ErrorCode, ProtocolError
from laminar_core.protocol.types import ChannelId
from verification.chandy_lamport import (
    OVER_MAX,
    ChannelRecorded,
    Completion,
    DiscardPart,
    MarkerReceived,
    MessageReceived,
    PartComplete,
    RecordState,
    SendMarkers,
    SnapshotAborted,
    SnapshotId,
    SnapshotInitiated,
    initial,
    step,
    unreached,
)

CHANNELS = {name: ChannelId(number) for number, name in enumerate("abc")}
NAMES = {number: name for name, number in CHANNELS.items()}


def parse(word: str):
    """``i1`` initiates, ``x1`` aborts, ``a:m1`` is a marker, ``a:r`` the message ``r``."""
    if ":" not in word:
        kind = SnapshotInitiated if word[0] == "i" else SnapshotAborted
        return kind(SnapshotId(int(word[1:])))
    channel, said = CHANNELS[word[0]], word[2:]
    if said[0] == "m":
        return MarkerReceived(channel, SnapshotId(int(said[1:])))
    return MessageReceived(channel, said)


def render(effect) -> str:
    match effect:
        case RecordState(n):
            return f"state{n}"
        case SendMarkers(n):
            return f"markers{n}"
        case ChannelRecorded(n, channel, messages):
            return f"{NAMES[channel]}{n}=[{','.join(map(str, messages))}]"
        case PartComplete(n):
            return f"complete{n}"
        case DiscardPart(n):
            return f"discard{n}"


def trace(script: str, channels: str = "ab", newest: int = 0) -> str:
    state = initial((CHANNELS[c] for c in channels), SnapshotId(newest))
    happened = []
    for word in script.split():
        state, effects = step(state, parse(word))
        happened += map(render, effects)
    return " ".join(happened)


@pytest.mark.parametrize(
    ("script", "happened"),
    [
        # Rule 2: the initiator records, then tells everybody, and listens to all its inputs.
        ("i1", "state1 markers1"),
        ("i1 a:r b:s a:m1 b:m1", "state1 markers1 a1=[r] b1=[s] complete1"),
        # Rule 3: the first marker's own channel is empty, the other one is recorded.
        ("a:m1 a:r b:s b:m1", "state1 markers1 a1=[] b1=[s] complete1"),
        # Rule 4: what comes behind a marker is outside the cut.
        ("a:m1 b:s b:m1 b:t", "state1 markers1 a1=[] b1=[s] complete1"),
        # What was received before is part of the state.
        ("a:r b:s a:m1 b:m1", "state1 markers1 a1=[] b1=[] complete1"),
        # A second initiator of the same snapshot, before and after the markers.
        ("i1 i1 a:m1 b:m1 i1", "state1 markers1 a1=[] b1=[] complete1"),
        # Snapshots may overlap.
        (
            "i1 a:r i2 a:s a:m1 a:m2 b:m2 b:t b:m1",
            "state1 markers1 state2 markers2 a1=[r,s] a2=[s] b2=[] complete2 b1=[t] complete1",
        ),
        # Given up: before it starts, in the midst of it, and when it is complete.
        ("x1 a:m1 i1", ""),
        ("a:m1 x1 b:m1", "state1 markers1 a1=[] discard1"),
        ("a:m1 b:m1 x1", "state1 markers1 a1=[] b1=[] complete1 discard1"),
        # The next one starts afresh.
        (
            "a:m1 x1 b:r b:m2 a:m2",
            "state1 markers1 a1=[] discard1 state2 markers2 b2=[] a2=[] complete2",
        ),
    ],
)
def test_trace(script: str, happened: str) -> None:
    assert trace(script) == happened


def test_a_process_without_input_is_complete_when_it_has_recorded() -> None:
    assert trace("i1", channels="") == "state1 markers1 complete1"


def test_ids_of_a_former_life_start_nothing() -> None:
    assert trace("i3 a:m3 i4", newest=3) == "state4 markers4"


def test_a_marker_that_comes_twice_is_refused_and_changes_nothing() -> None:
    state, _ = step(initial(CHANNELS.values()), parse("a:m1"))
    with pytest.raises(ProtocolError, match="marker 1 came twice on channel 0") as raised:
        step(state, parse("a:m1"))
    assert raised.value.code is ErrorCode.DUPLICATE_BARRIER
    assert step(state, parse("b:m1"))[1] == (ChannelRecorded(SnapshotId(1), CHANNELS["b"], ()),)


@pytest.mark.parametrize("word", ["c:m1", "c:r"])
def test_a_channel_that_does_not_exist_is_refused(word: str) -> None:
    with pytest.raises(ProtocolError, match="no channel 2"):
        step(initial([CHANNELS["a"]]), parse(word))


def test_memory_of_what_is_over_is_bounded_and_nothing_starts_again() -> None:
    state = initial([])
    for number in range(1, 2 * OVER_MAX):
        state, effects = step(state, SnapshotInitiated(SnapshotId(number)))
        assert len(effects) == 3
    assert len(state.over) == OVER_MAX
    for number in range(1, 2 * OVER_MAX):
        assert step(state, SnapshotInitiated(SnapshotId(number))) == (state, ())


def test_completion_needs_every_process_once_and_of_this_snapshot() -> None:
    completion = Completion(SnapshotId(2), frozenset({"p", "q"}))
    completion = completion.with_part(SnapshotId(2), "p").with_part(SnapshotId(2), "p")
    completion = completion.with_part(SnapshotId(1), "q")
    assert not completion.complete
    assert completion.with_part(SnapshotId(2), "q").complete


def test_whom_no_marker_reaches() -> None:
    channels = [("p", "q"), ("q", "r"), ("r", "q"), ("s", "r")]
    assert unreached("pqrs", channels, "p") == {"s"}
    assert unreached("pqrs", channels, "ps") == frozenset()
    assert unreached("pqrs", channels, "q") == {"p", "s"}
