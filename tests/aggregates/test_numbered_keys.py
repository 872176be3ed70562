"""Numbers of keys: each row's leads back to its key, and no two keys share one."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_core.aggregates import numbered_keys
from laminar_core.aggregates.numbered_keys import (
    ADDRESSES_PER_ROW_MAX,
    SORTED_KEYS_MIN,
    SORTED_ROWS_MIN,
    NumberedKeys,
    by_address,
    by_hash,
    by_index,
    by_order,
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


@st.composite
def distant_integers(draw: st.DrawFn) -> pa.ChunkedArray:
    """Integers at an end of their type or around zero, as far apart as they can be sorted."""
    data_type = draw(st.sampled_from(INTEGERS))
    count = draw(st.integers(1, 40))
    low, high = ends_of(data_type)
    width = min((1 << 64 - (count - 1).bit_length()) - 1, high - low)
    middle = min(max(low, -(width // 2)), high - width)
    least = draw(st.sampled_from([low, high - width, middle]))
    some = st.lists(st.integers(least, least + width), min_size=count, max_size=count)
    values = draw(st.permutations([least, least + width, *draw(some)][:count]))
    array = pa.array([values[0], *values], data_type).slice(1)
    cut = draw(st.integers(0, count))
    return pa.chunked_array([array.slice(0, cut), array.slice(cut)])


@settings(deadline=None)
@given(distant_integers())
def test_distant_integers_are_numbered_in_ascending_order(key: pa.ChunkedArray) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(numbered_keys, "SORTED_ROWS_MIN", 0)
        patch.setattr(numbered_keys, "SORTED_KEYS_MIN", 0)
        numbered = by_order(key)
    assert numbered is not None
    assert numbered.keys.type == key.type
    assert numbered.keys.to_pylist() == sorted(set(key.to_pylist()))
    assert keys_of_rows(numbered) == key.to_pylist()
    assert numbered.of_rows.dtype == np.intp


def test_integers_that_leave_no_bits_for_their_rows_are_not_sorted() -> None:
    position_bits = (SORTED_ROWS_MIN - 1).bit_length()
    widest = (1 << 64 - position_bits) - 1
    keys = np.arange(SORTED_ROWS_MIN, dtype=np.uint64) * 1_000
    keys[-1] = widest
    assert by_order(pa.chunked_array([keys])) is not None
    keys[-1] = widest + 1
    assert by_order(pa.chunked_array([keys])) is None


def distant(count: int) -> np.ndarray:
    """Return this many different integers, in no order."""
    return np.random.default_rng(0).permutation(count) * 1_000


@pytest.mark.parametrize(
    "key",
    [
        np.concatenate([distant(SORTED_KEYS_MIN * 11 // 10)] * 4),
        distant(SORTED_ROWS_MIN),
        np.concatenate([distant(SORTED_ROWS_MIN * 3 // 4)] * 2)[:SORTED_ROWS_MIN],
    ],
    ids=["partial results of many keys", "all rows have another key", "most rows have"],
)
def test_many_keys_are_sorted(key: np.ndarray) -> None:
    numbered = by_order(pa.chunked_array([key]))
    assert numbered is not None
    assert keys_of_rows(numbered) == key.tolist()


@pytest.mark.parametrize(
    "key",
    [
        np.concatenate([distant(SORTED_KEYS_MIN * 9 // 10)] * 4),
        np.concatenate([np.sort(distant(5_000))] * 40),
        np.concatenate([distant(100_000), np.zeros(9, np.int64)])[-SORTED_ROWS_MIN + 1 :],
        np.repeat(distant(5_000), 20),
    ],
    ids=["partial results", "sorted partial results", "few rows", "rows in groups"],
)
def test_few_keys_are_not_sorted(key: np.ndarray) -> None:
    assert by_order(pa.chunked_array([key])) is None


@pytest.mark.parametrize("data_type", INTEGERS, ids=str)
def test_integers_too_far_apart_have_no_addresses(data_type: pa.DataType) -> None:
    low, high = ends_of(data_type)
    assert by_address(pa.chunked_array([pa.array([low, high], data_type)])) is None
    last = low + 2 * ADDRESSES_PER_ROW_MAX
    assert by_address(pa.chunked_array([pa.array([low, last - 1], data_type)])) is not None
    assert by_address(pa.chunked_array([pa.array([low, last], data_type)])) is None


@pytest.mark.parametrize("values", [["a"], [1.0], [b"a"], [True]], ids=str)
def test_other_keys_have_no_addresses_and_no_order(values: list) -> None:
    assert by_address(pa.chunked_array([values])) is None
    assert by_order(pa.chunked_array([values])) is None


def test_dictionaries_keep_their_numbers_and_come_back_as_such() -> None:
    indices = pa.array([2, 0, 2], pa.uint8())
    key = pa.DictionaryArray.from_arrays(indices, pa.array(["a", "b", "c"]))
    numbered = by_index(key)
    assert numbered.of_rows.tolist() == [2, 0, 2]
    assert numbered.take(np.array([1])).type == key.type
    assert keys_of_rows(numbered) == ["c", "a", "c"]
