"""Accumulators: what is kept, that merging halves is the whole, and that Spark agrees."""

import itertools
import math
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.state.accumulators import (
    Accumulator,
    Aggregate,
    accumulate,
    accumulator_type,
    accumulators_of,
    finish,
    merge,
    result_type,
)

FUNCTIONS = ("count", "sum", "min", "max", "avg")
ALL = tuple(Aggregate(function, "v", function) for function in FUNCTIONS)
NAN = float("nan")


def aggregated(parts: Sequence[pa.Table], aggregates: Sequence[Aggregate]) -> list[dict]:
    """Accumulate each part, merge them, finish: what a pipeline does."""
    needed = accumulators_of(aggregates)
    halves = [accumulate({"k": part.column("k")}, part, needed) for part in parts]
    merged = merge(pa.concat_tables(halves), ["k"], needed)
    results = {aggregate.name: finish(merged, aggregate) for aggregate in aggregates}
    return pa.table({"k": merged.column("k"), **results}).to_pylist()


def keyed(values: pa.Array, keys: Sequence[object] | None = None) -> pa.Table:
    return pa.table({"k": ["a"] * len(values) if keys is None else keys, "v": values})


def test_aggregates_share_accumulators() -> None:
    assert [needs.name for needs in accumulators_of(ALL)] == [
        "count(*)", "count(v)", "sum(v)", "min(v)", "max(v)",
    ]  # fmt: skip


def test_rows_are_counted_even_if_nobody_asks() -> None:
    assert accumulators_of([Aggregate("max", "v", "m")])[0] == Accumulator("count", None)


def test_an_aggregate_describes_itself() -> None:
    described = Aggregate("sum", "amount", "total").describe()
    assert described == {"function": "sum", "column": "amount", "name": "total"}


@pytest.mark.parametrize(
    ("function", "column", "state"),
    [
        ("count", pa.list_(pa.int8()), pa.int64()),
        ("sum", pa.int8(), pa.int64()),
        ("sum", pa.uint64(), pa.int64()),
        ("sum", pa.float32(), pa.float64()),
        ("sum", pa.dictionary(pa.int8(), pa.int32()), pa.int64()),
        ("min", pa.int16(), pa.int16()),
        ("max", pa.timestamp("ns", "UTC"), pa.timestamp("ns", "UTC")),
        ("max", pa.date32(), pa.date32()),
        ("min", pa.dictionary(pa.int32(), pa.string()), pa.string()),
        ("max", pa.decimal128(10, 2), pa.decimal128(10, 2)),
        ("min", pa.bool_(), pa.bool_()),
    ],
    ids=str,
)
def test_the_declared_type_is_the_type_of_the_state(
    function: str, column: pa.DataType, state: pa.DataType
) -> None:
    accumulator = Accumulator(function, "v")
    assert accumulator_type(accumulator, column) == state
    rows = pa.table({"v": pa.nulls(2, column)})
    halves = accumulate({}, rows, [accumulator])
    assert halves.schema.field(0).type == state
    assert merge(halves, [], [accumulator]).schema.field(0).type == state


@pytest.mark.parametrize(
    ("function", "column", "takes"),
    [
        ("sum", pa.string(), "takes integers or floating point"),
        ("sum", pa.decimal128(10, 2), "takes integers or floating point"),
        ("sum", pa.bool_(), "takes integers or floating point"),
        ("sum", pa.float16(), "takes integers or floating point"),
        ("min", pa.list_(pa.int8()), "takes numbers, booleans, strings"),
        ("max", pa.duration("s"), "takes numbers, booleans, strings"),
        ("max", pa.float16(), "takes numbers, booleans, strings"),
    ],
    ids=str,
)
def test_a_column_that_does_not_fit_is_refused(
    function: str, column: pa.DataType, takes: str
) -> None:
    with pytest.raises(ConfigurationError, match=takes) as caught:
        accumulator_type(Accumulator(function, "v"), column)
    assert caught.value.code is ErrorCode.UNSUPPORTED_TYPE
    assert f"'v' is {column}; cast it first" in str(caught.value)


def test_results_have_the_type_of_their_accumulator_and_averages_are_float64() -> None:
    state = pa.schema([("sum(v)", pa.int64()), ("max(v)", pa.string()), ("count(v)", pa.int64())])
    types = [result_type(Aggregate(f, "v", f), state) for f in ("sum", "max", "count", "avg")]
    assert types == [pa.int64(), pa.string(), pa.int64(), pa.float64()]


def test_a_group_of_nulls_has_count_zero_and_no_other_result() -> None:
    [row] = aggregated([keyed(pa.array([None, None], pa.int64()))], ALL)
    assert row == {"k": "a", "count": 0, "sum": None, "min": None, "max": None, "avg": None}


def test_an_average_of_integers_is_the_exact_sum_over_the_count() -> None:
    values = [2**53, 1, 1, 1, 1]  # In double precision from the start, the ones would vanish.
    [row] = aggregated([keyed(pa.array(values))], ALL)
    assert row["avg"] == (2**53 + 4) / 5


def test_an_average_with_nan_is_nan() -> None:
    [row] = aggregated([keyed(pa.array([1.0, NAN])), keyed(pa.array([2.0]))], ALL)
    assert math.isnan(row["avg"])


def test_nan_stays_the_maximum_when_halves_are_merged() -> None:
    [row] = aggregated([keyed(pa.array([NAN])), keyed(pa.array([2.0]))], ALL)
    assert (math.isnan(row["max"]), row["min"]) == (True, 2.0)


def outcome(keys: list, values: list) -> dict:
    """Naive aggregation in plain Python."""
    result = {}
    for key in dict.fromkeys(keys):
        known = [v for k, v in zip(keys, values, strict=True) if k == key and v is not None]
        result[key] = {
            "count": len(known),
            "sum": sum(known) if known else None,
            "min": min(known, default=None),
            "max": max(known, default=None),
            "avg": sum(known) / len(known) if known else None,
        }
    return result


ROWS = st.lists(
    st.tuples(st.sampled_from(["a", "b", None]), st.none() | st.integers(-(2**40), 2**40)),
    min_size=1,
    max_size=30,
)


@settings(deadline=None)
@given(ROWS, st.lists(st.integers(0, 30), max_size=3), st.sampled_from([pa.int64(), pa.float64()]))
def test_merged_parts_are_the_whole(rows: list, cuts: list[int], data_type: pa.DataType) -> None:
    """Goal: wherever rows are cut into batches, the result is that of a naive aggregation."""
    table = pa.table(
        {
            "k": pa.array([key for key, _ in rows], pa.string()),
            "v": pa.array([value for _, value in rows], pa.int64()).cast(data_type),
        }
    )
    bounds = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    parts = [table.slice(a, b - a) for a, b in itertools.pairwise(bounds)]
    results = aggregated(parts, ALL)
    expected = outcome([key for key, _ in rows], [value for _, value in rows])
    assert {row.pop("k"): row for row in results} == expected


ORACLE = {
    "long": pa.array([1, None, -5, 2**52, 7, None, 3], pa.int64()),
    "int": pa.array([1, None, -5, 4, 7, None, 3], pa.int32()),
    "double": pa.array([1.5, None, NAN, -0.25, math.inf, None, 3.0], pa.float64()),
    "float": pa.array([1.5, None, NAN, -0.25, NAN, None, NAN], pa.float32()),
}
ORACLE_KEYS = ["a", "a", "a", "a", None, "b", "c"]


@pytest.mark.spark
@pytest.mark.parametrize("name", ORACLE)
def test_spark_gives_the_same_results(spark: SparkSession, name: str) -> None:
    rows = keyed(ORACLE[name], ORACLE_KEYS)
    calls = ", ".join(f"{function}(v) AS {function}" for function in FUNCTIONS)
    spark.createDataFrame(rows).createOrReplaceTempView("rows")
    theirs = spark.sql(f"SELECT k, {calls} FROM rows GROUP BY k").toArrow().to_pylist()
    ours = aggregated([rows.slice(0, 3), rows.slice(3)], ALL)
    assert by_key(ours) == by_key(theirs)


@pytest.mark.spark
def test_spark_too_takes_an_overflow_for_an_error(spark: SparkSession) -> None:
    spark.createDataFrame(keyed(pa.array([2**63 - 1, 1]))).createOrReplaceTempView("rows")
    with pytest.raises(Exception, match="ARITHMETIC_OVERFLOW"):
        spark.sql("SELECT sum(v) FROM rows").collect()


def by_key(rows: list[dict]) -> dict:
    """Rows as text by key, because NaN equals nothing."""
    return {row["k"]: {name: str(row[name]) for name in FUNCTIONS} for row in rows}
