"""The frozen hash: golden values, and a reference in plain Python that must always agree."""

import json
import math
import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import reduce
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_core.codec.stable_hash import hash_array, hash_columns, key_form
from laminar_core.errors import ConfigurationError, ErrorCode

GOLDEN = json.loads((Path(__file__).parents[1] / "golden/stable_hash.json").read_text())
MASK = 2**64 - 1
G = 0x9E3779B97F4A7C15


def mix(x: int) -> int:
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 & MASK
    x ^= x >> 27
    x = x * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def fold(a: int, b: int) -> int:
    return mix((a * G + b) & MASK)


def reference(value: object) -> int:
    """Follow the module's definition word for word."""
    if value is None:
        return mix(1)
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, bytes):
        lanes = [value[i : i + 8].ljust(8, b"\0") for i in range(0, len(value), 8)]
        total = sum(fold(k + 1, int.from_bytes(lane, "little")) for k, lane in enumerate(lanes))
        return fold(1 + len(value), total & MASK)
    if isinstance(value, float):
        known = float("nan") if math.isnan(value) else value + 0.0
        return fold(1, int.from_bytes(struct.pack("<d", known), "little"))
    if isinstance(value, dict):
        first, *more = (reference(part) for part in value.values())
        return fold(2, reduce(fold, more, first))
    return fold(1, int(value) & MASK)


def hashes_of(array: pa.Array) -> list[int]:
    return hash_array(array).tolist()


def array_of(entry: dict) -> pa.Array:
    values = entry["values"]
    if entry["type"].endswith("binary"):
        values = [None if value is None else bytes.fromhex(value) for value in values]
    if entry["type"] in ("float", "double"):
        values = [None if value is None else float(value) for value in values]
    return pa.array(values, pa.type_for_alias(entry["type"]))


@pytest.mark.parametrize("entry", GOLDEN["columns"], ids=lambda entry: entry["type"])
def test_golden_values_never_change(entry: dict) -> None:
    assert [f"{h:016x}" for h in hashes_of(array_of(entry))] == entry["hashes"]


def test_golden_structs_never_change() -> None:
    entry = GOLDEN["structs"]
    fields = [array_of(field) for field in entry["fields"]]
    structs = pa.StructArray.from_arrays(fields, ["a", "b"], mask=pa.array(entry["null"]))
    assert [f"{h:016x}" for h in hashes_of(structs)] == entry["hashes"]


def test_golden_rows_of_several_columns_never_change() -> None:
    columns = [array_of(entry) for entry in GOLDEN["rows"]["columns"]]
    hashes = hash_columns(columns, len(columns[0])).tolist()
    assert [f"{h:016x}" for h in hashes] == GOLDEN["rows"]["hashes"]


def test_zero_hashes_to_the_first_number_of_splitmix64() -> None:
    assert hashes_of(pa.array([0])) == [0xE220A8397B1DCDAF]


INTEGER_TYPES = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]
INTEGER_TYPES += [pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]


@pytest.mark.parametrize("data_type", INTEGER_TYPES, ids=str)
@settings(deadline=None)
@given(data=st.data())
def test_integers_agree_with_the_reference(data: st.DataObject, data_type: pa.DataType) -> None:
    low = 0 if pa.types.is_unsigned_integer(data_type) else -(2 ** (data_type.bit_width - 1))
    high = low + 2**data_type.bit_width - 1
    values = data.draw(st.lists(st.none() | st.integers(low, high)))
    assert hashes_of(pa.array(values, data_type)) == [reference(v) for v in values]


TEXT_TYPES = [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()]


@pytest.mark.parametrize("data_type", TEXT_TYPES, ids=str)
@settings(deadline=None)
@given(values=st.lists(st.none() | st.text(max_size=40), max_size=200))
def test_text_agrees_with_the_reference(values: list, data_type: pa.DataType) -> None:
    array = pa.array([v if v is None else v.encode() for v in values], pa.binary())
    assert hashes_of(array.cast(data_type)) == [reference(v) for v in values]


@settings(deadline=None)
@given(
    lengths=st.lists(st.integers(0, 70), min_size=60, max_size=140),
    long=st.lists(st.integers(500, 5_000), max_size=3),
)
def test_text_hashes_alike_whether_many_or_few_values_are_as_long(
    lengths: list[int], long: list[int]
) -> None:
    """Goal: the passes over all values and the one over the last few agree, at any boundary."""
    values = [bytes((i * 31 + j) % 251 for j in range(n)) for i, n in enumerate(lengths + long)]
    assert hashes_of(pa.array(values)) == [reference(value) for value in values]


@settings(deadline=None)
@given(
    values=st.lists(st.none() | st.text(max_size=20), min_size=1, max_size=100),
    data=st.data(),
)
def test_a_slice_hashes_like_a_fresh_array(values: list, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(values)))
    stop = data.draw(st.integers(start, len(values)))
    numbers = [None if value is None else len(value) for value in values]
    fresh = [reference(value) for value in values[start:stop]]
    text = pa.array(values, pa.string())
    for column in (text, text.dictionary_encode()):
        assert hashes_of(column.slice(start, stop - start)) == fresh
    fresh = [reference(number) for number in numbers[start:stop]]
    for data_type in (pa.int8(), pa.int64()):
        assert hashes_of(pa.array(numbers, data_type).slice(start, stop - start)) == fresh
    flags = [None if number is None else number > 3 for number in numbers]
    fresh = [reference(flag) for flag in flags[start:stop]]
    assert hashes_of(pa.array(flags, pa.bool_()).slice(start, stop - start)) == fresh


@settings(deadline=None)
@given(st.lists(st.none() | st.sampled_from(["a", "bb", "", "ccc" * 9]), max_size=50))
def test_a_dictionary_hashes_like_its_values(values: list) -> None:
    dictionary = pa.array(["unused", *["a", "bb", "", "ccc" * 9], None])
    for index_type in (pa.int8(), pa.uint16(), pa.int32()):
        indices = pa.array([None if v is None else dictionary.index(v).as_py() for v in values])
        array = pa.DictionaryArray.from_arrays(indices.cast(index_type), dictionary)
        assert hashes_of(array) == [reference(value) for value in values]


def test_a_null_inside_a_dictionary_is_a_null() -> None:
    array = pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), pa.array(["a", None]))
    assert hashes_of(array) == [reference("a"), reference(None), reference(None)]


def test_a_full_dictionary_of_bytes_has_room_for_null() -> None:
    dictionary = pa.array([str(i) for i in range(128)])
    indices = pa.array([*range(128), None], pa.int8())
    values = [*dictionary.to_pylist(), None]
    array = pa.DictionaryArray.from_arrays(indices, dictionary)
    assert hashes_of(array) == [reference(value) for value in values]


def test_what_lies_under_a_null_does_not_matter() -> None:
    validity = pa.py_buffer(b"\x05")  # Valid, null, valid.
    numbers = pa.py_buffer(np.array([1, 99, 3]).tobytes())
    text = pa.array(["one", "under", "three"])
    _, offsets, data = text.buffers()
    assert hashes_of(pa.Array.from_buffers(pa.int64(), 3, [validity, numbers])) == [
        reference(1), reference(None), reference(3),
    ]  # fmt: skip
    assert hashes_of(pa.Array.from_buffers(pa.string(), 3, [validity, offsets, data])) == [
        reference("one"), reference(None), reference("three"),
    ]  # fmt: skip


def test_one_instant_hashes_alike_in_every_unit_and_zone() -> None:
    instant = datetime(2024, 5, 17, 12, 30, tzinfo=UTC)
    microseconds = int(instant.timestamp()) * 1_000_000
    for unit in ("s", "ms", "us", "ns"):
        for zone in (None, "UTC", "Europe/Zurich"):
            array = pa.array([instant.replace(tzinfo=None)], pa.timestamp(unit))
            array = array.cast(pa.int64()).cast(pa.timestamp(unit, zone))
            assert hashes_of(array) == [reference(microseconds)]


def test_a_date_hashes_as_its_day() -> None:
    assert hashes_of(pa.array([date(1970, 1, 11), date(1969, 12, 31), None])) == [
        reference(10), reference(-1), reference(None),
    ]  # fmt: skip


def test_times_and_durations_hash_as_their_microseconds() -> None:
    expected = [reference(5_000_000), reference(None), reference(0)]
    for data_type in (
        pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"),
        pa.duration("s"), pa.duration("ms"), pa.duration("us"), pa.duration("ns"),
    ):  # fmt: skip
        per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[data_type.unit]
        storage = pa.int32() if data_type.bit_width == 32 else pa.int64()
        assert hashes_of(pa.array([5 * per_second, None, 0], storage).view(data_type)) == expected
    days = pa.array([86_400_000, -86_400_000, None], pa.int64()).view(pa.date64())
    assert hashes_of(days) == [reference(1), reference(-1), reference(None)]


def test_decimals_hash_as_their_digits_whatever_the_precision() -> None:
    values = [Decimal("-1.25"), None, Decimal("0.00"), Decimal("123.45")]
    digits = [-125, None, 0, 12_345]
    expected = [d if d is None else d.to_bytes(32, "little", signed=True) for d in digits]
    for data_type in (pa.decimal32(5, 2), pa.decimal64(9, 2), pa.decimal128(9, 2)):
        assert hashes_of(pa.array(values, data_type)) == [reference(v) for v in expected]
    wide = pa.array([None, *values], pa.decimal256(70, 2)).slice(1)
    assert hashes_of(wide) == [reference(v) for v in expected]


def test_fixed_binary_hashes_as_binary_and_the_null_type_as_null() -> None:
    assert hashes_of(pa.array([b"ab", None], pa.binary(2))) == [reference(b"ab"), reference(None)]
    assert hashes_of(pa.nulls(2)) == [reference(None)] * 2


def test_the_order_of_columns_matters() -> None:
    a, b = pa.array(["x", "y", None]), pa.array([1, 2, 3])
    values = zip(a.to_pylist(), b.to_pylist(), strict=True)
    assert hash_columns([a, b], 3).tolist() == [fold(reference(x), reference(y)) for x, y in values]
    assert hash_columns([a, b], 3).tolist() != hash_columns([b, a], 3).tolist()


def test_without_columns_all_rows_hash_alike() -> None:
    assert hash_columns([], 3).tolist() == [0, 0, 0]


@pytest.mark.parametrize("data_type", [*INTEGER_TYPES, *TEXT_TYPES, pa.bool_(), pa.date32()])
def test_an_empty_column_has_no_hashes(data_type: pa.DataType) -> None:
    assert hashes_of(pa.array([], data_type)) == []
    assert hashes_of(pa.array([], data_type).dictionary_encode()) == []


def test_hashing_leaves_its_input_alone() -> None:
    array = pa.array([1, 2, 3])
    hash_columns([array, array], 3)
    assert array.to_pylist() == [1, 2, 3]


@pytest.mark.parametrize("data_type", [pa.float16(), pa.float32(), pa.float64()], ids=str)
@settings(deadline=None)
@given(data=st.data())
def test_floats_agree_with_the_reference(data: st.DataObject, data_type: pa.DataType) -> None:
    values = data.draw(st.lists(st.none() | st.floats(width=data_type.bit_width)))
    array = pa.array([None if v is None else np.float64(v) for v in values], pa.float64())
    narrow = array.cast(data_type)
    assert hashes_of(narrow) == [reference(v) for v in values]
    assert hashes_of(narrow.slice(len(values) // 2)) == hashes_of(narrow)[len(values) // 2 :]
    assert hashes_of(array) == hashes_of(narrow), "a wider type moves no key"


def test_every_nan_is_one_key_and_so_are_both_zeros() -> None:
    bits = [0x7FF8000000000000, 0xFFF8000000000000, 0x7FF0000000000001, 0x7FFFFFFFFFFFFFFF]
    numbers = pa.array(np.array(bits, np.uint64)).view(pa.float64())
    assert len(set(hashes_of(numbers))) == 1
    assert hashes_of(pa.array([-0.0])) == hashes_of(pa.array([0.0])) == [reference(0.0)]
    repeated = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array([0.0, -0.0]))
    assert len(set(hashes_of(repeated))) == 1


STRUCT = pa.struct(
    [("text", pa.string()), ("x", pa.float64()), ("in", pa.struct([("n", pa.int8())]))]
)
INNER = st.none() | st.fixed_dictionaries({"n": st.none() | st.integers(-128, 127)})
STRUCTS = st.none() | st.fixed_dictionaries(
    {"text": st.none() | st.text(max_size=9), "x": st.none() | st.floats(), "in": INNER}
)


@settings(deadline=None)
@given(values=st.lists(STRUCTS, max_size=20), data=st.data())
def test_structs_agree_with_the_reference(values: list, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(values)))
    array = pa.array(values, STRUCT)
    assert hashes_of(array.slice(start)) == [reference(v) for v in array.to_pylist()[start:]]
    renamed = pa.StructArray.from_arrays(array.flatten(), list("abc"), mask=array.is_null())
    assert hashes_of(renamed) == hashes_of(array)


@pytest.mark.parametrize(
    "data_type",
    [
        pa.list_(pa.int8()),
        pa.string_view(),
        pa.month_day_nano_interval(),
        pa.struct([]),
        pa.struct([("in", pa.list_(pa.int8()))]),
        pa.struct([("in", pa.dictionary(pa.int8(), pa.string()))]),
    ],
    ids=str,
)
def test_other_types_are_refused_with_those_that_work(data_type: pa.DataType) -> None:
    with pytest.raises(ConfigurationError, match="keys are integers") as caught:
        hash_array(pa.array([], data_type))
    assert caught.value.code is ErrorCode.UNSUPPORTED_TYPE


@pytest.mark.parametrize(
    "alike",
    [
        [pa.array([0, 1, 127], t) for t in (pa.int8(), pa.int32(), pa.uint16(), pa.int64())],
        [pa.array(["", "a", "ß"], t) for t in (pa.string(), pa.large_string())],
        [pa.array(["a", "b"]), pa.array(["a", "b"]).dictionary_encode()],
        [pa.array([b"ab", b"cd"], t) for t in (pa.binary(), pa.large_binary(), pa.binary(2))],
        [pa.array([Decimal("1.50")], t) for t in (pa.decimal128(5, 2), pa.decimal256(40, 2))],
        [pa.array([date(2026, 1, 2)], t) for t in (pa.date32(), pa.date64())],
        [pa.array([7_000], pa.timestamp("ms")), pa.array([7], pa.timestamp("s", "UTC"))],
        [pa.array([7_000], pa.duration("ms")), pa.array([7], pa.duration("s"))],
        [pa.array([7_000], pa.time32("ms")), pa.array([7], pa.time32("s"))],
        [pa.array([True, False])],
        [pa.nulls(2)],
    ],
    ids=lambda alike: " and ".join(str(array.type) for array in alike),
)
def test_columns_of_one_form_hash_equal_values_alike(alike: list[pa.Array]) -> None:
    assert len({key_form(array.type) for array in alike}) == 1
    assert len({tuple(hashes_of(array)) for array in alike}) == 1


def test_a_decimal_of_another_scale_has_another_form_and_hash() -> None:
    one, other = (pa.array([Decimal("1.5")], pa.decimal128(9, n)) for n in (1, 2))
    assert key_form(one.type) != key_form(other.type)
    assert hashes_of(one) != hashes_of(other)


def test_what_cannot_be_a_key_has_no_form() -> None:
    with pytest.raises(ConfigurationError, match="cannot be a key"):
        key_form(pa.list_(pa.int64()))
