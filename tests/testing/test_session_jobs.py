"""Answers by hand for sessions, also where rows may be late or not."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from laminar_core.aggregates.row_groups import as_array
from laminar_core.operators.early_results import EmittedResults
from laminar_core.state.session_state import EMITTED
from laminar_core.testing.jobs import SECOND_US, Row
from laminar_core.testing.session_jobs import (
    EARLY_SESSION_JOBS,
    SESSION_JOBS,
    added_up,
    early_sessions_job,
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


def test_the_weights_of_equal_sessions_are_added_up() -> None:
    """Goal: an early result that stays, goes twice, or is not the last one is a problem."""
    early, final = session("a", 3, 8, 1), session("a", 3, 13, 2)
    judge = added_up(exactly(sessions_of([row("a", 3), row("a", 8)])))
    changes = [{**early, "_weight": 1}, {**early, "_weight": -1}, {**final, "_weight": 1}]
    assert list(judge(changes, 0)) == []
    for wrong in (changes[:1], changes[1:], [changes[0], changes[2]], [*changes, changes[2]]):
        assert list(judge(wrong, 0)) != []


def test_early_results_are_taken_back_one_by_one_and_two_at_once() -> None:
    job = early_sessions_job(2)
    result = Simulation(job.plan, parallelism=2).run()
    rows = job.ledgers["out"].rows()
    gone = [row for row in rows if row["_weight"] < 0]
    within = [sum(covers(row, old) for old in gone) for row in rows if row["_weight"] > 0]
    assert len(gone) > 10
    assert max(within) > 1
    job.check(result.rows_late)


def covers(session: Row, early: Row) -> bool:
    """Whether it is another, shorter session of the key."""
    bounds = [(row["window_start"], row["window_end"]) for row in (session, early)]
    (start, end), (early_start, early_end) = bounds
    return session["key"] == early["key"] and (
        start <= early_start < early_end <= end and bounds[0] != bounds[1]
    )


def test_an_early_result_that_is_forgotten_would_be_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Goal: what the state keeps is needed. Method: keep that nothing was emitted."""
    nothing = EmittedResults.before_any

    def forgotten(self, results: pa.Table) -> pa.Array:
        return as_array(nothing(self, results).column(EMITTED))

    monkeypatch.setattr(EmittedResults, "_lists", forgotten)
    job = early_sessions_job(2)
    result = Simulation(job.plan, parallelism=2).run()
    assert list(job.problems(result.rows_late))


@pytest.mark.parametrize("name", SESSION_JOBS | EARLY_SESSION_JOBS)
@pytest.mark.parametrize("parallelism", [1, 3])
def test_an_undisturbed_run_is_right(name, parallelism) -> None:
    job = (SESSION_JOBS | EARLY_SESSION_JOBS)[name](parallelism)
    result = Simulation(job.plan, parallelism=parallelism, seed=parallelism).run()
    job.check(result.rows_late)
