"""Lists per key: appended to for many keys at a time, read whole, replaced and cleared."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from laminar_core.errors import ConfigurationError
from laminar_core.operators.process.keys import Keys
from laminar_core.operators.process.lists import KeyedLists, ListState
from laminar_core.state.chunks import MemoryBackend

FIELDS = [pa.field("k", pa.string())]
ROWS = pa.record_batch({"k": ["b", "a", "b"], "v": [1, 2, 3]})
KEYS = Keys.of_rows(ROWS, ("k",), np.zeros(3, np.int64))


def opened(declared: ListState) -> KeyedLists:
    return declared.opened("mine", declared.layout("held", FIELDS), MemoryBackend())


def test_rows_are_appended_to_the_lists_of_their_keys() -> None:
    lists = opened(ListState(pa.int64()))
    assert lists.get(KEYS).to_pylist() == [[], []]
    lists.append(KEYS, ROWS.column("v"))
    lists.append(KEYS, [10, 20])
    assert lists.get(KEYS).to_pylist() == [[1, 3, 10], [2, 20]]
    assert lists.get(KEYS).type == pa.list_(pa.int64())
    assert lists.get(KEYS.take([1, 0])).to_pylist() == [[2, 20], [1, 3, 10]]


def test_lists_are_replaced_and_cleared() -> None:
    lists = opened(ListState(pa.string()))
    lists.put(KEYS, [["x", None], ["y"]])
    lists.put(KEYS.take([0]), pa.array([["z"]]))
    assert lists.get(KEYS).to_pylist() == [["z"], ["y"]]
    lists.clear(KEYS.take([1]))
    lists.put(KEYS.take([0]), [None])
    assert lists.get(KEYS).to_pylist() == [[], []]


def test_null_is_a_value() -> None:
    lists = opened(ListState(pa.string()))
    lists.append(KEYS, [None, "y"])
    assert lists.get(KEYS).to_pylist() == [[None], ["y"]]


def test_a_single_key_has_a_list_of_python() -> None:
    lists = opened(ListState(pa.struct([("n", pa.int64())])))
    for key, mine in KEYS.each(ROWS):
        lists.append(key, [{"n": v} for v in mine.column("v").to_pylist()])
    (b, _), (a, _) = KEYS.each(ROWS)
    assert lists[b] == [{"n": 1}, {"n": 3}]
    lists[a] = []
    assert lists[a] == []


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (
            [1, 2, 3, 4],
            "'held' of process 'mine' was given 4 values for 2 keys of 3 rows: give one",
        ),
        (["x", "y"], "holds int64, and was given something else"),
    ],
)
def test_values_of_another_type_or_number_are_refused(values: Any, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        opened(ListState(pa.int64())).append(KEYS, values)


def test_as_many_lists_as_keys_are_put() -> None:
    with pytest.raises(ConfigurationError, match="given 1 lists for 2 keys"):
        opened(ListState(pa.int64())).put(KEYS, [[1]])


def test_a_value_is_gone_some_time_after_it_was_appended() -> None:
    lists = opened(ListState(pa.int64(), ttl="10 us"))
    for at in (0, 6):
        lists.append(Keys(KEYS.table, KEYS.of_row, np.full(2, at)), [at, at])
    later = [Keys(KEYS.table, KEYS.of_row, np.full(2, at)) for at in (10, 11, 17)]
    assert [lists.get(keys)[0].as_py() for keys in later] == [[0, 6], [6], []]
    with pytest.raises(ConfigurationError, match="soon"):
        ListState(pa.int64(), ttl="soon")
