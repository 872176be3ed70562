"""Any type as numbers: order, equality, hash."""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from laminar_core.aggregates.values import NULL_RANK, canonical, hashable, hashes, plain, ranks

NAN = float("nan")
ASCENDING = {
    pa.int8(): [-3, 0, 5],
    pa.uint64(): [0, 1, 2**64 - 1],
    pa.float16(): [np.float16(-1), np.float16(0), np.float16(2)],
    pa.float32(): [-1.5, 0.0, 2.0],
    pa.float64(): [-1.5, 2.0, NAN],
    pa.decimal32(5, 2): [Decimal("-1.50"), Decimal("0.10"), Decimal("2.00")],
    pa.decimal128(38, 2): [Decimal("-1.50"), Decimal("0.10"), Decimal("2.00")],
    pa.decimal256(60, 2): [Decimal("-1.50"), Decimal("0.10"), Decimal("2.00")],
    pa.string(): ["", "a", "b"],
    pa.large_string(): ["", "a", "b"],
    pa.binary(): [b"", b"a", b"\xff"],
    pa.large_binary(): [b"", b"a", b"\xff"],
    pa.binary(2): [b"aa", b"ab", b"ba"],
}
NUMBERED = [
    pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"),
    pa.timestamp("s"), pa.timestamp("ns", "Europe/Berlin"), pa.duration("s"), pa.duration("ns"),
]  # fmt: skip


def ascending(data_type: pa.DataType) -> pa.Array:
    if data_type in ASCENDING:
        return pa.array(ASCENDING[data_type], data_type)
    day_ms = 86_400_000
    unit = day_ms if pa.types.is_date64(data_type) else 1
    storage = pa.int32() if data_type.bit_width == 32 else pa.int64()
    return pa.array([0, 5 * unit, 7 * unit], storage).view(data_type)


ALL = [*ASCENDING, *NUMBERED]


def as_order(found: np.ndarray) -> list[int]:
    """Ranks without gaps, 0 for null."""
    order = sorted({NULL_RANK, *found.tolist()})
    return [order.index(rank) for rank in found.tolist()]


@pytest.mark.parametrize("data_type", ALL, ids=str)
def test_ranks_are_the_order_of_values(data_type: pa.DataType) -> None:
    values = ascending(data_type).take(pa.array([2, None, 0, 1, 2]))
    assert as_order(ranks(values)) == [3, 0, 1, 2, 3]


@pytest.mark.parametrize("data_type", ALL, ids=str)
def test_equal_values_hash_alike_and_others_do_not(data_type: pa.DataType) -> None:
    found = hashes(ascending(data_type).take(pa.array([2, None, 0, 1, 2, None])))
    assert (found[0] == found[4], found[1] == found[5]) == (True, True)
    assert len(set(found.tolist())) == 4


def test_there_is_one_nan_and_one_zero() -> None:
    other_nan = np.frombuffer(np.uint64(0xFFF8000000000001).tobytes(), np.float64)[0]
    values = pa.array([NAN, other_nan, 0.0, -0.0, None])
    assert canonical(values).to_numpy(zero_copy_only=False)[:4].tobytes() == (
        np.array([NAN, NAN, 0.0, 0.0]).tobytes()
    )
    assert as_order(ranks(values)) == [2, 2, 1, 1, 0]
    assert len(set(hashes(values).tolist())) == 3


def test_nothing_but_nulls_has_ranks_and_hashes() -> None:
    for data_type in (pa.null(), pa.string(), pa.decimal128(5, 2)):
        assert ranks(pa.nulls(2, data_type)).tolist() == [NULL_RANK, NULL_RANK]
        assert len(set(hashes(pa.nulls(2, data_type)).tolist())) == 1


def test_dictionaries_are_their_values() -> None:
    encoded = pa.array(["b", "a", None, "b"]).dictionary_encode()
    assert plain(encoded).type == pa.string()
    assert as_order(ranks(encoded)) == [2, 1, 0, 2]
    assert hashable(encoded).to_pylist() == ["b", "a", None, "b"]


def test_a_slice_is_like_a_fresh_array() -> None:
    for data_type in ALL:
        whole = ascending(data_type)
        assert hashes(whole.slice(1)).tolist() == hashes(whole).tolist()[1:]


@pytest.mark.parametrize("data_type", [pa.int64(), pa.uint64()], ids=str)
def test_the_smallest_number_is_not_null(data_type: pa.DataType) -> None:
    smallest = 0 if data_type == pa.uint64() else -(2**63)
    values = pa.array([smallest, None, smallest + 1, 2**62], data_type)
    assert as_order(ranks(values)) == [1, 0, 2, 3]
    assert NULL_RANK not in ranks(values.drop_null())


def test_floats_rank_as_they_compare() -> None:
    values = [-np.inf, -1e300, -1.0, -5e-324, 0.0, 5e-324, 1.0, 1e300, np.inf, NAN]
    assert as_order(ranks(pa.array(values)))[0] == 1
    assert np.all(np.diff(ranks(pa.array(values))) > 0)
    assert np.all(np.diff(ranks(pa.array([None, *values]).slice(1))) > 0)
