"""Waves that count: which answers matter, and what follows from them."""

import pytest

from laminar_core.protocol.termination import (
    LoopCounts,
    TerminationState,
    answer,
    begin_wave,
    initial,
)

QUIET = LoopCounts(outside_ended=True, produced=5, consumed=5)


def wave(state: TerminationState, *counts: LoopCounts) -> tuple[TerminationState, set[str]]:
    """One whole wave over the only loop; answers come in the order of workers."""
    state = begin_wave(state)
    over: set[str] = set()
    for worker, count in enumerate(counts):
        state, ended = answer(state, state.round_number, worker, {"loop": count})
        over |= ended
    return state, over


def test_a_quiet_loop_is_over_after_two_waves_and_only_once() -> None:
    state, over = wave(initial(range(2), {"loop"}), QUIET, QUIET)
    assert over == set()
    state, over = wave(state, QUIET, QUIET)
    assert over == {"loop"}
    assert state.loops == frozenset()
    assert wave(state, QUIET, QUIET)[1] == set()


def test_what_is_sent_between_workers_is_compared_in_total() -> None:
    sends = LoopCounts(outside_ended=True, produced=9, consumed=2)
    receives = LoopCounts(outside_ended=True, produced=1, consumed=8)
    state, _ = wave(initial(range(2), {"loop"}), sends, receives)
    assert wave(state, sends, receives)[1] == {"loop"}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (LoopCounts(True, 5, 4), LoopCounts(True, 5, 5)),  # noqa: FBT003 - a table
        (LoopCounts(True, 5, 5), LoopCounts(True, 6, 6)),  # noqa: FBT003
        (LoopCounts(False, 5, 5), LoopCounts(True, 5, 5)),  # noqa: FBT003
        (LoopCounts(False, 5, 5), LoopCounts(False, 5, 5)),  # noqa: FBT003
    ],
    ids=["was queued", "went on", "outside ended meanwhile", "outside goes on"],
)
def test_a_loop_that_may_go_on_is_not_over(first: LoopCounts, second: LoopCounts) -> None:
    state, _ = wave(initial([0], {"loop"}), first)
    assert wave(state, second)[1] == set()


def test_one_worker_whose_outside_input_goes_on_keeps_the_loop_alive() -> None:
    going = LoopCounts(outside_ended=False, produced=5, consumed=5)
    state, _ = wave(initial(range(2), {"loop"}), QUIET, going)
    assert wave(state, QUIET, QUIET)[1] == set()


def test_answers_of_another_round_of_strangers_and_repeated_ones_do_not_count() -> None:
    state = begin_wave(initial(range(2), {"loop"}))
    assert answer(state, 7, 0, {"loop": QUIET}) == (state, frozenset())
    assert answer(state, 1, 9, {"loop": QUIET}) == (state, frozenset())
    state, _ = answer(state, 1, 0, {"loop": QUIET})
    assert answer(state, 1, 0, {"loop": QUIET}) == (state, frozenset())
    assert state.missing == {1}


def test_a_wave_waits_for_the_one_before() -> None:
    with pytest.raises(AssertionError, match="two waves"):
        begin_wave(begin_wave(initial([0], {"loop"})))


def test_loops_in_a_row_end_one_after_the_other() -> None:
    going = LoopCounts(outside_ended=False, produced=0, consumed=0)
    state = initial([0], {"first", "second"})
    ended = []
    for second in (going, going, QUIET, QUIET):
        state = begin_wave(state)
        state, over = answer(state, state.round_number, 0, {"first": QUIET, "second": second})
        ended.append(set(over))
    assert ended == [set(), {"first"}, set(), {"second"}]
