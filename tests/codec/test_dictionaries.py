"""Columns with dictionaries are put together without another value coming out."""

from collections.abc import Callable
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from laminar_core.codec.dictionaries import can_be_joined, encoded, has_dictionary, joined
from laminar_core.errors import DataError, ErrorCode

HALVES = pa.array(np.array([1, 1.5, 2, 1], np.float16))
UUIDS = pa.uuid().wrap_array(pa.array([b"a" * 16, b"b" * 16, b"c" * 16, b"a" * 16], pa.binary(16)))
VALUES = {
    "half floats": HALVES,
    "half floats with NaN": pa.array(np.array([1, np.nan, 2, np.nan], np.float16)),
    "structs": pa.array([{"a": 1}, {"a": 2}, None, {"a": 1}]),
    "lists": pa.array([[1], [2, 3], [], None]),
    "identifiers": UUIDS,
    "texts and null": pa.array(["a", None, "b", "a"]),
    "short decimals": pa.array([Decimal(1), None, Decimal(2), Decimal(1)], pa.decimal32(5)),
    "dictionaries": pa.StructArray.from_arrays([pa.array([1, 2, 3, 1]).dictionary_encode()], ["a"]),
}


def in_struct(column: pa.Array) -> pa.Array:
    return pa.StructArray.from_arrays([column], ["s"], mask=pa.array([False, True, False, False]))


def in_list(column: pa.Array) -> pa.Array:
    offsets = pa.array([0, 1, 2, 2, 4], pa.int32())
    return pa.ListArray.from_arrays(offsets, column, mask=pa.array([False, True, False, False]))


def in_large_list(column: pa.Array) -> pa.Array:
    return pa.LargeListArray.from_arrays(pa.array([0, 1, 2, 2, 4]), in_struct(column))


def in_fixed_list(column: pa.Array) -> pa.Array:
    doubled = column.take(pa.array([0, 1, 2, 3, 3, 2, 1, 0]))
    mask = pa.array([False, False, True, False])
    return pa.FixedSizeListArray.from_arrays(doubled, type=pa.list_(column.type, 2), mask=mask)


def in_map(column: pa.Array) -> pa.Array:
    offsets = pa.array([0, 1, 1, 2, 4], pa.int32())
    return pa.MapArray.from_arrays(offsets, pa.array(["w", "x", "y", "z"]), column)


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize(
    "within", [pa.array, in_struct, in_list, in_large_list, in_fixed_list, in_map]
)
def test_dictionaries_of_any_values_are_united_at_any_depth(
    values: pa.Array, within: Callable[[pa.Array], pa.Array]
) -> None:
    places = [pa.array(at, pa.int8()) for at in ([0, 1, 2, 3], [3, None, 1, 0], [2, 2, 0, 1])]
    dictionaries = [values, values.take(pa.array([3, 2, 1, 0])), values]
    columns = [
        within(pa.DictionaryArray.from_arrays(at, of))
        for at, of in zip(places, dictionaries, strict=True)
    ]
    parts = [columns[0], columns[1].slice(1, 2), columns[0][:0], columns[2].slice(1)]
    found = joined(parts)
    found.validate(full=True)
    assert found.type == columns[0].type
    assert str(found.to_pylist()) == str([row for part in parts for row in part.to_pylist()])


def test_parts_with_equal_dictionaries_keep_them() -> None:
    part = pa.DictionaryArray.from_arrays(pa.array([1, 0], pa.int8()), UUIDS)
    assert len(joined([part] * 100).dictionary) == len(UUIDS)


@pytest.mark.parametrize("nested", [False, True])
def test_more_values_than_an_index_names_are_refused(*, nested: bool) -> None:
    def part(start: int, count: int) -> pa.Array:
        values = pa.array(np.arange(start, start + count), pa.float16())
        column = pa.DictionaryArray.from_arrays(pa.array(range(count), pa.int8()), values)
        return pa.StructArray.from_arrays([column], ["x"]) if nested else column

    assert len(joined([part(0, 64), part(64, 64)])) == 128
    with pytest.raises(DataError, match="more values together than an index can name") as caught:
        joined([part(0, 100), part(100, 29)])
    assert caught.value.code is ErrorCode.NOT_ENCODABLE


def test_types_in_which_dictionaries_cannot_be_united_are_refused() -> None:
    def part(at: int) -> pa.Array:
        column = pa.DictionaryArray.from_arrays(pa.array([0]), HALVES.slice(at, 1))
        return pa.ListViewArray.from_arrays(pa.array([0]), pa.array([1]), column)

    with pytest.raises(DataError, match=r"list_view<.*halffloat.*: leave out") as caught:
        joined([part(0), part(1)])
    assert caught.value.code is ErrorCode.NOT_ENCODABLE


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_no_null_is_in_a_dictionary_that_is_made(values: pa.Array) -> None:
    made = encoded(values)
    assert made.dictionary.type == values.type
    assert not made.dictionary.null_count
    assert str(made.to_pylist()) == str(values.to_pylist())


def test_dictionaries_are_found_at_any_depth_and_pyarrow_does_not_join_all_of_them() -> None:
    texts, halves = pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int8(), pa.float16())
    for within in (pa.list_, lambda of: pa.struct([("x", of)]), lambda of: pa.map_("string", of)):
        assert has_dictionary(within(texts))
        assert can_be_joined(within(texts))
        assert not can_be_joined(within(halves))
    assert not can_be_joined(pa.dictionary(pa.int8(), pa.uuid()))
    assert not has_dictionary(pa.list_(pa.uuid()))
    assert can_be_joined(pa.list_(pa.float16()))
