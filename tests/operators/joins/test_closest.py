"""The last row at or before a time, against a loop over sorted rows."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_core.operators.joins.closest import Closest, Numbered, closest, numbered
from tests.sampling import drawn

Row = tuple[str, int, int]
"""Two keys and a time."""

ROWS = st.lists(
    st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 1), st.integers(0, 9)), max_size=20
)


def keys_of(rows: list[Row]) -> list[pa.ChunkedArray]:
    k, n, _ = zip(*rows, strict=True) if rows else ((), (), ())
    return [pa.chunked_array([pa.array(k, pa.string())]), pa.chunked_array([pa.array(n, "i8")])]


def closest_of(left: list[Row], right: list[Row], rows: pa.Table) -> Closest:
    keys = numbered(keys_of(left), keys_of(right))
    mine, theirs = (
        Numbered(numbers, np.array([row[2] for row in side], np.int64))
        for numbers, side in zip(keys, (left, right), strict=True)
    )
    return closest(mine, theirs, rows)


def found(left: list[Row], right: list[Row], values: list[int]) -> Closest:
    rows = pa.table({"v": pa.array(values, pa.int64()), "other": pa.nulls(len(values))})
    return closest_of(left, right, rows)


def last_at(rows: list[tuple[Row, int]], key: tuple, time: float) -> int | None:
    """Return the value of the last row of a key, the greatest of several at one time."""
    mine = [(row[2], value) for row, value in rows if row[:2] == key and row[2] <= time]
    return max(mine)[1] if mine else None


@settings(deadline=None, max_examples=drawn(150))
@given(ROWS, ROWS, st.randoms(use_true_random=False))
def test_partners_are_those_of_a_loop(left: list[Row], right: list[Row], random) -> None:
    values = [random.randrange(4) for _ in right]
    rows = list(zip(right, values, strict=True))
    result = found(left, right, values)
    assert [None if n < 0 else values[n] for n in result.partner] == [
        last_at(rows, row[:2], row[2]) for row in left
    ]
    assert {right[n][:2]: values[n] for n in result.last} == {
        key: last_at(rows, key, 99) for key in {row[:2] for row in right}
    }
    assert len(result.last) == len({row[:2] for row in right})


@pytest.mark.parametrize(
    "column",
    [
        pa.array([None, -1.0, 2.0, float("nan")]),
        pa.array([None, [1], [2, 1], [3]]),
        pa.array([None, 1, 2, 3], pa.duration("us")),
        pa.array(["", "a", "ab", "b"]),
        pa.array([False, False, False, True]),
        pa.array(np.array([0, 1, 2, 3], np.float16)),
    ],
)
def test_the_greatest_of_one_time_does_not_depend_on_the_order_of_arrival(column: pa.Array) -> None:
    rows = pa.table({"first": pa.nulls(4), "v": column})
    for order in ([0, 1, 2, 3], [3, 2, 1, 0], [2, 3, 0, 1]):
        right: list[Row] = [("a", 0, 5)] * 4
        result = closest_of([("a", 0, 5)], right, rows.take(pa.array(order)))
        assert order[result.partner[0]] == order[result.last[0]] == 3
