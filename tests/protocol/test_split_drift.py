"""Splits too far ahead are held, and never all of them: the slowest one can always be read."""

from hypothesis import given
from hypothesis import strategies as st

from laminar_core.protocol.split_drift import SlowestReaders, held_splits

TIMES = st.dictionaries(st.integers(0, 9), st.integers(0, 100), min_size=1)


def test_a_split_is_held_once_it_is_further_ahead_than_allowed() -> None:
    newest = {0: 10, 1: 20, 2: 21}
    assert held_splits(newest, (10, None), 10) == {2}
    assert held_splits(newest, (12, 10), 10) == {2}
    assert held_splits(newest, (11, None), 10) == frozenset()
    assert held_splits(newest, (10, 3), 10) == {1, 2}


def test_without_a_slowest_split_none_is_held() -> None:
    assert held_splits({0: 5, 1: 5_000}, (None, None), 10) == frozenset()


@given(st.lists(TIMES, min_size=1, max_size=4), st.integers(0, 50))
def test_somewhere_a_split_can_be_read(readers: list[dict[int, int]], drift: int) -> None:
    slowest = SlowestReaders()
    for worker, newest in enumerate(readers):
        slowest.report("in", worker, min(newest.values()))
    held = [
        held_splits(newest, (min(newest.values()), slowest.target_us), drift) for newest in readers
    ]
    assert any(len(chosen) < len(newest) for chosen, newest in zip(held, readers, strict=True))
    least = min(min(newest.values()) for newest in readers)
    for chosen, newest in zip(held, readers, strict=True):
        assert all((newest[n] > least + drift) == (n in chosen) for n in newest)


def test_a_reader_without_a_slowest_split_does_not_count() -> None:
    slowest = SlowestReaders()
    slowest.report("in", 0, 30)
    assert slowest.target_us is None
    slowest.report("in", 1, 10)
    slowest.report("other", 1, 20)
    assert slowest.target_us == 10
    slowest.report("in", 1, None)
    assert slowest.target_us == 20
    slowest.report("other", 1, None)
    assert slowest.target_us is None
