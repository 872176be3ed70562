"""The total order of rows, against sorted lists."""

import math
import random
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from laminar_core.aggregates.row_order import ascending, places, ranks_of, stable_order, total_order

NAN = float("nan")


@pytest.mark.parametrize(
    "column",
    [
        pa.array([None, -math.inf, -1.0, -0.5, 0.0, 2.0, math.inf, NAN]),
        pa.array(np.array([-2, 0, 1, 3], np.float16)),
        pa.array([None, -(2**63), -1, 0, 2**63 - 1]),
        pa.array([None, 0, 1, 2**64 - 1], pa.uint64()),
        pa.array([None, "", "a", "ab", "b", "ä"]),
        pa.array([None, b"", b"a"], pa.binary()),
        pa.array([None, False, True]),
        pa.array([None, Decimal("-1.5"), Decimal("0.0"), Decimal("10.0")]),
        pa.array([None, -5, 0, 7], pa.timestamp("ns", "UTC")),
        pa.array([None, -5, 0, 7], pa.duration("s")),
        pa.array([None, -5, 0, 7], pa.date32()),
        pa.array([None, 0, 7], pa.time64("us")),
        pa.array([None, [1], [2, 1], [3]]),
        pa.array([None, {"a": 1}, {"a": 2}]),
    ],
    ids=lambda column: str(column.type),
)
def test_values_of_each_type_are_ordered_and_null_is_least(column: pa.Array) -> None:
    shuffled = list(range(len(column)))
    random.Random(1).shuffle(shuffled)
    taken = pa.chunked_array([column.take(pa.array(shuffled))])
    ranks = ranks_of(taken)
    order = np.lexsort(ranks[::-1])
    assert [shuffled[place] for place in order] == list(range(len(column)))
    downwards = np.lexsort([~rank for rank in ranks][::-1])
    assert [shuffled[place] for place in downwards] == list(range(len(column)))[::-1]


def test_both_zeros_are_equal_and_so_is_every_nan() -> None:
    odd = np.array([0x7FF8000000000001], np.uint64).view(np.float64)[0]
    [rank] = ranks_of(pa.chunked_array([pa.array([0.0, -0.0, NAN, -NAN, odd])]))
    assert rank[0] == rank[1]
    assert rank[2] == rank[3] == rank[4]
    assert ranks_of(pa.chunked_array([pa.nulls(2)])) == []


@pytest.mark.parametrize("descending", [False, True])
def test_ties_are_decided_by_all_columns(*, descending: bool) -> None:
    drawn = random.Random(3)
    for _ in range(30):
        rows = [(drawn.randrange(3), drawn.randrange(2), drawn.choice("ab")) for _ in range(20)]
        numbers, firsts, texts = zip(*rows, strict=True)
        table = pa.table({"v": firsts, "s": texts})
        order = total_order([np.array(numbers)], table, descending=descending)
        found = [rows[place] for place in order]
        wanted = sorted(rows, key=lambda row: row[1:], reverse=descending)
        assert found == sorted(wanted, key=lambda row: row[0])


def test_equal_rows_keep_their_order_and_rows_without_ties_are_not_looked_at() -> None:
    table = pa.table({"v": [1, 1, 0, 1]})
    assert total_order([np.zeros(4, np.int64)], table).tolist() == [2, 0, 1, 3]
    assert total_order([np.array([2, 0, 1, 3])], table).tolist() == [1, 2, 0, 3]
    assert total_order([np.empty(0, np.int64)], table.slice(0, 0)).tolist() == []


@pytest.mark.parametrize("spread", [1, 5, 2**20, 2**62])
def test_the_order_is_stable_however_many_bits_the_ranks_need(spread: int) -> None:
    drawn = np.random.default_rng(4)
    for count in (0, 1, 2, 500):
        ranks = [drawn.integers(-spread, spread, count) for _ in range(3)]
        assert stable_order(ranks).tolist() == np.lexsort(ranks[::-1]).tolist()


def test_places_begin_anew_with_each_group() -> None:
    assert places(np.array([4, 4, 5, 9, 9, 9])).tolist() == [0, 1, 0, 0, 1, 2]
    assert places(np.empty(0, np.int64)).tolist() == []


@pytest.mark.parametrize(
    "column",
    [
        pa.array(np.array([-2, 0, 1, 3], np.float16)),
        pa.array([-1.0, 2.0, NAN, None]),
        pa.array([Decimal("-1.5"), Decimal("10.0"), None], pa.decimal32(3, 1)),
        pa.array([-5, 7, None], pa.duration("s")),
        pa.array(["", "a", "b", None]),
        pa.array([{"half": np.float16(-2)}, {"half": np.float16(3)}]),
    ],
    ids=lambda column: str(column.type),
)
def test_keys_of_any_type_ascend_with_nulls_last(column: pa.Array) -> None:
    first = pa.chunked_array([[0] * len(column)])
    backwards = pa.chunked_array([column.take(pa.array(range(len(column))[::-1]))])
    found = backwards.take(ascending([first, backwards]))
    assert str(found.to_pylist()) == str(column.to_pylist())
