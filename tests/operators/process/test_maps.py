"""Maps per key: entries put, read and removed for many keys at a time, and read whole."""

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from laminar_core.errors import ConfigurationError
from laminar_core.operators.process.keys import Keys
from laminar_core.operators.process.maps import KeyedMaps, MapState
from laminar_core.state.chunks import MemoryBackend

FIELDS = [pa.field("k", pa.string())]
ROWS = pa.record_batch({"k": ["b", "a", "b"], "e": ["x", "x", "y"], "v": [1, 2, 3]})
KEYS = Keys.of_rows(ROWS, ("k",), np.zeros(3, np.int64))


def opened(declared: MapState) -> KeyedMaps:
    return declared.opened("mine", declared.layout("held", FIELDS), MemoryBackend())


def test_entries_are_put_and_read_by_row() -> None:
    maps = opened(MapState(pa.string(), pa.int64()))
    entries = ROWS.column("e")
    assert maps.get(KEYS, entries).to_pylist() == [None, None, None]
    maps.put(KEYS, entries, ROWS.column("v"))
    assert maps.get(KEYS, entries).to_pylist() == [1, 2, 3]
    assert maps.get(KEYS, ["y", "y"]).to_pylist() == [3, None]
    assert maps.items(KEYS).to_pylist() == [[("x", 1), ("y", 3)], [("x", 2)]]
    maps.remove(KEYS, ["x", "nobody"])
    maps.put(KEYS, ["z", "x"], [9, None])
    assert maps.items(KEYS).to_pylist() == [[("y", 3), ("z", 9)], []]
    maps.clear(KEYS)
    assert maps.items(KEYS).to_pylist() == [[], []]


def test_of_equal_entries_the_last_counts() -> None:
    maps = opened(MapState(pa.string(), pa.int64()))
    maps.put(KEYS.take([0]), ["x", "y", "x"], [1, 2, 3])
    assert maps[KEYS.take([0])] == {"x": 3, "y": 2}


def test_a_single_key_has_a_dictionary() -> None:
    maps = opened(MapState(pa.int64(), pa.string()))
    for key, mine in KEYS.each(ROWS):
        maps.put(key, mine.column("v"), mine.column("e"))
        assert maps[key] == dict(
            zip(mine.column("v").to_pylist(), mine.column("e").to_pylist(), strict=True)
        )
        maps[key] = {7: "seven", 5: "five"}
        assert list(maps[key].items()) == [(5, "five"), (7, "seven")]


@pytest.mark.parametrize(
    ("key_type", "entries"),
    [
        (pa.float64(), [0.5, -2.0]),
        (pa.float16(), [np.float16(0.5), np.float16(-2.0)]),
        (pa.bool_(), [True, False]),
        (pa.date32(), [dt.date(2024, 1, 2), dt.date(2023, 1, 2)]),
        (pa.struct([("a", pa.int64())]), [{"a": 2}, {"a": 1}]),
        (pa.binary(), [b"b", b"a"]),
    ],
)
def test_entries_of_many_types(key_type: pa.DataType, entries: list[Any]) -> None:
    maps = opened(MapState(key_type, pa.int64()))
    key = KEYS.take([0])
    maps.put(key, entries, [1, 2])
    assert maps.get(key, entries).to_pylist() == [1, 2]
    assert [v for _, v in maps.items(key)[0].as_py()] == [2, 1]


def test_both_zeros_are_one_entry() -> None:
    maps = opened(MapState(pa.float64(), pa.int64()))
    maps.put(KEYS.take([0]), [0.0], [1])
    assert maps.get(KEYS.take([0]), [-0.0]).to_pylist() == [1]


@pytest.mark.parametrize(
    ("entries", "values", "problem"),
    [
        ([None, "x"], [1, 2], "was given null for an entry"),
        (["x", "y"], [1], "given 1 values for 2 entries"),
        ([1.5, 2.5], [1, 2], "holds string, and was given something else"),
        (["x"] * 4, [1] * 4, "given 4 values for 2 keys of 3 rows"),
    ],
)
def test_what_does_not_fit_is_refused(entries: Any, values: Any, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        opened(MapState(pa.string(), pa.int64())).put(KEYS, entries, values)


def test_entries_that_cannot_be_found_are_refused_when_declared() -> None:
    with pytest.raises(ConfigurationError, match="cannot be a key"):
        MapState(pa.list_(pa.int64()), pa.int64())
