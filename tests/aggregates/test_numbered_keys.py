"""Numbers of keys: each row's leads back to its key, and no two keys share one."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_core.aggregates.numbered_keys import (
    ADDRESSES_PER_ROW_MAX,
    NumberedKeys,
    by_address,
    by_hash,
    by_index,
)

INTEGERS = [
    pa.int8(), pa.uint8(), pa.int16(), pa.uint16(),
    pa.int32(), pa.uint32(), pa.int64(), pa.uint64(),
]  # fmt: skip


def ends_of(data_type: pa.DataType) -> tuple[int, int]:
    bits, is_signed = data_type.bit_width, pa.types.is_signed_integer(data_type)
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed else (0, (1 << bits) - 1)


def keys_of_rows(numbered: NumberedKeys) -> list:
    return numbered.take(numbered.of_rows).to_pylist()


@st.composite
def close_integers(draw: st.DrawFn) -> pa.ChunkedArray:
    """Integers that are less far apart than addresses may be, often at an end of their type."""
    data_type = draw(st.sampled_from(INTEGERS))
    count = draw(st.integers(1, 30))
    low, high = ends_of(data_type)
    width = min(ADDRESSES_PER_ROW_MAX * count - 1, high - low)
    least = draw(st.sampled_from([low, high - width, max(low, min(-3, high - width))]))
    values = draw(st.lists(st.integers(least, least + width), min_size=count, max_size=count))
    array = pa.array([values[0], *values], data_type).slice(1)
    cut = draw(st.integers(0, count))
    return pa.chunked_array([array.slice(0, cut), array.slice(cut)])


@settings(deadline=None)
@given(close_integers())
def test_close_integers_are_numbered_in_ascending_order(key: pa.ChunkedArray) -> None:
    numbered = by_address(key)
    assert numbered is not None
    assert numbered.keys.type == key.type
    assert numbered.keys.to_pylist() == sorted(set(key.to_pylist()))
    assert keys_of_rows(numbered) == key.to_pylist()
    assert numbered.of_rows.dtype == np.intp


@settings(deadline=None)
@given(close_integers())
def test_by_hash_numbers_them_as_they_appear(key: pa.ChunkedArray) -> None:
    numbered = by_hash(key)
    assert numbered.keys.to_pylist() == list(dict.fromkeys(key.to_pylist()))
    assert keys_of_rows(numbered) == key.to_pylist()


@pytest.mark.parametrize("data_type", INTEGERS, ids=str)
def test_integers_too_far_apart_have_no_addresses(data_type: pa.DataType) -> None:
    low, high = ends_of(data_type)
    assert by_address(pa.chunked_array([pa.array([low, high], data_type)])) is None
    last = low + 2 * ADDRESSES_PER_ROW_MAX
    assert by_address(pa.chunked_array([pa.array([low, last - 1], data_type)])) is not None
    assert by_address(pa.chunked_array([pa.array([low, last], data_type)])) is None


@pytest.mark.parametrize("values", [["a"], [1.0], [b"a"], [True]], ids=str)
def test_other_keys_have_no_addresses(values: list) -> None:
    assert by_address(pa.chunked_array([values])) is None


def test_dictionaries_keep_their_numbers_and_come_back_as_such() -> None:
    indices = pa.array([2, 0, 2], pa.uint8())
    key = pa.DictionaryArray.from_arrays(indices, pa.array(["a", "b", "c"]))
    numbered = by_index(key)
    assert numbered.of_rows.tolist() == [2, 0, 2]
    assert numbered.take(np.array([1])).type == key.type
    assert keys_of_rows(numbered) == ["c", "a", "c"]
