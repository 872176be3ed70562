"""Keys of a call: each once, in the order of their first rows, with their newest event time."""

import numpy as np
import pyarrow as pa
import pytest

from laminar_core.operators.process.keys import Keys, distinct_prefix

ROWS = pa.record_batch(
    {
        "k": pa.array(["b", "a", None, "b", "a"]).dictionary_encode(),
        "n": pa.array([1, 1, 1, 1, 2]),
        "v": pa.array([10, 20, 30, 40, 50]),
    }
)
KEYS = Keys.of_rows(ROWS, ("k", "n"), np.array([5, 6, 7, 3, 9]))


def test_keys_are_distinct_and_rows_know_theirs() -> None:
    assert KEYS.table.to_pydict() == {"k": ["b", "a", None, "a"], "n": [1, 1, 1, 2]}
    assert KEYS.of_row.tolist() == [0, 1, 2, 0, 3]
    assert KEYS.times_us.tolist() == [5, 6, 7, 9]
    assert KEYS.column("n").to_pylist() == [1, 1, 1, 2]
    assert KEYS.times().cast(pa.int64()).to_pylist() == [5, 6, 7, 9]
    assert len(KEYS) == 4


@pytest.mark.parametrize("make", [pa.array, lambda ids: pa.array(map(str, ids))], ids=["i", "s"])
def test_many_keys_are_in_the_order_of_their_first_rows(make) -> None:
    """Goal: of rows with a key each, one value per row is one value per key."""
    ids = np.random.default_rng(7).permutation(2_000) * 7_919
    each = pa.record_batch({"id": make(ids)})
    keys = Keys.of_rows(each, ("id",), np.arange(2_000))
    assert keys.column("id").equals(each.column("id"))
    assert keys.of_row.tolist() == list(range(2_000))
    assert keys.times_us.tolist() == list(range(2_000))
    twice = pa.record_batch({"id": make(np.concatenate([ids, ids[::-1]]))})
    keys = Keys.of_rows(twice, ("id",), np.arange(4_000))
    assert keys.column("id").equals(each.column("id"))
    assert keys.of_row.tolist() == [*range(2_000), *reversed(range(2_000))]
    assert keys.times_us.tolist() == list(range(3_999, 1_999, -1))


def test_one_key_at_a_time_has_its_rows_in_their_order() -> None:
    found = [(key.values, rows.column("v").to_pylist()) for key, rows in KEYS.each(ROWS)]
    assert found == [(("b", 1), [10, 40]), (("a", 1), [20]), ((None, 1), [30]), (("a", 2), [50])]


def test_values_belong_to_rows_to_keys_or_to_the_only_key() -> None:
    assert KEYS.of_values(5).tolist() == KEYS.of_row.tolist()
    assert KEYS.of_values(4).tolist() == [0, 1, 2, 3]
    assert KEYS.of_values(3) is None
    assert KEYS.take([2]).of_values(3).tolist() == [0, 0, 0]
    (first, *_) = (key for key, _ in KEYS.each(ROWS))
    assert first.of_row.tolist() == [0, 0]


@pytest.mark.parametrize(
    "which",
    [
        [0, 3],
        np.array([0, 3]),
        np.array([True, False, False, True]),
        pa.array([True, False, False, True]),
    ],
)
def test_some_of_the_keys_are_taken_by_position_or_by_mask(which) -> None:
    some = KEYS.take(which)
    assert some.column("k").to_pylist() == ["b", "a"]
    assert some.times_us.tolist() == [5, 9]


def test_only_a_single_key_has_values() -> None:
    with pytest.raises(AssertionError, match="these are 4 keys"):
        _ = KEYS.values


@pytest.mark.parametrize(
    ("keys", "count"), [("", 0), ("a", 1), ("abc", 3), ("abca", 3), ("aab", 1), ("abcbba", 3)]
)
def test_a_prefix_without_repetition_is_as_long_as_it_can_be(keys: str, count: int) -> None:
    table = pa.table({"k": pa.array(list(keys), pa.string())})
    assert distinct_prefix(table, ("k",)) == count


def test_a_key_may_be_called_like_a_column_of_ours() -> None:
    name = "first row of the key"
    assert distinct_prefix(pa.table({name: [1, 2, 1]}), [name]) == 2
