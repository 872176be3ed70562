"""Event times fold by channel, and nothing of them is lost."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from laminar_core.records import event_times
from laminar_core.records.channel_entries import AlignmentEntry, ChannelEntry
from laminar_core.records.event_times import (
    ChannelTimes,
    folded_times,
    problem_of_times,
    unfolded_times,
)
from tests.records.manifests import alignment

TIMES = st.tuples(st.sampled_from([None, 1, 2]), st.booleans())


@st.composite
def any_alignment(draw: st.DrawFn) -> list[AlignmentEntry]:
    """Two vertices with some subtasks; a channel may be missing, as in loops."""
    return [
        alignment(
            vertex_id=vertex_id,
            subtask_index=index,
            channels=tuple(
                ChannelEntry(input_id=n, watermark_us=time_us, idle=idle)
                for n, (time_us, idle) in sorted(
                    draw(st.dictionaries(st.integers(0, 5), TIMES)).items()
                )
            ),
        )
        for vertex_id in ("b", "a")
        for index in sorted(draw(st.sets(st.integers(0, 5), min_size=1)))
    ]


@given(any_alignment())
def test_what_is_folded_comes_back_as_it_was(entries: list[AlignmentEntry]) -> None:
    times = list(folded_times(entries))
    assert problem_of_times(times, entries) is None
    found = unfolded_times(times)
    for entry in entries:
        assert tuple(found[entry.vertex_id, entry.subtask_index]) == entry.channels


@given(any_alignment(), st.randoms(use_true_random=False))
def test_the_order_of_subtasks_makes_no_difference(
    entries: list[AlignmentEntry], dice: Any
) -> None:
    mixed = entries.copy()
    dice.shuffle(mixed)
    assert list(folded_times(mixed)) == list(folded_times(entries))


def heard(*times_us: int | None) -> list[AlignmentEntry]:
    """Subtasks that have these event times of their only sender."""
    return [
        alignment(
            subtask_index=index,
            channels=(ChannelEntry(input_id=0, watermark_us=time_us, idle=False),),
        )
        for index, time_us in enumerate(times_us)
    ]


def test_what_all_receivers_have_seen_is_one_range_and_one_entry_in_memory() -> None:
    (times,) = folded_times(heard(7, 7, 7, 7))
    assert (times.receivers, times.watermark_us) == (((0, 3),), (7,))
    found = unfolded_times([times])
    assert len({id(found["keyed", receiver][0]) for receiver in range(4)}) == 1


def test_only_equal_neighbours_share_a_range() -> None:
    (times,) = folded_times(heard(7, 7, None, 7))
    assert times.receivers == ((0, 1), (2, 2), (3, 3))
    assert times.watermark_us == (7, None, 7)
    entries = heard(7, 7, 7)
    (times,) = folded_times([entries[0], entries[2]])
    assert times.receivers == ((0, 0), (2, 2))


def of(*receivers: tuple[int, int], **changes: Any) -> ChannelTimes:
    fields: dict[str, Any] = {
        "vertex_id": "keyed",
        "input_id": 0,
        "idle": False,
        "receivers": receivers,
        "watermark_us": (5,) * len(receivers),
    }
    return ChannelTimes(**fields | changes)


def test_each_range_has_one_time() -> None:
    for times_us in ((), (5,), (5, 6, 7)):
        with pytest.raises(ValidationError, match=f"2 ranges of receivers have {len(times_us)}"):
            of((0, 1), (3, 3), watermark_us=times_us)


@pytest.mark.parametrize(
    ("times", "problem"),
    [
        (
            [of((0, 2)), of((2, 3), idle=True)],
            "times of channel 0 of keyed: ranges overlap .* at 2",
        ),
        ([of((0, 2)), of((0, 2))], "times of channel 0 of keyed: ranges overlap .* at 0"),
        ([of((0, 4))], "unknown subtasks: keyed 0 to 4"),
        ([of((9, 9))], "unknown subtasks: keyed 9 to 9"),
        ([of((0, 3), vertex_id="other")], "unknown subtasks: other 0 to 3"),
        ([of((0, 2**63 - 1))], "9223372036854775808 channels, and 10000000 is the most"),
    ],
)
def test_times_that_cannot_be_those_of_the_subtasks_are_refused(
    times: list[ChannelTimes], problem: str
) -> None:
    with pytest.raises(AssertionError, match=problem):
        raise AssertionError(problem_of_times(times, heard(1, 2, 3, 4)))


def test_a_gap_between_subtasks_is_no_receiver() -> None:
    known = heard(1, 2, 3, 4)
    assert problem_of_times([of((0, 1), (3, 3))], [*known[:2], known[3]]) is None
    assert problem_of_times([of((0, 3))], [*known[:2], known[3]]) is not None


def test_all_ranges_together_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_times, "CHANNELS_MAX", 7)
    known = heard(1, 2, 3, 4)
    assert problem_of_times([of((0, 3)), of((1, 3), input_id=1)], known) is None
    problem = problem_of_times([of((0, 3)), of((0, 3), input_id=1)], known)
    assert problem == "event times of 8 channels, and 7 is the most that is read"
