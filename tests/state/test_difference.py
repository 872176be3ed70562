"""Columns of any type are compared, and the answer is that of a comparison row by row."""

import math
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_core.state.difference import difference, values_differ

NAN = float("nan")


def keyed(rows: dict[str, int | None]) -> pa.Table:
    return pa.table({"key": list(rows), "value": pa.array(rows.values(), pa.int64())})


def test_keys_come_go_change_and_stay():
    before = keyed({"a": 1, "b": 2, "c": 3, "d": None})
    after = keyed({"e": 5, "d": None, "c": 4, "b": 2})
    found = difference(before, after, ["key"])
    assert found.added.to_pydict() == {"key": ["e"], "value": [5]}
    assert found.removed.to_pydict() == {"key": ["a"], "value": [1]}
    assert found.before.to_pydict() == {"key": ["c"], "value": [3]}
    assert found.after.to_pydict() == {"key": ["c"], "value": [4]}
    assert (found.changed_count, found.unchanged_count) == (1, 2)
    assert not found.is_empty


def test_a_state_is_no_different_from_itself():
    state = pa.table({"key": [1, 2], "x": [NAN, None], "y": [[1, None], None]})
    assert difference(state, state, ["key"]).is_empty
    assert difference(state.slice(0, 0), state.slice(0, 0), ["key"]).is_empty


def test_a_null_is_a_key_like_any_other():
    found = difference(
        pa.table({"key": [None, "a"], "x": [1, 1]}),
        pa.table({"key": ["a", None], "x": [1, 2]}),
        ["key"],
    )
    assert found.after.to_pydict() == {"key": [None], "x": [2]}


@pytest.mark.parametrize(
    "values",
    [
        pa.array([(1, 2, 3), (1, 2, 4), None], pa.month_day_nano_interval()),
        pa.ExtensionArray.from_storage(
            pa.uuid(), pa.array([b"a" * 16, b"b" * 16, None], pa.binary(16))
        ),
        pa.DictionaryArray.from_arrays(pa.array([0, 1, None], pa.int8()), pa.array([[1], [2, 3]])),
    ],
    ids=lambda values: str(values.type),
)
def test_values_that_arrow_cannot_compare_are_compared_by_what_they_consist_of(values):
    other = values.take(pa.array([0, 2, 1]))
    assert values_differ(values, other).tolist() == [False, True, True]
    lists = [
        pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), v) for v in (values, other)
    ]
    assert values_differ(*lists).tolist() == [False, True, True]


@pytest.mark.parametrize("keys", [["key"], []], ids=["keys", "whole rows"])
def test_each_side_may_have_a_dictionary_of_its_own(keys):
    before, after = (
        pa.table({"key": pa.array(values, pa.dictionary(pa.int8(), pa.string()))})
        for values in (["a", "b"], ["c", None, "b"])
    )
    found = difference(before, after, keys)
    assert found.added.to_pydict() == {"key": ["c", None]}
    assert found.removed.to_pydict() == {"key": ["a"]}
    assert found.unchanged_count == 1


def test_without_keys_rows_are_added_and_removed():
    found = difference(
        pa.table({"a": [1, 2], "b": ["x", "y"]}), pa.table({"a": [2, 2], "b": ["y", "z"]}), []
    )
    assert found.added.to_pydict() == {"a": [2], "b": ["z"]}
    assert found.removed.to_pydict() == {"a": [1], "b": ["x"]}
    assert (found.changed_count, found.unchanged_count) == (0, 1)


def test_a_column_that_only_one_has_makes_nobody_different():
    found = difference(
        pa.table({"key": [1], "x": [1], "old": [2]}),
        pa.table({"key": [1], "x": [1], "new": [3]}),
        ["key"],
    )
    assert found.is_empty


def test_a_column_whose_type_has_changed_has_other_values():
    found = difference(
        pa.table({"key": [1], "x": pa.array([1], pa.int32())}),
        pa.table({"key": [1], "x": pa.array([1], pa.int64())}),
        ["key"],
    )
    assert found.changed_count == 1


def test_keys_may_be_called_like_columns_of_ours():
    before = pa.table({"row before": [1], "row after": [1]})
    after = pa.table({"row before": [1], "row after": [2]})
    assert difference(before, after, ["row before"]).changed_count == 1


PAIR = pa.struct([("a", pa.int64()), ("b", pa.string())])
COUNTED = pa.struct([("v", pa.float64()), ("n", pa.int64())])
TYPES: list[tuple[pa.DataType, list]] = [
    (pa.int64(), [1, 2, None]),
    (pa.float64(), [1.5, NAN, math.inf, -0.0, None]),
    (pa.float16(), [1.5, NAN, None]),
    (pa.string(), ["", "a", None]),
    (pa.binary(), [b"", b"a", None]),
    (pa.bool_(), [True, False, None]),
    (pa.decimal128(10, 2), [Decimal("1.00"), Decimal("2.50"), None]),
    (pa.dictionary(pa.int32(), pa.string()), ["a", "b", None]),
    (pa.null(), [None]),
    (pa.list_(pa.int64()), [[], [1], [None], [1, 2], None]),
    (pa.large_list(pa.float64()), [[], [NAN], [1.0, 2.0], None]),
    (pa.list_(pa.int32(), 2), [[1, 2], [1, None], None]),
    (pa.list_(pa.list_(pa.string())), [[], [[]], [["a"], None], [["a"], ["b"]], None]),
    (PAIR, [{"a": 1, "b": None}, {"a": 1, "b": ""}, None]),
    (pa.list_(COUNTED), [[{"v": NAN, "n": 1}], [], None]),
    (pa.map_(pa.string(), pa.int64()), [[("a", 1)], [("a", 2)], [], None]),
]  # fmt: skip


def same(one: object, other: object) -> bool:
    """The definition, value by value."""
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    return type(one) is type(other) and one == other


@pytest.mark.parametrize(("of", "values"), TYPES, ids=[str(of) for of, _ in TYPES])
@given(data=st.data())
def test_every_type_is_compared_as_its_values_are(of, values, data):
    pairs = data.draw(st.lists(st.tuples(*[st.sampled_from(values)] * 2), max_size=8))
    start = data.draw(st.integers(0, len(pairs)))
    old, new = (pa.array([pair[side] for pair in pairs], of).slice(start) for side in (0, 1))
    wanted = [not same(*pair) for pair in zip(old.to_pylist(), new.to_pylist(), strict=True)]
    assert values_differ(old, new).tolist() == wanted


@given(
    st.dictionaries(st.integers(0, 6), st.none() | st.integers(0, 2)),
    st.dictionaries(st.integers(0, 6), st.none() | st.integers(0, 2)),
)
def test_the_difference_is_that_of_two_dictionaries(before, after):
    tables = [
        pa.table({"key": pa.array(d, pa.int64()), "value": pa.array(d.values(), pa.int64())})
        for d in (before, after)
    ]
    found = difference(tables[0], tables[1], ["key"])
    assert set(found.added.column("key").to_pylist()) == after.keys() - before.keys()
    assert set(found.removed.column("key").to_pylist()) == before.keys() - after.keys()
    both = before.keys() & after.keys()
    changed = {key: (before[key], after[key]) for key in both if before[key] != after[key]}
    pairs = zip(
        found.after.column("key").to_pylist(),
        found.before.column("value").to_pylist(),
        found.after.column("value").to_pylist(),
        strict=True,
    )
    assert {key: (old, new) for key, old, new in pairs} == changed
    assert found.unchanged_count == len(both) - len(changed)
