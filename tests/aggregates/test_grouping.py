"""One pass of grouping: Spark's answers, on plain and on awkward columns."""

import math
from collections.abc import Sequence

import pyarrow as pa
import pytest

from laminar_core.aggregates.grouping import Reduction, group, plain_column
from laminar_core.errors import DataError, ErrorCode

NAN = float("nan")
INT64_MAX = 2**63 - 1


def reduced(function: str, values: pa.Array, keys: Sequence[object] | None = None) -> list:
    """Reduce ``values`` by ``keys`` (one group if there are none); results as Python values."""
    rows = pa.table({"value": values})
    by = {} if keys is None else {"key": pa.chunked_array([pa.array(keys)])}
    result = group(by, rows, [Reduction("result", function, "value")])
    assert result.column_names == [*by, "result"]
    return result.column("result").to_pylist()


def test_groups_come_in_the_order_of_their_first_row() -> None:
    keys = {"k": pa.chunked_array([["b", "a"], ["c", "b"]])}
    rows = pa.table({"v": pa.chunked_array([[1, 2], [3, 4]])})
    result = group(keys, rows, [Reduction("n", "count", None), Reduction("s", "sum", "v")])
    assert result.to_pydict() == {"k": ["b", "a", "c"], "n": [2, 1, 1], "s": [5, 2, 3]}


@pytest.mark.parametrize(
    ("function", "expected"), [("count", [1, 0]), ("sum", [5, None]), ("min", [5, None])]
)
def test_nulls_are_skipped(function: str, expected: list) -> None:
    values = pa.array([None, 5, None], pa.int64())
    assert reduced(function, values, ["a", "a", "b"]) == expected


def test_null_keys_are_one_group() -> None:
    assert reduced("sum", pa.array([1, 2, 4]), [None, "a", None]) == [5, 2]


def test_a_count_of_a_column_without_nulls_is_the_count_of_rows() -> None:
    assert reduced("count", pa.array([1, 2, 4]), ["a", "b", "a"]) == [2, 1]


def test_equal_names_in_different_roles_do_not_meet() -> None:
    """A key called like a value, and values called like the columns of the pass itself."""
    rows = pa.table({"key 0": [1, 2], "count_all": [3, 4], "values key 0": [5, 6]})
    keys = {"key 0": pa.chunked_array([["x", "x"]])}
    names = ["key 0", "count_all", "values key 0"]
    result = group(keys, rows, [Reduction(f"sum {name}", "sum", name) for name in names])
    assert result.to_pylist() == [
        {"key 0": "x", "sum key 0": 3, "sum count_all": 7, "sum values key 0": 11}
    ]


@pytest.mark.parametrize("data_type", [pa.float32(), pa.float64()])
def test_nan_is_larger_than_any_number(data_type: pa.DataType) -> None:
    keys = ["mixed", "mixed", "only nan", "numbers", "with null", "with null", "null"]
    values = pa.array([NAN, 1.0, NAN, 2.0, NAN, None, None], data_type)
    highest, lowest = reduced("max", values, keys), reduced("min", values, keys)
    assert [math.isnan(v) if v is not None else None for v in highest] == [
        True, True, False, True, None,
    ]  # fmt: skip
    assert highest[2] == 2.0
    assert [lowest[0], lowest[2], lowest[4]] == [1.0, 2.0, None]
    assert math.isnan(lowest[1])
    assert math.isnan(lowest[3])


def test_nan_is_found_in_the_rows_of_its_own_group_in_each_chunk() -> None:
    key = pa.chunked_array([["a"], ["a", None, "b", "c"]])
    rows = pa.table({"v": pa.chunked_array([[NAN], [-0.25, 1.5, None, NAN]])})
    extremes = [Reduction(name, name, "v") for name in ("min", "max")]
    found = group({"k": key}, rows, extremes).to_pydict()
    assert found["k"] == ["a", None, "b", "c"]
    assert repr(found["max"]) == "[nan, 1.5, None, nan]"
    assert repr(found["min"]) == "[-0.25, 1.5, None, nan]"


def test_infinities_are_numbers() -> None:
    values = pa.array([math.inf, -math.inf, 0.0])
    assert reduced("max", values) == [math.inf]
    assert reduced("min", values) == [-math.inf]


@pytest.mark.parametrize(
    "values",
    [["b", "ä", "a"], [b"\x00", b"\xff"], [True, False], [1.5, -2.5]],
)
def test_extremes_keep_the_type(values: list) -> None:
    array = pa.array(values)
    assert reduced("min", array) == [min(values)]
    assert reduced("max", array) == [max(values)]
    assert reduced("max", array.dictionary_encode()) == [max(values)]


@pytest.mark.parametrize("data_type", [pa.int8(), pa.uint8(), pa.uint32(), pa.uint64()])
def test_sums_of_any_integers_are_int64(data_type: pa.DataType) -> None:
    rows = pa.table({"value": pa.array([100, 100], data_type)})
    result = group({}, rows, [Reduction("sum", "sum", "value")])
    assert result.schema.field("sum").type == pa.int64()
    assert result.column("sum").to_pylist() == [200]


@pytest.mark.parametrize(
    ("values", "total"),
    [
        ([INT64_MAX], INT64_MAX),
        ([-INT64_MAX - 1], -INT64_MAX - 1),
        ([INT64_MAX, INT64_MAX, -INT64_MAX, -5], INT64_MAX - 5),
        ([-INT64_MAX - 1, -1, 1], -INT64_MAX - 1),
        ([None, INT64_MAX, None], INT64_MAX),
    ],
)
def test_a_sum_that_fits_is_exact_whatever_lies_between(values: list, total: int) -> None:
    assert reduced("sum", pa.array(values, pa.int64())) == [total]


@pytest.mark.parametrize("values", [[INT64_MAX, 1], [-INT64_MAX, -2], [2**62, 2**62]])
def test_a_sum_beyond_64_bits_is_an_error_not_a_wrong_number(values: list) -> None:
    with pytest.raises(DataError, match="result leaves 64 bits; cast") as caught:
        reduced("sum", pa.array([*values, 1]), ["big"] * len(values) + ["small"])
    assert caught.value.code is ErrorCode.ARITHMETIC_OVERFLOW


def test_large_unsigned_numbers_are_summed_exactly_or_refused() -> None:
    assert reduced("sum", pa.array([2**63 - 1], pa.uint64())) == [2**63 - 1]
    with pytest.raises(DataError):
        reduced("sum", pa.array([2**63], pa.uint64()))


def test_large_values_of_other_groups_do_not_stop_a_sum() -> None:
    values = pa.array([INT64_MAX, -INT64_MAX, 7])
    assert reduced("sum", values, ["a", "b", "c"]) == [INT64_MAX, -INT64_MAX, 7]


@pytest.mark.parametrize("values", [[{"a": 1}, None], [[1, 2], []]], ids=["structs", "lists"])
def test_dictionaries_of_nested_values_become_plain(values: list) -> None:
    indices = pa.array([1, 0, None], pa.int8())
    encoded = pa.chunked_array([pa.DictionaryArray.from_arrays(indices, pa.array(values))])
    assert plain_column(encoded).to_pylist() == [values[1], values[0], None]
    assert plain_column(pa.chunked_array([], encoded.type)).type == pa.array(values).type


def test_no_rows_make_no_groups() -> None:
    assert reduced("sum", pa.array([], pa.int64()), pa.array([], pa.string())) == []
    assert reduced("max", pa.array([], pa.float64()), pa.array([], pa.string())) == []
