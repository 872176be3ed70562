"""Due times as users give them: one for all keys, one per key, timestamps, and none."""

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators.process.handles import Timers
from laminar_core.operators.process.keys import Keys
from laminar_core.operators.process.timers import TimerTable, timer_layout
from laminar_core.state.expiry import EXPIRES

FIELDS = [pa.field("k", pa.string())]
KEYS = Keys(pa.table({"k": ["a", "b"]}), np.arange(2), np.zeros(2, np.int64))
SECOND = datetime.fromtimestamp(1, UTC)


@pytest.mark.parametrize(
    ("due", "expected"),
    [
        (7, [("a", 7), ("b", 7)]),
        (np.array([7, 8]), [("a", 7), ("b", 8)]),
        (pa.array([7, None]), [("a", 7)]),
        (pa.chunked_array([[7], [8]]), [("a", 7), ("b", 8)]),
        (pa.array([None, SECOND], pa.timestamp("s", tz="UTC")), [("b", 1_000_000)]),
        (pa.array([SECOND, None], pa.timestamp("ns")), [("a", 1_000_000)]),
        (pa.array([7_999, -1], pa.int64()).cast(pa.timestamp("ns")), [("b", -1), ("a", 7)]),
        (np.array([7_999, -1], "datetime64[ns]"), [("b", -1), ("a", 7)]),
        (np.array([1, "NaT"], "datetime64[s]"), [("a", 1_000_000)]),
        (np.datetime64(1, "s"), [("a", 1_000_000), ("b", 1_000_000)]),
        (np.int64(7), [("a", 7), ("b", 7)]),
        (np.array([7]), [("a", 7), ("b", 7)]),
        (pa.array([7, 8], pa.int32()), [("a", 7), ("b", 8)]),
        (pa.array([7, 8], pa.uint64()), [("a", 7), ("b", 8)]),
        ([SECOND, None], [("a", 1_000_000)]),
        (pa.nulls(2), []),
    ],
)
def test_due_times_of_several_forms(due, expected) -> None:
    table = TimerTable(timer_layout("event-timers", FIELDS))
    timers = Timers("process 'mine'", table, None, lambda: 5)
    timers.set(KEYS, due)
    found = [row for rows in table.fire(2_000_000) for row in rows.to_pylist()]
    us = {datetime.fromtimestamp(n / 1e6, UTC): n for _, n in expected}
    assert [(row["k"], us[row[EXPIRES]]) for row in found] == expected
    assert timers.now_us == 5


@pytest.mark.parametrize(
    ("due", "problem"),
    [
        (np.array([1, 2, 3]), "for 3 times and 2 keys: give one time for all keys, or one per key"),
        (pa.array([1]), "for 1 times and 2 keys"),
        ("soon", "for str: give microseconds since 1970, or timestamps"),
        (1.5, "for float: give microseconds"),
        (pa.array([1.5, 2.5]), "for DoubleArray: give microseconds"),
        (2**70, "for int: give microseconds"),
    ],
)
def test_what_is_no_time_or_of_another_number_is_refused(due, problem: str) -> None:
    timers = Timers("process 'mine'", TimerTable(timer_layout("t", FIELDS)), None, lambda: 5)
    with pytest.raises(ConfigurationError, match=f"process 'mine' sets timers {problem}") as caught:
        timers.set(KEYS, due)
    assert caught.value.code is ErrorCode.WRONG_SCHEMA
    assert "\n" not in str(caught.value)


def test_timers_by_a_clock_that_was_set_back_are_due_after_those_that_fired() -> None:
    table = TimerTable(timer_layout("clock-timers", FIELDS))
    timers = Timers("process 'mine'", None, table, lambda: 5)
    list(table.fire(100))
    timers.set_clock(KEYS, 50)
    assert table.next_due_us == 101
    timers.delete_clock(KEYS, 101)
    assert list(table.fire(200)) == []


@pytest.mark.parametrize(
    ("method", "needed"),
    [("set", "on_timer"), ("delete", "on_timer"), ("set_clock", "on_clock_timer")],
)
def test_a_process_without_the_function_cannot_set_timers(method: str, needed: str) -> None:
    timers = Timers("process 'mine'", None, None, lambda: 5)
    with pytest.raises(ConfigurationError, match=f"'mine' sets a timer and has no {needed}"):
        getattr(timers, method)(KEYS, 7)


def test_times_of_numpy_with_fractions_are_rounded_down() -> None:
    table = TimerTable(timer_layout("t", FIELDS))
    Timers("process 'mine'", table, None, lambda: 5).set(KEYS, np.array([1.75, -1.25]))
    assert table.next_due_us == -2
    with pytest.raises(ConfigurationError, match="no finite number"):
        Timers("process 'mine'", table, None, lambda: 5).set(KEYS, np.array([1.0, np.nan]))
