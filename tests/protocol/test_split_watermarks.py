"""Event time of splits is the least over those that are not idle, and never goes back."""

import hypothesis.strategies as st
from hypothesis import given

from laminar_core.protocol.split_watermarks import SplitWatermarks


def splits(**newest_us: int | None) -> SplitWatermarks:
    """Splits 0, 1, … with these event times."""
    made = SplitWatermarks()
    for number, time_us in enumerate(newest_us.values()):
        made.added(number, time_us)
    return made


def test_the_slowest_split_decides() -> None:
    made = splits(a=None, b=None)
    assert made.rows(0, 100) is None
    assert made.rows(1, 40) == 40
    assert made.rows(1, 30) is None
    assert made.rows(1, 120) == 100
    assert made.newest_us() == {0: 100, 1: 120}


def test_an_idle_split_holds_nothing_back_until_it_has_rows() -> None:
    made = splits(a=None, b=None)
    made.rows(0, 100)
    assert made.idle(1) == 100
    assert made.rows(1, 50) is None  # Late rows; event time stays.
    assert (made.rows(0, 200), made.least_us) == (None, 100)
    assert made.rows(1, 150) == 150


def test_a_blocked_split_is_not_idle() -> None:
    made = splits(a=None, b=None)
    made.rows(0, 100)
    made.rows(1, 40)
    made.idle(1)
    made.blocked(1)
    assert made.rows(0, 500) is None
    assert made.is_held
    assert made.active(1) is None


def test_splits_that_are_all_idle_do_not_advance_event_time() -> None:
    made = splits(a=10, b=20)
    assert made.idle(0) == 20
    assert (made.idle(1), made.least_us, made.is_held) == (None, 20, False)


def test_a_split_that_is_added_late_starts_at_the_current_event_time() -> None:
    made = splits(a=None)
    made.rows(0, 100)
    made.added(1, None)
    assert made.rows(0, 300) is None  # The new one is at 100.
    assert made.rows(1, 250) == 250
    made.added(2, 270)  # One that was read before a restart has its own.
    made.rows(1, 400)
    assert made.least_us == 270


def test_a_split_that_is_done_is_forgotten() -> None:
    made = splits(a=10, b=None)
    assert made.done(1) == 10
    assert (made.done(0), made.least_us) == (None, 10)
    assert made.done(7) is None


def test_splits_are_added_once() -> None:
    made = splits(a=50)
    made.added(0, None)
    assert made.newest_us() == {0: 50}


ACTS = st.tuples(
    st.sampled_from(["added", "rows", "idle", "blocked", "active", "done"]),
    st.integers(0, 3),
    st.integers(0, 1_000),
)


@given(st.lists(ACTS, max_size=40))
def test_event_time_never_goes_back_and_no_counted_split_is_behind_it(acts) -> None:
    made, before = SplitWatermarks(), None
    for verb, split_id, time_us in acts:
        arguments = (split_id, time_us) if verb in ("added", "rows") else (split_id,)
        risen = getattr(made, verb)(*arguments)
        if risen is not None:
            assert before is None or risen > before
            assert risen == made.least_us
            before = risen
        assert made.least_us == before
