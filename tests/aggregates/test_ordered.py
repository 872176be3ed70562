"""First and last by a column: the answer is that of the rows, however they come."""

import itertools

import numpy as np
import pyarrow as pa
import pytest

from laminar_core.aggregates.ordered import Endmost, values_of
from laminar_core.aggregates.row_groups import RowGroups, one_group

ROWS = [("d", 3), ("b", 1), (None, 1), ("c", 3), ("z", None), ("a", 2)]


def picked(end: str, rows: list, cut: int) -> object:
    function = Endmost(end)
    states = []
    for part in (rows[:cut], rows[cut:]):
        values = pa.array([value for value, _ in part], pa.string())
        places = pa.array([place for _, place in part], pa.timestamp("us"))
        states.append(function.accumulate([values, places], one_group(len(part))))
    return values_of(function.merge(pa.concat_arrays(states), one_group(2)))[0].as_py()


@pytest.mark.parametrize(("end", "expected"), [("first", "b"), ("last", "d")])
def test_the_answer_does_not_depend_on_arrival_or_batches(end: str, expected: str) -> None:
    """Goal: ties are decided by the value, a null loses, and what has no place does not count."""
    orders = list(itertools.permutations(ROWS))[::7]
    found = {picked(end, list(rows), cut) for rows in orders for cut in (0, 3, 6)}
    assert found == {expected}


@pytest.mark.parametrize("end", ["first", "last"])
def test_a_null_is_a_value_only_where_there_is_no_other(end: str) -> None:
    assert picked(end, [(None, 1), (None, 1)], 1) is None
    assert picked(end, [(None, 1), ("a", 1)], 1) == "a"


def test_a_group_without_a_place_does_not_hide_a_tie_in_another() -> None:
    groups = RowGroups(np.array([0, 1, 2]), np.array([0, 2, 3]))
    values, places = pa.array(["b", None, "x"]), pa.array([1, 1, None])
    for end in ("first", "last"):
        assert values_of(Endmost(end).accumulate([values, places], groups)).to_pylist() == [
            "b",
            None,
        ]


def test_rows_without_a_place_leave_no_state() -> None:
    values, places = pa.array(["a"]), pa.nulls(1, pa.int64())
    state = Endmost("first").accumulate([values, places], one_group(1))
    assert state.to_pylist() == [None]
    assert values_of(state).to_pylist() == [None]


def test_nan_is_the_largest_place() -> None:
    values, places = pa.array(["a", "b"]), pa.array([float("nan"), 1e300])
    for end, expected in (("first", "b"), ("last", "a")):
        assert values_of(Endmost(end).accumulate([values, places], one_group(2)))[0].as_py() == (
            expected
        )


def test_dictionaries_are_picked_from() -> None:
    values = pa.array(["x", "y"]).dictionary_encode()
    state = Endmost("last").accumulate([values, pa.array([1, 2])], one_group(2))
    assert state.type == Endmost("last").state_type([pa.string(), pa.int64()])
    assert values_of(state).to_pylist() == ["y"]


def test_what_has_no_order_is_not_taken() -> None:
    assert Endmost("first").state_type([pa.string(), pa.list_(pa.int8())]) is None
    assert Endmost("first").state_type([pa.list_(pa.int8()), pa.int64()]) is None
