"""Splits that are read side by side: what is idle, blocked or done, and what a checkpoint keeps."""

import pyarrow as pa

from laminar_core.connectors.base import SourceReader, SplitStatus
from laminar_core.host.clock import ManualClock
from laminar_core.records.source_numbers import SourceNumbers
from laminar_core.state.splits import split_table
from laminar_core.worker.split_watch import LOOK_INTERVAL_MS, SplitWatch


class Reader(SourceReader):
    """A reader of splits whose state a test sets."""

    def __init__(self, count: int = 2) -> None:
        self.rows = [{"split_id": n, "split": str(n), "offset": "0"} for n in range(count)]
        self.states: list[SplitStatus] = []

    def position(self) -> pa.Table:
        return split_table(self.rows)

    def status(self) -> list[SplitStatus]:
        return self.states


def watched(idle_ms: float | None = 500) -> tuple[SplitWatch, Reader, ManualClock]:
    reader, clock = Reader(), ManualClock()
    watch = SplitWatch(reader, clock, idle_ms)
    watch.watermarks.rows(0, 100)
    watch.watermarks.rows(1, 40)
    return watch, reader, clock


def test_a_split_without_rows_is_idle_after_the_timeout() -> None:
    watch, _, clock = watched()
    clock.wait_ms(499)
    watch.had_rows(0)
    assert watch.look() is False
    clock.wait_ms(LOOK_INTERVAL_MS)
    assert (watch.look(), watch.watermarks.least_us) == (True, 100)


def test_without_a_timeout_no_split_is_ever_idle() -> None:
    watch, _, clock = watched(idle_ms=None)
    clock.wait_ms(1e9)
    assert (watch.look(), watch.watermarks.least_us) == (False, 40)


def test_without_a_timeout_a_split_that_is_known_to_be_empty_is_idle() -> None:
    reader, clock = Reader(), ManualClock()
    watch = SplitWatch(reader, clock, None)
    watch.watermarks.rows(0, 100)
    for state, event_time in (
        (SplitStatus(1), None),
        (SplitStatus(1, blocked="a transaction is open"), None),
        (SplitStatus(1, caught_up=True), 100),
    ):
        reader.states = [state]
        clock.wait_ms(LOOK_INTERVAL_MS)
        watch.look()
        assert watch.watermarks.least_us == event_time


def test_the_numbers_are_those_of_the_last_look() -> None:
    watch, reader, clock = watched()
    assert watch.numbers(0) == SourceNumbers(splits=2, splits_idle=0, splits_blocked=0)
    reader.states = [
        SplitStatus(0, caught_up=True, lag_rows=0, lag_seconds=0, queued_bytes=0),
        SplitStatus(1, lag_rows=9, lag_seconds=2.5, queued_bytes=70),
    ]
    clock.wait_ms(600)
    watch.look()
    assert watch.numbers(3) == SourceNumbers(
        splits=2,
        splits_idle=1,
        splits_blocked=0,
        lag_rows=9,
        lag_seconds=2.5,
        fetch_queue_bytes=70,
        letters=3,
    )
    reader.states = [SplitStatus(1, blocked="a transaction is open")]
    reader.rows[0]["done"] = True
    clock.wait_ms(600)
    watch.look()
    numbers = watch.numbers(0)
    assert (numbers.splits, numbers.splits_blocked) == (1, 1)
    assert (numbers.lag_rows, numbers.lag_seconds) == (None, None)
    assert numbers.fetch_queue_bytes is None


def test_a_source_without_an_open_split_is_not_behind() -> None:
    watch, reader, clock = watched()
    for row in reader.rows:
        row["done"] = True
    clock.wait_ms(600)
    watch.look()
    numbers = watch.numbers(0)
    assert (numbers.splits, numbers.lag_rows, numbers.lag_seconds) == (0, 0, 0)


def test_looks_are_not_more_often_than_the_interval() -> None:
    watch, reader, clock = watched()
    watch.look()
    reader.rows[1]["done"] = True
    clock.wait_ms(LOOK_INTERVAL_MS - 1)
    assert watch.look() is False
    clock.wait_ms(1)
    assert (watch.look(), watch.watermarks.least_us) == (True, 100)


def test_a_split_that_has_more_or_is_blocked_is_not_idle() -> None:
    watch, reader, clock = watched()
    for status in (SplitStatus(1, lag_rows=9), SplitStatus(1, blocked="a transaction is open")):
        reader.states = [status]
        clock.wait_ms(2_000)
        watch.had_rows(0)
        assert watch.look() is False
    reader.states = [SplitStatus(1, caught_up=True)]
    clock.wait_ms(499)
    watch.had_rows(0)
    assert watch.look() is False
    clock.wait_ms(LOOK_INTERVAL_MS)
    assert watch.look() is True


def test_a_position_has_the_newest_event_times_and_a_restart_continues_from_them() -> None:
    watch, reader, clock = watched()
    position = watch.with_event_times(reader.position())
    assert position.column("newest_us").to_pylist() == [100, 40]
    reader.rows = position.to_pylist()
    again = SplitWatch(reader, clock, 500)
    assert again.watermarks.newest_us() == {0: 100, 1: 40}
    assert again.watermarks.rows(1, 60) == 60


def test_a_split_that_is_added_starts_at_the_event_time_of_the_others() -> None:
    watch, _, _ = watched()
    watch.add(split_table([{"split_id": 2, "split": "2", "offset": "0"}]))
    assert watch.watermarks.newest_us()[2] == 40


class HoldingReader(Reader):
    held: frozenset[int] = frozenset()

    def hold(self, split_ids: frozenset[int]) -> None:
        self.held = split_ids


class TestDrift:
    """Splits more than 50 us ahead are held, as long as somebody slower can be read."""

    def watched(self) -> tuple[SplitWatch, HoldingReader, ManualClock]:
        reader, clock = HoldingReader(), ManualClock()
        watch = SplitWatch(reader, clock, 500, max_drift_us=50)
        watch.watermarks.rows(0, 100)
        watch.watermarks.rows(1, 40)
        return watch, reader, clock

    def test_a_split_is_held_until_the_slowest_has_followed(self) -> None:
        watch, reader, _ = self.watched()
        for newest, held in ((40, {0}), (49, {0}), (50, set()), (160, {1})):
            watch.watermarks.rows(1, newest)
            watch.steer()
            assert reader.held == held

    def test_a_split_that_is_held_is_not_idle_and_one_that_is_idle_holds_nobody(self) -> None:
        watch, reader, clock = self.watched()
        for _ in range(3):
            watch.steer()
            clock.wait_ms(LOOK_INTERVAL_MS)
            watch.look()
        assert watch.watermarks.idle_count == 1
        watch.steer()
        assert (reader.held, watch.watermarks.least_us) == (frozenset(), 100)

    def test_nobody_waits_for_a_split_that_is_blocked(self) -> None:
        watch, reader, clock = self.watched()
        watch.steer()
        assert reader.held == {0}
        reader.states = [SplitStatus(1, blocked="a transaction is open")]
        clock.wait_ms(LOOK_INTERVAL_MS)
        watch.look()
        watch.steer()
        assert reader.held == frozenset()
        assert watch.watermarks.least_us == 40

    def test_the_slowest_split_of_the_job_counts_too(self) -> None:
        watch, reader, _ = self.watched()
        watch.watermarks.rows(1, 90)
        for target_us, held in ((None, set()), (39, {0, 1}), (45, {0}), (50, set())):
            watch.target_us = target_us
            watch.steer()
            assert reader.held == held
        assert watch.slowest_us == 90

    def test_without_a_limit_no_split_is_held(self) -> None:
        watch, _, _ = watched()
        watch.steer()
        assert watch.slowest_us is None
