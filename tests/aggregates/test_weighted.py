"""State over rows that come and go: values with weights, and the balance of sums of floats."""

import math

import numpy as np
import pyarrow as pa
import pytest

from laminar_core.aggregates.row_groups import RowGroups, one_group
from laminar_core.aggregates.weighted import (
    Balance,
    WeightedFunction,
    WeightedValues,
    balanced_sum,
    weighted_result,
)

NAN, INF = float("nan"), float("inf")
VALUES = WeightedValues()
PAIRS = WeightedValues("weighted_pairs", ("at", "value"))


def state_of(function: WeightedFunction, columns: list[pa.Array], weights: list[int]) -> pa.Array:
    """Return the state of one group, merged from one state for each row."""
    rows = len(weights)
    each = RowGroups(np.arange(rows), np.arange(rows + 1))
    parts = function.accumulate_weighted(columns, np.array(weights, np.int64), each)
    return function.merge(parts, one_group(rows))


def result(state: pa.Array, function: str, data_type: pa.DataType, fraction: float = 0.5) -> object:
    return weighted_result(state, function, fraction, data_type)[0].as_py()


def test_equal_values_add_up_and_zeros_are_gone() -> None:
    values = pa.array([NAN, 0.0, -0.0, NAN, None, 2.0, 1.0])
    state = state_of(VALUES, [values], [1, 1, 2, -1, 5, 1, -1])
    assert state.to_pylist() == [
        [
            {"value": 0.0, "_weight": 3},
            {"value": 1.0, "_weight": -1},
            {"value": 2.0, "_weight": 1},
        ]
    ]


def test_only_what_is_there_counts() -> None:
    state = state_of(VALUES, [pa.array(["b", "a", "c"])], [2, -1, 1])
    assert result(state, "min", pa.string()) == "b"
    assert result(state, "max", pa.string()) == "c"
    assert result(state, "count_distinct", pa.int64()) == 2
    gone = state_of(VALUES, [pa.array(["a"])], [-1])
    assert result(gone, "max", pa.string()) is None
    assert result(gone, "count_distinct", pa.int64()) == 0


def test_numbers_count_as_often_as_they_are_there() -> None:
    state = state_of(VALUES, [pa.array([1, 4, 9])], [3, 1, -1])
    assert result(state, "percentile", pa.float64()) == 1.0
    assert result(state, "var_pop", pa.float64()) == pytest.approx(27 / 16)
    assert result(state, "stddev_samp", pa.float64()) == pytest.approx(1.5)


def test_of_rows_at_one_place_a_null_is_taken_last() -> None:
    columns = [pa.array([1, 1, 2, 2, None]), pa.array([None, "b", "c", None, "z"])]
    state = state_of(PAIRS, columns, [1] * 5)
    assert result(state, "first", pa.string()) == "b"
    assert result(state, "last", pa.string()) == "c"
    only_null = state_of(PAIRS, columns, [1, 0, -1, 1, 1])
    assert result(only_null, "first", pa.string()) is None


def test_rows_are_compared_column_by_column() -> None:
    rows = WeightedValues("weighted_rows", ("a", "b"), has_nulls=True)
    state = state_of(rows, [pa.array([None, 1, 1]), pa.array([9, None, 3])], [1, 1, 1])
    assert result(state, "row", pa.null()) == {"a": 1, "b": 3, "_weight": 1}


def test_rows_without_weights_count_once() -> None:
    groups = one_group(3)
    values = [pa.array([1.5, 1.5, None])]
    for function in (VALUES, Balance()):
        once = function.accumulate_weighted(values, np.ones(3, np.int64), groups)
        assert function.accumulate(values, groups).equals(once)


def test_what_has_no_order_is_not_kept() -> None:
    assert VALUES.state_type([pa.list_(pa.int8())]) is None


def test_nan_and_infinity_go_as_they_came() -> None:
    values, finite, count = pa.array([NAN, INF, -INF, 2.0]), pa.array([2.0]), pa.array([1])

    def total(*weights: int) -> float:
        return balanced_sum(finite, count, state_of(Balance(), [values], [*weights, 1]))[0].as_py()

    assert math.isnan(total(1, 0, 0))
    assert math.isnan(total(0, 1, 1))
    assert (total(0, 2, 0), total(0, 0, 1), total(0, 0, 0)) == (INF, -INF, 2.0)


def test_a_sum_of_no_values_is_null() -> None:
    balance = Balance().accumulate([pa.array([1])], one_group(1))
    assert balanced_sum(pa.array([0]), pa.array([0]), balance).to_pylist() == [None]


def test_the_check_is_zero_when_all_values_have_gone() -> None:
    values = pa.array([0.1, 0.2, None, 0.2, 0.1])
    gone = state_of(Balance(), [values], [1, 1, 3, -1, -1])
    assert set(gone[0].as_py().values()) == {0}
    other = state_of(Balance(), [pa.array([0.1, 0.2])], [1, -1])
    assert other[0].as_py()["check"] != 0
