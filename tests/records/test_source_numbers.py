"""Numbers of sources are added up over workers; what one worker does not know stays unknown."""

from laminar_core.records.source_numbers import SourceNumbers, sources_of

ONE = SourceNumbers(splits=2, splits_idle=1, splits_blocked=0, lag_rows=7, letters=1)


def test_numbers_of_workers_are_added_up() -> None:
    assert SourceNumbers.total([ONE, ONE]) == SourceNumbers(
        splits=4, splits_idle=2, splits_blocked=0, lag_rows=14, letters=2
    )


def test_a_lag_that_one_worker_does_not_know_is_unknown() -> None:
    total = SourceNumbers.total([ONE, ONE.model_copy(update={"lag_rows": None})])
    assert (total.splits, total.lag_rows) == (4, None)


def test_bytes_that_are_fetched_ahead_are_added_up() -> None:
    parts = [SourceNumbers(fetch_queue_bytes=size) for size in (5, 7)]
    assert SourceNumbers.total(parts).fetch_queue_bytes == 12
    assert SourceNumbers.total([*parts, ONE]).fetch_queue_bytes is None


def test_the_longest_lag_in_time_counts_and_an_unknown_one_hides_it() -> None:
    parts = [ONE.model_copy(update={"lag_seconds": seconds}) for seconds in (1.0, 7.5, 0.0)]
    assert SourceNumbers.total(parts).lag_seconds == 7.5
    assert SourceNumbers.total([*parts, ONE]).lag_seconds is None
    assert SourceNumbers.total([]).lag_seconds is None


def test_heartbeats_of_older_and_newer_drivers_can_be_read() -> None:
    assert sources_of({}) == {}
    newer = {"sources": {"in": {**ONE.model_dump(), "of_tomorrow": 5}}}
    assert sources_of(newer) == {"in": ONE}


def test_numbers_that_cannot_be_read_are_left_out() -> None:
    damaged = {"sources": {"in": ONE.model_dump(), "odd": {"splits": "many"}, "none": None}}
    assert sources_of(damaged) == {"in": ONE}
    assert sources_of({"sources": [1]}) == {}
