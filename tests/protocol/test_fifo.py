"""A channel is FIFO although its transport repeats and reorders, within a bound."""

import pytest

from laminar_core.errors import ErrorCode
from laminar_core.protocol.fifo import (
    Broken,
    Delivered,
    Dropped,
    FifoChannel,
    FifoCounters,
)
from laminar_core.protocol.types import Generation

NOW, BEFORE, LATER = Generation(5), Generation(4), Generation(6)


def trace(script: str, reorder_max: int) -> str:
    """Receive frames by their numbers; ``-`` nothing yet, ``d`` duplicate, ``!`` broken."""
    channel: FifoChannel[str] = FifoChannel(NOW, reorder_max)
    words = []
    for number in script.split():
        match channel.receive(NOW, int(number), number):
            case Delivered(frames):
                words.append(",".join(frames) or "-")
            case Broken():
                words.append("!")
            case dropped:
                words.append({Dropped.DUPLICATE: "d"}[dropped])
    return " ".join(words)


@pytest.mark.parametrize(
    ("script", "reorder_max", "happened"),
    [
        ("0 1 2", 0, "0 1 2"),
        ("0 0 1 0", 0, "0 d 1 d"),
        ("1", 0, "!"),
        ("0 2", 0, "0 !"),
        ("1 0", 1, "- 0,1"),
        ("2 1 0", 2, "- - 0,1,2"),
        ("2 0 1 3", 2, "- 0 1,2 3"),
        ("1 3 0 2", 3, "- - 0,1 2,3"),
        ("1 1 0 1", 1, "- d 0,1 d"),
        ("2 0", 1, "! 0"),
        ("1 2 0", 1, "- ! 0,1"),
        ("0 1 2 4 6 3 5", 2, "0 1 2 - ! 3,4 5"),
    ],
)
def test_frames_are_delivered_in_order_as_far_as_the_bound_goes(
    script: str, reorder_max: int, happened: str
) -> None:
    assert trace(script, reorder_max) == happened


@pytest.mark.parametrize("other", [BEFORE, LATER])
def test_a_frame_of_another_generation_is_dropped_whatever_its_number(other: Generation) -> None:
    channel: FifoChannel[str] = FifoChannel(NOW, reorder_max=1)
    for sequence in (0, 1, 9):
        assert channel.receive(other, sequence, "foreign") is Dropped.OTHER_GENERATION
    assert channel.receive(NOW, 1, "second") == Delivered(())
    assert channel.receive(NOW, 0, "first") == Delivered(("first", "second"))
    assert channel.counters == FifoCounters(delivered=2, reordered=1, other_generation=3)


def test_frames_are_counted_by_what_became_of_them() -> None:
    channel: FifoChannel[int] = FifoChannel(NOW, reorder_max=2)
    for sequence in (0, 2, 2, 1, 0, 4):
        channel.receive(NOW, sequence, sequence)
    assert channel.counters == FifoCounters(delivered=3, reordered=2, duplicates=2)
    assert channel.waiting == 1


def test_a_broken_channel_says_what_it_missed() -> None:
    channel: FifoChannel[int] = FifoChannel(NOW, reorder_max=4)
    channel.receive(NOW, 0, 0)
    outcome = channel.receive(NOW, 6, 6)
    assert isinstance(outcome, Broken)
    error = outcome.error(3)
    assert error.code is ErrorCode.OUT_OF_ORDER
    assert str(error) == "channel 3 expected frame 1 and got 6"
    assert channel.waiting == 0
    assert channel.receive(NOW, 1, 1) == Delivered((1,))


def test_a_negative_bound_is_no_bound() -> None:
    with pytest.raises(AssertionError):
        FifoChannel(NOW, reorder_max=-1)
