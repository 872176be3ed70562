"""Values per key: read and written for many keys, typed, and removed by null."""

import numpy as np
import pyarrow as pa
import pytest

from laminar_core.errors import ConfigurationError
from laminar_core.operators.process.keys import Keys
from laminar_core.operators.process.values import KeyedValues, ValueState
from laminar_core.state.chunks import MemoryBackend
from tests.state.shelves import stored

FIELDS = [pa.field("k", pa.string())]


def opened(declared: ValueState) -> KeyedValues:
    return declared.opened("mine", declared.layout("held", FIELDS), MemoryBackend())


def keys(*names: str, at_us: int = 0) -> Keys:
    rows = pa.record_batch({"k": pa.array(names, pa.string())})
    return Keys.of_rows(rows, ("k",), np.full(len(names), at_us))


def test_a_key_has_null_until_a_value_is_put_and_after_it_is_removed() -> None:
    values = opened(ValueState(pa.int64()))
    assert values.get(keys("a", "b")).to_pylist() == [None, None]
    values.put(keys("a", "b", "c"), [1, 2, 3])
    values.put(keys("b", "d"), np.array([20, 40]))
    assert values.get(keys("d", "x", "b", "a")).to_pylist() == [40, None, 20, 1]
    values.put(keys("a", "b"), pa.array([None, 21], pa.int64()))
    assert values.get(keys("a", "b", "c")).to_pylist() == [None, 21, 3]
    assert values.get(keys()).to_pylist() == []


def test_a_single_key_has_a_value_of_python() -> None:
    values = opened(ValueState(pa.list_(pa.struct([("n", pa.int64())]))))
    values[keys("a")] = [{"n": 1}, {"n": 2}]
    assert values[keys("a")] == [{"n": 1}, {"n": 2}]
    values[keys("a")] = None
    assert values[keys("a")] is None
    with pytest.raises(AssertionError, match="these are 2 keys"):
        _ = values[keys("a", "b")]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ([1, 2, 3], "was given 3 values for 2 keys"),
        (["x", "y"], "'held' of process 'mine' holds int64, and was given something else"),
        (pa.array(["x", "y"]), "holds int64"),
        (pa.array([1.5, 2.0]), "holds int64"),
    ],
)
def test_values_of_another_type_or_number_are_refused(given, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        opened(ValueState(pa.int64())).put(keys("a", "b"), given)


def test_values_are_cast_if_nothing_is_lost() -> None:
    values = opened(ValueState(pa.int64()))
    values.put(keys("a"), pa.chunked_array([pa.array([7], pa.int8())]))
    assert values.get(keys("a")).to_pylist() == [7]


def test_what_replaces_a_value_never_expires_before_it() -> None:
    """Otherwise a segment could be dropped unread while that of the older value is kept."""
    values = opened(ValueState(pa.int64(), ttl="1 ms"))
    values.put(keys("a", at_us=100), [1])
    values.put(keys("a", at_us=95), [2])
    assert values.get(keys("a", at_us=1_099)).to_pylist() == [2]
    assert values.get(keys("a", at_us=1_100)).to_pylist() == [2]
    assert values.get(keys("a", at_us=1_101)).to_pylist() == [None]


def test_a_time_to_live_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="soon"):
        ValueState(pa.int64(), ttl="soon")


def test_removals_that_are_not_yet_written_stay_until_they_are() -> None:
    values = opened(ValueState(pa.int64()))
    many = keys(*(f"k{n}" for n in range(3_000)))
    values.put(many, np.arange(3_000))
    values.take_changes()
    values.put(many, pa.nulls(3_000))
    values.purge(0)
    assert stored(values.take_changes()).num_rows == 3_000
    values.purge(0)
    assert len(values) == 0
