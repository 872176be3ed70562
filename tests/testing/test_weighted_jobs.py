"""Answers by hand for totals of totals, and judges that see a row that stays or goes twice."""

import pytest

from laminar_core.operators.weights import WEIGHT
from laminar_core.testing.jobs import Row, payments, rows_of
from laminar_core.testing.simulation import Simulation
from laminar_core.testing.weighted_jobs import (
    WEIGHTED_JOBS,
    adding_up_to,
    greatest_by_keys,
    leaving_in_a_table,
    totals_of_totals,
)


def total(count: int, keys: int, sum_: int, last: str) -> Row:
    return {"count": count, "keys": keys, "total": sum_, "last_key": last}


def weighted(row: Row, weight: int) -> Row:
    return {**row, WEIGHT: weight}


ROWS = [{"key": key, "value": 2} for key in "aabccd"]
TOTALS = [total(1, 2, 4, "d"), total(2, 2, 8, "c")]


def test_keys_are_counted_by_the_number_of_their_rows() -> None:
    assert totals_of_totals(ROWS) == TOTALS
    assert greatest_by_keys(TOTALS) == [TOTALS[1]]
    assert len(totals_of_totals(rows_of(payments()))) > 2


def test_weights_have_to_add_up() -> None:
    judge = adding_up_to(TOTALS)
    right = [weighted(row, 1) for row in TOTALS]
    old = total(1, 1, 2, "a")
    assert list(judge([weighted(old, 1), *right, weighted(old, -1)], 0)) == []
    for wrong in ([weighted(old, 1), *right], right[1:], [*right, weighted(TOTALS[0], -1)] * 2):
        assert len(list(judge(wrong, 0))) == 1
    assert list(judge(right, 1)) != []


def test_a_table_has_one_row_per_key() -> None:
    judge = leaving_in_a_table([TOTALS[1]])
    other = total(5, 1, 9, "d")
    assert list(judge([weighted(row, 1) for row in TOTALS], 0)) == []
    gone = [weighted(other, 1), *(weighted(row, 1) for row in TOTALS), weighted(other, -1)]
    assert list(judge(gone, 0)) == []
    assert any("is deleted, and is not there" in one for one in judge([*gone, gone[-1]], 0))
    assert any("the table has" in one for one in judge(gone[:-1], 0))


@pytest.mark.large
@pytest.mark.parametrize("name", WEIGHTED_JOBS)
@pytest.mark.parametrize("parallelism", [1, 3])
def test_an_undisturbed_run_is_right(name, parallelism) -> None:
    job = WEIGHTED_JOBS[name](parallelism)
    result = Simulation(job.plan, parallelism=parallelism, seed=parallelism).run()
    job.check(result.rows_late)
