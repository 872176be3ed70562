"""A found split has one owner, and a checkpoint remembers what was found before its trigger."""

import hypothesis.strategies as st
from hypothesis import given

from laminar_core.protocol.split_book import (
    AddSplits,
    Found,
    FoundSoFar,
    FoundSplit,
    KeepState,
    NothingMore,
    Reported,
    SplitBook,
    TriggerSent,
    opened,
    step,
)
from laminar_core.protocol.types import CheckpointId


def book(workers: int = 3, *events: object) -> SplitBook:
    made = opened(workers, FoundSoFar())
    for event in events:
        made, _ = step(made, event)
    return made


def found(*rows: int | None, first: int = 0, complete: bool = False) -> Found:
    splits = [FoundSplit(first + n, count) for n, count in enumerate(rows)]
    return Found(splits, {"found": first + len(rows)}, complete)


def owners(made: SplitBook, event: Found) -> dict[int, int]:
    _, effects = step(made, event)
    return {
        split_id: effect.worker
        for effect in effects
        if isinstance(effect, AddSplits)
        for split_id in effect.split_ids
    }


def test_splits_of_unknown_length_are_dealt_in_turn() -> None:
    assert owners(book(3), found(*[None] * 6)) == {0: 0, 1: 1, 2: 2, 3: 0, 4: 1, 5: 2}


def test_a_split_goes_to_the_worker_with_the_fewest_unread_rows() -> None:
    busy = book(3, Reported(0, 0, 50), Reported(1, 0, 20), Reported(2, 0, 40))
    assert owners(busy, found(15, 15, 15)) == {0: 1, 1: 1, 2: 2}


def test_splits_on_their_way_count_until_a_report_includes_them() -> None:
    sent = book(2, found(10, None, 10))  # 0 -> worker 0, 1 and 2 -> worker 1
    assert [load.rows_unread for load in sent.loads] == [10, 10]
    sent, _ = step(sent, Reported(1, 0, 0))  # It has not heard of any.
    assert sent.loads[1].rows_unread == 10
    sent, _ = step(sent, Reported(1, 1, 0))
    assert sent.loads[1].rows_unread == 10
    sent, _ = step(sent, Reported(1, 2, 7))
    assert sent.loads[1].rows_unread == 7
    sent, _ = step(sent, Reported(1, 1, 10))  # An old report that was late.
    assert sent.loads[1].splits_taken == 2


def test_a_checkpoint_keeps_what_was_found_when_its_trigger_was_sent() -> None:
    made = book(2, found(1, 1))
    made, kept = step(made, TriggerSent(CheckpointId(7)))
    made, _ = step(made, found(1, first=2, complete=True))
    assert kept == (KeepState(CheckpointId(7), FoundSoFar({"found": 2}, 2)),)
    _, kept = step(made, TriggerSent(CheckpointId(8)))
    assert kept == (KeepState(CheckpointId(8), FoundSoFar({"found": 3}, 3, complete=True)),)


def test_a_state_changes_although_nothing_was_found() -> None:
    made, effects = step(book(1), Found([], {"looked": 5}))
    assert (effects, made.found) == ((), FoundSoFar({"looked": 5}))


def test_the_end_follows_the_last_splits_and_nothing_follows_the_end() -> None:
    made, effects = step(book(1), found(3, complete=True))
    assert effects == (AddSplits(0, (0,)), NothingMore())
    assert step(made, found(1, first=1)) == (made, ())


def test_numbers_go_on_after_a_restart() -> None:
    made = opened(2, FoundSoFar({"found": 9}, 9))
    made, _ = step(made, found(1, first=12))
    assert made.found.next_split_id == 13


@given(
    st.lists(st.lists(st.none() | st.integers(0, 100), max_size=5), max_size=6), st.integers(1, 4)
)
def test_every_split_is_sent_once(batches: list[list[int | None]], workers: int) -> None:
    made, sent, first = book(workers), [], 0
    for rows in batches:
        made, effects = step(made, found(*rows, first=first))
        first += len(rows)
        sent += [n for e in effects if isinstance(e, AddSplits) for n in e.split_ids]
        assert all(effect.worker < workers for effect in effects)
    assert sorted(sent) == list(range(first))
    assert made.found.next_split_id == first
