"""Answers by hand for windows that overlap and for rows that may be late or not."""

from datetime import UTC, datetime

import pytest

from laminar_core.testing.event_time_jobs import (
    EVENT_TIME_JOBS,
    counts_between,
    late_job,
    sliding_job,
    with_late_rows,
)
from laminar_core.testing.jobs import Row, rows_of
from laminar_core.testing.scenarios import SCENARIOS
from laminar_core.testing.simulation import Simulation


def row(key: str, second: int) -> Row:
    return {"key": key, "ts": datetime.fromtimestamp(second, UTC), "value": 1}


def window(key: str, second: int, count: int) -> Row:
    return {"key": key, "window_start": datetime.fromtimestamp(second, UTC), "count": count}


IN_TIME = [row("a", 3), row("a", 12)]
LATE = row("a", 5)


@pytest.mark.parametrize(
    ("emitted", "late", "problem"),
    [
        ([window("a", 0, 1), window("a", 10, 1)], 1, None),
        ([window("a", 0, 2), window("a", 10, 1)], 0, None),
        ([window("a", 0, 1), window("a", 10, 1)], 0, "3 rows came and 2 are counted, 0 of them"),
        ([window("a", 0, 1)], 2, "('a', 10000000) lost 1 rows that were in time"),
        ([window("a", 0, 3), window("a", 10, 1)], 0, "('a', 0) has 1 rows too many"),
        ([window("a", 0, 1), window("a", 0, 1)], 1, "emitted more than once: [('a', 0)]"),
    ],
)
def test_a_late_row_is_in_its_window_or_counted_as_late(emitted, late, problem) -> None:
    judge = counts_between(IN_TIME, [*IN_TIME, LATE])
    problems = list(judge(emitted, late))
    assert problems == [] if problem is None else any(problem in said for said in problems)


def test_overlapping_windows_hold_every_row_twice() -> None:
    expected = sliding_job(1).expected["out"]
    assert sum(window["count"] for window in expected) == 2 * 90


def test_some_rows_are_late_and_the_others_never_are() -> None:
    tables = with_late_rows()
    behind = [r for r in rows_of(tables) if r["id"] % 7 == 0]
    assert 0 < len(behind) < len(rows_of(tables)) / 5
    job = late_job(1)
    result = Simulation(job.plan, parallelism=1).run()
    assert 0 < result.rows_late <= len(behind)
    job.check(result.rows_late)


@pytest.mark.parametrize("name", [*EVENT_TIME_JOBS, "windows-behind-windows"])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_an_undisturbed_run_is_right(name, parallelism) -> None:
    job = SCENARIOS[name](parallelism)
    result = Simulation(job.plan, parallelism=parallelism, seed=parallelism).run()
    job.check(result.rows_late)
