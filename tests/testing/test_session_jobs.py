"""Answers by hand for sessions, also where rows may be late or not."""

from datetime import UTC, datetime

import pytest

from laminar_core.testing.jobs import SECOND_US, Row
from laminar_core.testing.session_jobs import (
    SESSION_JOBS,
    exactly,
    late_sessions_job,
    sessions_between,
    sessions_of,
)
from laminar_core.testing.simulation import Simulation


def row(key: str, second: float) -> Row:
    return {"key": key, "ts": datetime.fromtimestamp(second, UTC), "value": 2}


def session(key: str, start: int, end: int, count: int) -> Row:
    times = {"window_start": start, "window_end": end}
    said = {name: datetime.fromtimestamp(second, UTC) for name, second in times.items()}
    return {"key": key, **said, "count": count, "total": 2 * count}


def test_sessions_that_touch_are_one() -> None:
    rows = [row("a", 8), row("b", 1), row("a", 3), row("a", 13.1)]
    assert [
        (s["key"], s["start"] / SECOND_US, s["end"] / SECOND_US) for s in sessions_of(rows)
    ] == [
        ("b", 1, 6),
        ("a", 3, 13),
        ("a", 13.1, 18.1),
    ]


def test_each_session_is_wanted_once() -> None:
    judge = exactly(sessions_of([row("a", 3), row("a", 8)]))
    assert list(judge([session("a", 3, 13, 2)], 0)) == []
    for wrong in ([], [session("a", 3, 12, 2)], [session("a", 3, 13, 2)] * 2):
        assert len(list(judge(wrong, 0))) == 1
    assert list(judge([session("a", 3, 13, 2)], 1)) != []


IN_TIME = [row("a", 3), row("a", 12)]
LATE = row("a", 7.5)


@pytest.mark.parametrize(
    ("emitted", "late", "problem"),
    [
        ([session("a", 3, 8, 1), session("a", 12, 17, 1)], 1, None),
        ([session("a", 3, 17, 3)], 0, None),
        ([session("a", 3, 8, 1), session("a", 12, 17, 1)], 0, "3 rows came and 2 are counted"),
        ([session("a", 3, 8, 1)], 2, "no session has the rows of"),
        ([session("a", 3, 12, 1), session("a", 12, 17, 2)], 0, "two sessions of a touch"),
    ],
)
def test_a_late_row_is_in_a_session_or_counted_as_late(emitted, late, problem) -> None:
    problems = list(sessions_between(IN_TIME, [*IN_TIME, LATE])(emitted, late))
    assert problems == [] if problem is None else any(problem in said for said in problems)


def test_some_rows_are_late_for_their_session() -> None:
    job = late_sessions_job(1)
    result = Simulation(job.plan, parallelism=1).run()
    assert 0 < result.rows_late < 120 / 5
    job.check(result.rows_late)


@pytest.mark.parametrize("name", SESSION_JOBS)
@pytest.mark.parametrize("parallelism", [1, 3])
def test_an_undisturbed_run_is_right(name, parallelism) -> None:
    job = SESSION_JOBS[name](parallelism)
    result = Simulation(job.plan, parallelism=parallelism, seed=parallelism).run()
    job.check(result.rows_late)
