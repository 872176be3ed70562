"""Keys that pyarrow cannot group by become columns that it can, and come back the same."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from laminar_core.aggregates.group_keys import flat_keys, restored_key
from laminar_core.aggregates.grouping import Reduction, group

INNER = pa.struct([("x", pa.float32()), ("flag", pa.bool_())])
KEY = pa.struct([("word", pa.string()), ("in", INNER)])
INNERS = st.none() | st.fixed_dictionaries(
    {
        "x": st.none() | st.sampled_from([0.0, -0.0, 1.5, float("nan")]),
        "flag": st.none() | st.booleans(),
    }
)
KEYS = st.none() | st.fixed_dictionaries(
    {"word": st.none() | st.sampled_from(["", "a"]), "in": INNERS}
)


def as_text(values: list) -> list[str]:
    """Compare with one NaN and one zero."""
    return [str(value).replace("-0.0", "0.0") for value in values]


@settings(deadline=None)
@given(keys=st.lists(KEYS, max_size=30), start=st.integers(0, 3))
def test_structs_come_back_the_same(keys: list, start: int) -> None:
    column = pa.chunked_array([pa.array(keys, KEY)]).slice(start)
    restored = restored_key(KEY, iter(flat_keys(column)))
    assert restored.type == KEY
    assert as_text(restored.to_pylist()) == as_text(column.to_pylist())


@settings(deadline=None)
@given(keys=st.lists(KEYS, max_size=30))
def test_groups_are_those_of_equal_values(keys: list) -> None:
    """Goal: null, a struct of nulls, NaN and both zeros, as Python tells them apart by text."""
    expected: dict[str, int] = {}
    column = pa.array(keys, KEY)
    for key in as_text(column.to_pylist()):
        expected[key] = expected.get(key, 0) + 1
    by = {
        "other": pa.chunked_array([["x"] * len(keys)]),
        "k": pa.chunked_array([column]),
    }
    found = group(by, pa.table({"v": keys}), [Reduction("n", "count", None)])
    assert found.column_names == ["other", "k", "n"]
    texts = as_text(found.column("k").to_pylist())
    assert dict(zip(texts, found.column("n").to_pylist(), strict=True)) == expected
    assert len(texts) == len(expected)


@pytest.mark.parametrize("data_type", [pa.float16(), pa.float32(), pa.float64()], ids=str)
def test_floats_of_any_width_group_by_value(data_type: pa.DataType) -> None:
    keys = pa.array([0.0, float("nan"), -0.0, None, float("nan"), 2.0]).cast(data_type)
    found = group(
        {"k": pa.chunked_array([keys])}, pa.table({"v": keys}), [Reduction("n", "count", None)]
    )
    assert found.column("k").type == data_type
    counts = zip(
        map(str, found.column("k").to_pylist()), found.column("n").to_pylist(), strict=True
    )
    assert sorted(counts) == [("0.0", 2), ("2.0", 1), ("None", 1), ("nan", 2)]


@pytest.mark.parametrize(
    "values", [pa.array([0.0, -0.0]), pa.array([{"x": 1}, {"x": 1}])], ids=["floats", "structs"]
)
def test_a_dictionary_with_one_key_twice_is_one_group(values: pa.Array) -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([1, 0, 1]), values)
    found = group({"k": pa.chunked_array([column])}, pa.table({"v": column}), [])
    assert found.column("k").to_pylist() == values.to_pylist()[:1]


def test_other_keys_are_grouped_as_they_are() -> None:
    for column in (pa.array(["a", None]), pa.array(["a"]).dictionary_encode(), pa.nulls(1)):
        key = pa.chunked_array([column])
        assert flat_keys(key) == [key]
        assert restored_key(key.type, iter([key])) is key


@pytest.mark.spark
def test_spark_groups_alike(spark: SparkSession) -> None:
    """Spark shows one zero and one NaN, and tells a null struct from a struct of nulls."""
    nan = float("nan")
    keys = [{"x": 0.0}, {"x": -0.0}, {"x": nan}, {"x": -nan}, {"x": None}, None, {"x": 1.5}]
    table = pa.table(
        {
            "x": pa.array([key and key["x"] for key in keys], pa.float64()),
            "s": pa.array(keys, pa.struct([("x", pa.float64())])),
        }
    )
    for name in table.column_names:
        theirs = spark.createDataFrame(table).groupBy(name).count().toArrow()
        mine = group({name: table.column(name)}, table, [Reduction("count", "count", None)])
        assert sorted(map(str, mine.to_pylist())) == sorted(map(str, theirs.to_pylist()))
