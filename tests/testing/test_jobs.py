"""Jobs and their oracles: answers by hand, and what is said of a wrong output."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from laminar_core.testing.jobs import Burden, doubled_windows, normal, payments, rows_of, totals
from laminar_core.testing.ledger import Ledger
from laminar_core.testing.scenarios import windows_job
from laminar_core.testing.simulation import Simulation


def row(key: str, second: int, value: int) -> dict:
    return {"key": key, "ts": datetime.fromtimestamp(second, UTC), "value": value}


def test_totals_are_those_of_a_window_and_a_key():
    rows = [row("a", 3, 5), row("a", 9, 6), row("b", 9, 1), row("a", 10, 7)]
    assert totals(rows) == [
        {"key": "a", "start": 0, "count": 2, "total": 11},
        {"key": "b", "start": 0, "count": 1, "total": 1},
        {"key": "a", "start": 10_000_000, "count": 1, "total": 7},
    ]
    assert doubled_windows(totals(rows)) == [
        {"key": "a", "start": 0, "count": 3, "total": 18},
        {"key": "b", "start": 0, "count": 1, "total": 1},
    ]


def test_rows_are_distinct_and_the_same_every_time():
    rows = rows_of(payments())
    assert len({r["id"] for r in rows}) == len(rows) == 120
    payments.cache_clear()
    assert rows_of(payments()) == rows


def finished() -> tuple:
    job = windows_job(2)
    Simulation(job.plan).run()
    return job, job.ledgers["out"]


def test_an_output_that_is_right_has_no_problems():
    job, _ = finished()
    assert list(job.problems()) == []


def test_lost_and_repeated_rows_are_counted_and_shown():
    job, ledger = finished()
    part = next(iter(ledger.visible))
    batches = ledger.visible[part]
    ledger.visible[part] = [*batches, *batches]
    (problem,) = job.problems()
    assert problem.startswith("out: 0 of ")
    assert "e.g. too much [('count'" in problem
    ledger.visible[part] = []
    (problem,) = job.problems()
    assert "0 too many; e.g. lost [('count'" in problem
    with pytest.raises(AssertionError):
        job.check()


def test_parts_that_no_commit_made_visible_are_a_problem():
    job, ledger = finished()
    ledger.visible["1-0-99"] = []
    assert list(job.problems()) == ["out: visible parts are not those that were committed"]


def test_a_job_goes_on_with_copies():
    job, ledger = finished()
    other = windows_job(2)
    other.load(job.ledgers)
    assert list(other.problems()) == []
    other.ledgers["out"].commits.clear()
    assert ledger.commits


def test_windows_are_compared_as_the_oracle_words_them():
    start = datetime.fromtimestamp(10, UTC)
    found = {"key": "a", "window_start": start, "window_end": start, "count": 1, "total": 2}
    expected = {"key": "a", "start": 10_000_000, "count": 1, "total": 2}
    assert normal([found]) == normal([expected])


def test_a_burden_takes_time_and_changes_nothing():
    spent = []
    batch = pa.record_batch({"a": [1, 2]})
    assert Burden(7.0, spent.append).carry(batch) is batch
    assert spent == [14.0]
    assert Burden().carry(batch) is batch


def test_a_ledger_that_is_loaded_is_a_copy():
    ledger, copy = Ledger(), Ledger()
    ledger.commits[1] = ["p"]
    ledger.visible["p"] = []
    copy.load(ledger)
    ledger.commits[1].append("q")
    assert (copy.commits, copy.visible, copy.staged) == ({1: ["p"]}, {"p": []}, {})
