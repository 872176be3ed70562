"""Exact distinct counts and percentiles."""

import math
import statistics

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_core.aggregates.distinct import (
    DistinctValues,
    ValueCounts,
    distinct_count,
    percentile,
)
from laminar_core.aggregates.row_groups import RowGroups, StateFunction, one_group
from tests.sampling import drawn

NAN = float("nan")


def merged(function: StateFunction, parts: list[pa.Array]) -> pa.Array:
    states = [function.accumulate([part], one_group(len(part))) for part in parts]
    return function.merge(pa.concat_arrays(states), one_group(len(parts)))


def test_values_are_kept_once_sorted_and_without_null() -> None:
    parts = [pa.array(["b", None, "a"]), pa.array(["c", "b"]), pa.array([], pa.string())]
    state = merged(DistinctValues(), parts)
    assert state.to_pylist() == [["a", "b", "c"]]
    assert distinct_count(state).to_pylist() == [3]


def test_nan_equals_nan_and_zeros_are_one() -> None:
    state = merged(DistinctValues(), [pa.array([NAN, 0.0]), pa.array([-0.0, NAN, None])])
    assert str(state.to_pylist()) == "[[0.0, nan]]"


def test_groups_do_not_mix() -> None:
    groups = RowGroups(*(pa.array(x).to_numpy() for x in ([0, 2, 1], [0, 2, 2, 3])))
    state = DistinctValues().accumulate([pa.array([5, 5, 7])], groups)
    assert state.to_pylist() == [[5, 7], [], [5]]
    assert distinct_count(state.slice(1)).to_pylist() == [0, 1]
    counted = ValueCounts().accumulate([pa.array([5, 5, 7])], groups)
    assert percentile(counted, 0.5).to_pylist() == [6.0, None, 5.0]
    assert percentile(counted.slice(1), 0.5).to_pylist() == [None, 5.0]


def test_counts_of_equal_values_add_up() -> None:
    state = merged(ValueCounts(), [pa.array([2, 1, 2]), pa.array([2, None])])
    assert state.to_pylist() == [[{"value": 1.0, "count": 1}, {"value": 2.0, "count": 3}]]


@settings(deadline=None, max_examples=drawn(60))
@given(st.lists(st.lists(st.integers(-50, 50)), min_size=1, max_size=4), st.integers(1, 99))
def test_percentiles_are_the_textbook_s(parts: list[list[int]], percent: int) -> None:
    values = sorted(value for part in parts for value in part)
    state = merged(ValueCounts(), [pa.array(part, pa.int64()) for part in parts])
    [found] = percentile(state, percent / 100).to_pylist()
    if len(values) < 2:
        assert found == (values[0] if values else None)
        return
    expected = statistics.quantiles(values, n=100, method="inclusive")[percent - 1]
    assert found == pytest.approx(expected)


def test_the_ends_are_minimum_and_maximum_and_nan_is_the_largest() -> None:
    state = merged(ValueCounts(), [pa.array([3.0, NAN]), pa.array([-math.inf, 1.0])])
    assert percentile(state, 0.0).to_pylist() == [-math.inf]
    assert percentile(state, 1 / 3).to_pylist() == [1.0]
    assert math.isnan(percentile(state, 1.0)[0].as_py())


def test_what_is_not_taken() -> None:
    assert DistinctValues().state_type([pa.list_(pa.int8())]) is None
    assert ValueCounts().state_type([pa.string()]) is None
    assert DistinctValues().state_type([pa.float16()]) == pa.list_(pa.float32())
