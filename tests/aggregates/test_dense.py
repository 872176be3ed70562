"""Dense grouping: what the general one gives, or nothing at all."""

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_core.aggregates.dense import SLOTS_PER_ROW_MAX, dense_group, encoded_group
from laminar_core.aggregates.grouping import Reduction, group

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
EVERYTHING = [
    Reduction("rows", "count", None),
    *(
        Reduction(f"{function}({column})", function, column)
        for function in ("count", "sum", "min", "max")
        for column in ("i", "x")
    ),
]


def encoded(indices: list, values: list) -> pa.ChunkedArray:
    array = pa.DictionaryArray.from_arrays(pa.array(indices, pa.int8()), pa.array(values))
    return pa.chunked_array([array])


def sorted_rows(table: pa.Table) -> list[tuple]:
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


@st.composite
def inputs(draw: st.DrawFn) -> tuple[dict[str, pa.ChunkedArray], pa.Table]:
    """One or two keys: short dictionaries and close integers; values that add up exactly."""
    count = draw(st.integers(6, 30))
    rows = st.lists(st.integers(0, 2), min_size=count, max_size=count)
    keys = {"k": encoded(draw(rows), ["b", None, "a"])}
    if draw(st.booleans()):
        keys["k"] = pa.chunked_array([pa.array(draw(rows), pa.int16()).take(pa.array(draw(rows)))])
    if draw(st.booleans()):
        keys["w"] = encoded(draw(rows), [10, 20, 30])
    number = st.integers(-(2**40), 2**40)
    values = draw(st.lists(number, min_size=count, max_size=count))
    floats = [draw(st.sampled_from([v / 2, math.inf, 0.0])) for v in values]
    return keys, pa.table({"i": values, "x": floats})


@settings(deadline=None)
@given(inputs())
def test_it_gives_what_the_general_grouping_gives(world: tuple) -> None:
    keys, rows = world
    dense = dense_group(keys, rows, EVERYTHING)
    assert dense is not None
    general = group(keys, rows, EVERYTHING)
    assert dense.schema == general.schema
    assert sorted_rows(dense) == sorted_rows(general)


def test_the_same_rows_always_come_in_the_same_order() -> None:
    keys = {"k": encoded([2, 0, 2, 1], ["a", "b", "c"]), "w": encoded([1, 1, 0, 0], [7, 8])}
    rows = pa.table({"i": [1, 2, 4, 8]})
    dense = dense_group(keys, rows, [Reduction("sum", "sum", "i")])
    assert dense is not None
    assert [tuple(row.values()) for row in dense.to_pylist()] == [
        ("b", 7, 8), ("c", 7, 4), ("a", 8, 2), ("c", 8, 1),
    ]  # fmt: skip


@pytest.mark.parametrize("value", [INT64_MIN, INT64_MAX, 0])
def test_extremes_reach_the_ends_of_the_range(value: int) -> None:
    extremes = [Reduction("min", "min", "i"), Reduction("max", "max", "i")]
    dense = dense_group({"k": encoded([0, 0], ["a"])}, pa.table({"i": [value] * 2}), extremes)
    assert dense is not None
    assert dense.select(["min", "max"]).to_pylist() == [{"min": value, "max": value}]


def test_a_slice_is_grouped_by_its_own_rows() -> None:
    batch = pa.record_batch({"k": encoded([0, 1, 0, 1], ["a", "b"]).chunk(0), "i": [1, 2, 4, 8]})
    rows = pa.Table.from_batches([batch.slice(1)])
    dense = dense_group({"k": rows.column("k")}, rows, [Reduction("sum", "sum", "i")])
    assert dense is not None
    assert sorted_rows(dense) == [("a", 4), ("b", 10)]


SIMPLE = encoded([0, 1, 0, 1], ["a", "b"])


@pytest.mark.parametrize(
    ("key", "why"),
    [
        (pa.chunked_array([["a", "b", "a", "b"]]), "plain"),
        (pa.chunked_array([[1, 2, None, 2]]), "a null"),
        (pa.chunked_array([[1, 2, 99, 2]]), "integers too far apart for four rows"),
        (encoded([0, None, 0, 1], ["a", "b"]), "a null index"),
        (pa.chunked_array([SIMPLE.chunk(0).slice(0, 2), SIMPLE.chunk(0).slice(2)]), "two chunks"),
        (encoded([0, 1, 0, 1], list("abcdefghi")), "a dictionary too long for four rows"),
    ],
)
def test_other_keys_are_left_to_the_general_grouping(key: pa.ChunkedArray, why: str) -> None:
    rows = pa.table({"i": [1, 2, 3, 4]})
    assert dense_group({"k": key}, rows, [Reduction("rows", "count", None)]) is None, why


def test_keys_that_are_too_many_together_are_left_too() -> None:
    rows = pa.table({"i": [1, 2, 3, 4]})
    count = [Reduction("rows", "count", None)]
    integers = {"k": SIMPLE, "w": pa.chunked_array([[1, 2, 3, 4]])}
    assert dense_group(integers, rows, count) is not None
    assert dense_group(integers | {"k": encoded([0, 1, 2, 0], list("abc"))}, rows, count) is None
    values = list(range(2 * SLOTS_PER_ROW_MAX))
    within = {"k": SIMPLE, "w": encoded([0, 1, 0, 1], values)}
    assert dense_group(within, rows, count) is not None
    beyond = {"k": SIMPLE, "w": encoded([0, 1, 0, 1], [*values, 99])}
    assert dense_group(beyond, rows, count) is None


def test_no_keys_and_no_rows_are_left_to_the_general_grouping() -> None:
    count = [Reduction("rows", "count", None)]
    assert dense_group({}, pa.table({"i": [1]}), count) is None
    assert dense_group({"k": encoded([], ["a"])}, pa.table({"i": []}), count) is None
    assert dense_group({"k": encoded([], [])}, pa.table({"i": []}), count) is None


@pytest.mark.parametrize(
    ("function", "values"),
    [
        ("sum", pa.array([1, None, 3, 4])),
        ("count", pa.array([1, None, 3, 4])),
        ("min", pa.array([1.0, math.nan, 3.0, 4.0])),
        ("max", pa.array([1.0, math.nan, 3.0, 4.0])),
        ("sum", pa.array([INT64_MAX, 1, 1, 1])),
        ("sum", pa.array([1, 2, 3, 4], pa.int32())),
        ("max", pa.array(["a", "b", "c", "d"])),
        ("max", pa.array([1, 2, 3, 4], pa.timestamp("us"))),
    ],
    ids=str,
)
def test_other_values_are_left_to_the_general_grouping(function: str, values: pa.Array) -> None:
    rows = pa.table({"v": values})
    assert dense_group({"k": SIMPLE}, rows, [Reduction("result", function, "v")]) is None


def test_any_column_without_nulls_can_be_counted_and_nan_summed() -> None:
    rows = pa.table({"s": ["x", "y", "z", "z"], "x": [math.nan, 1.0, 1.0, 2.0]})
    reductions = [Reduction("count", "count", "s"), Reduction("sum", "sum", "x")]
    dense = dense_group({"k": SIMPLE}, rows, reductions)
    assert dense is not None
    assert dense.column("count").to_pylist() == [2, 2]
    assert np.isnan(dense.column("sum")[0].as_py())
    assert dense.column("sum")[1].as_py() == 3.0


EXACT = [each for each in EVERYTHING if each.name not in {"min(x)", "max(x)"}]
KEY_TYPES = [pa.string(), pa.large_binary(), pa.int16(), pa.uint64(), pa.timestamp("us", "UTC")]


@st.composite
def plain_inputs(draw: st.DrawFn) -> tuple[pa.ChunkedArray, pa.Table]:
    """A plain key in chunks, some of them empty or slices, and values in chunks of their own."""
    numbers = draw(st.lists(st.integers(0, 9), min_size=1, max_size=40))
    data_type = draw(st.sampled_from(KEY_TYPES))
    is_number = pa.types.is_integer(data_type) or pa.types.is_timestamp(data_type)
    values = [n if is_number else f"key {n}"[: n + 3].encode() for n in numbers]
    if pa.types.is_string(data_type):
        values = [value.decode() for value in values]
    array = pa.array([values[0], *values], data_type).slice(1)
    cuts = sorted(draw(st.lists(st.integers(0, len(values)), max_size=4)))
    bounds = zip([0, *cuts], [*cuts, len(values)], strict=True)
    key = pa.chunked_array([array.slice(a, b - a) for a, b in bounds], data_type)
    integers = draw(st.lists(st.integers(-(2**40), 2**40), min_size=len(key), max_size=len(key)))
    return key, pa.table({"i": integers, "x": [value / 3 for value in integers]})


@settings(deadline=None)
@given(plain_inputs())
def test_a_plain_key_is_grouped_as_in_general(world: tuple) -> None:
    key, rows = world
    encoded_key = encoded_group({"k": key}, rows, EXACT)
    assert encoded_key is not None
    general = group({"k": key}, rows, EXACT)
    assert encoded_key.schema == general.schema
    assert sorted_rows(encoded_key) == sorted_rows(general)
    in_order = list(dict.fromkeys(key.to_pylist()))
    is_integer = pa.types.is_integer(key.type)
    assert encoded_key.column("k").to_pylist() == (sorted(in_order) if is_integer else in_order)


def test_integers_far_apart_are_grouped_too() -> None:
    key = pa.chunked_array([[7, 1 << 60, 7]])
    rows = pa.table({"i": [1, 2, 4]})
    found = encoded_group({"k": key}, rows, [Reduction("sum", "sum", "i")])
    assert found is not None
    assert found.to_pydict() == {"k": [7, 1 << 60], "sum": [5, 2]}


def test_many_integers_far_apart_are_grouped_by_sorting() -> None:
    drawn = np.random.default_rng(0)
    distinct = drawn.permutation(20_000) * 1_000 - 7_000_000
    key = pa.chunked_array([distinct, drawn.permutation(distinct)[:5_000]])
    numbers = drawn.integers(-(2**40), 2**40, len(key))
    rows = pa.table({"i": numbers, "x": numbers / 2})
    found = encoded_group({"k": key}, rows, EXACT)
    assert found is not None
    assert found.column("k").to_pylist() == np.sort(distinct).tolist(), "by a hash table"
    general = group({"k": key}, rows, EXACT)
    assert found.schema == general.schema
    assert found.sort_by("k") == general.sort_by("k")


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"k": pa.chunked_array([["a", None]])},
        {"k": pa.chunked_array([[0.0, -0.0]])},
        {"k": encoded([0, 1], ["a", "b"])},
        {"k": pa.chunked_array([["a", "b"]]), "w": pa.chunked_array([[1, 2]])},
    ],
    ids=["none", "null", "float", "encoded", "two"],
)
def test_other_plain_keys_are_left_to_the_general_grouping(
    keys: dict[str, pa.ChunkedArray],
) -> None:
    rows = pa.table({"i": [1, 2]})
    assert encoded_group(keys, rows, [Reduction("rows", "count", None)]) is None


@pytest.mark.parametrize(
    ("function", "values"),
    [("min", [0.0, -0.0]), ("max", [0.0, -0.0]), ("sum", [INT64_MAX, 1]), ("sum", [None, 1])],
)
def test_values_that_may_differ_are_left_to_the_general_grouping(
    function: str, values: list
) -> None:
    key = {"k": pa.chunked_array([["a", "a"]])}
    rows = pa.table({"v": values})
    assert encoded_group(key, rows, [Reduction("result", function, "v")]) is None


def test_no_rows_are_left_to_the_general_grouping() -> None:
    none = pa.table({"k": pa.array([], pa.string())})
    assert encoded_group({"k": none.column("k")}, none, []) is None
