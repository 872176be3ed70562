"""Finding rows of a table by key: all of them, in order, and in blocks if there are many."""

import random

import numpy as np
import pyarrow as pa
import pytest

from laminar_core.aggregates.key_index import MISSING
from laminar_core.operators.joins.output import OUTPUT_ROWS_MAX
from laminar_core.operators.lookups import table_index
from laminar_core.operators.lookups.table_index import TableIndex


def index(*keys: object) -> TableIndex:
    return TableIndex(pa.table({"k": keys}), pa.table({"n": range(len(keys))}))


def matches(found: TableIndex, keys: list, *, keeps_missing: bool = True) -> list[tuple]:
    numbers = found.find(pa.table({"k": pa.array(keys, pa.string())}))
    rows = found.rows.column("n").to_pylist()
    return [
        (position, None if place == MISSING else rows[place])
        for block in found.matches(numbers, keeps_missing=keeps_missing)
        for position, place in zip(*(one.tolist() for one in block), strict=True)
    ]


def test_every_row_of_a_key_is_found_and_null_is_not() -> None:
    found = index("a", "b", None, "a", "c")
    assert len(found) == 4
    assert found.repeated == ("a",)
    asked = ["c", None, "a", "z"]
    assert matches(found, asked) == [(0, 4), (1, None), (2, 0), (2, 3), (3, None)]
    assert matches(found, asked, keeps_missing=False) == [(0, 4), (2, 0), (2, 3)]
    assert matches(found, []) == []


def test_a_table_without_rows_finds_nothing() -> None:
    found = TableIndex(pa.table({"k": pa.array([], pa.string())}), pa.table({"n": []}))
    assert (len(found), found.repeated) == (0, None)
    assert matches(found, ["a"]) == [(0, None)]


def test_many_rows_are_found_as_a_dictionary_finds_them() -> None:
    drawn = random.Random(5)
    keys = [f"k{drawn.randrange(800)}" for _ in range(2_000)]
    asked = [f"k{drawn.randrange(1_000)}" for _ in range(3_000)]
    there: dict[str, list[int]] = {}
    for n, key in enumerate(keys):
        there.setdefault(key, []).append(n)
    wanted = [(p, n) for p, key in enumerate(asked) for n in there.get(key, [None])]
    assert matches(index(*keys), asked) == wanted


def test_a_key_with_many_rows_comes_in_blocks() -> None:
    found = index(*["a"] * 1_000)
    numbers = np.zeros(200, np.int64)
    blocks = [len(block[0]) for block in found.matches(numbers, keeps_missing=True)]
    assert sum(blocks) == 200_000
    assert max(blocks) == OUTPUT_ROWS_MAX


def test_keys_that_share_a_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_index, "_hashes", lambda keys: np.ones(keys.num_rows, np.uint64))
    assert matches(index("a", "b", "a"), ["b", "a", "c"]) == [(0, 1), (1, 0), (1, 2), (2, None)]
