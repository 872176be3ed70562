"""Accumulators: what is kept, that merging halves is the whole, and that Spark agrees."""

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from laminar_core.aggregates.accumulators import (
    Accumulator,
    Aggregate,
    PlainFunction,
    accumulate,
    accumulator_type,
    accumulators_of,
    finish,
    first_value,
    merge,
    merge_in_order,
    require_known_versions,
    result_type,
    with_versions,
)
from laminar_core.aggregates.digests import Digests
from laminar_core.aggregates.distinct import DistinctValues
from laminar_core.aggregates.moments import Moments
from laminar_core.aggregates.row_groups import StateFunction
from laminar_core.errors import (
    ConfigurationError,
    DataError,
    ErrorCode,
    IncompatibleStateError,
)
from laminar_core.operators import agg
from tests.sampling import drawn

FUNCTIONS = ("count", "sum", "min", "max", "avg")
ALL = tuple(Aggregate(function, "v", function) for function in FUNCTIONS)
NAN = float("nan")
MANY = (
    *ALL,
    agg.var_pop("v"), agg.var_samp("v"), agg.stddev_pop("v"), agg.stddev_samp("v"),
    agg.first("v", by="t"), agg.last("v", by="t"), agg.count_distinct("v"),
    agg.approx_count_distinct("v"), agg.percentile("v", 0.5), agg.percentile("v", 1.0, name="p1"),
    agg.approx_percentile("v", 0.5),
)  # fmt: skip


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
        ("max", pa.float16(), pa.float16()),
        ("sum", pa.float16(), pa.float64()),
        ("sum", pa.decimal32(5, 2), pa.decimal128(15, 2)),
        ("sum", pa.decimal128(33, 2), pa.decimal128(38, 2)),
        ("sum", pa.decimal256(40, 2), pa.decimal256(50, 2)),
        ("sum", pa.duration("ms"), pa.duration("ms")),
        ("min", pa.duration("ns"), pa.duration("ns")),
        ("min", pa.decimal64(5, 2), pa.decimal64(5, 2)),
        ("min", pa.null(), pa.null()),
        ("max", pa.binary(3), pa.binary(3)),
        ("max", pa.time64("ns"), pa.time64("ns")),
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
        ("sum", pa.string(), "takes integers, floating point, decimals or durations"),
        ("sum", pa.bool_(), "takes integers, floating point, decimals or durations"),
        ("min", pa.list_(pa.int8()), "takes numbers, booleans, strings"),
        ("max", pa.month_day_nano_interval(), "takes numbers, booleans, strings"),
        ("min", pa.string_view(), "takes numbers, booleans, strings"),
        (Moments(), pa.string(), "takes numbers"),
        (Digests(), pa.date32(), "takes numbers"),
        (DistinctValues(), pa.list_(pa.int8()), "takes numbers, booleans, strings"),
    ],
    ids=str,
)
def test_a_column_that_does_not_fit_is_refused(
    function: PlainFunction | StateFunction, column: pa.DataType, takes: str
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


def test_percentiles_and_spreads_of_a_column_share_accumulators() -> None:
    assert [needs.name for needs in accumulators_of(MANY)][5:] == [
        "moments(v)", "first(v, t)", "last(v, t)", "distinct(v)", "hyperloglog_12(v)",
        "value_counts(v)", "t_digest_500(v)",
    ]  # fmt: skip


@pytest.mark.parametrize("rows", [0, 5])
def test_every_declared_type_is_the_type_that_comes(rows: int) -> None:
    table = pa.table({"v": pa.array(range(rows), pa.int32()), "t": pa.array(range(rows))})
    needed = accumulators_of(MANY)
    state = accumulate({}, table, needed)
    assert merge(state, [], needed).schema.equals(state.schema)
    for accumulator in needed:
        types = [table.schema.field(name).type for name in accumulator.columns]
        assert state.schema.field(accumulator.name).type == accumulator_type(accumulator, *types)
    for aggregate in MANY:
        assert finish(state, aggregate).type == result_type(aggregate, state.schema)


def test_sums_and_averages_of_decimals_are_spark_s() -> None:
    cents = pa.array([Decimal("0.01"), Decimal("0.02"), Decimal("0.02"), None])
    [row] = aggregated([keyed(cents.slice(0, 1)), keyed(cents.slice(1))], ALL)
    assert (row["sum"], row["avg"]) == (Decimal("0.05"), Decimal("0.016667"))
    [row] = aggregated([keyed(pa.array([Decimal("-0.01"), Decimal("-0.04")]))], ALL)
    assert row["avg"] == Decimal("-0.025000")


def test_a_decimal_sum_beyond_its_digits_is_an_error() -> None:
    widest = keyed(pa.array([Decimal(10**38 - 1), Decimal(-1), Decimal(1)], pa.decimal128(38, 0)))
    total = [Aggregate("sum", "v", "sum")]
    [row] = aggregated([widest.slice(0, 2)], total)
    assert row["sum"] == Decimal(10**38 - 2)
    [row] = aggregated([widest], total)
    assert row["sum"] == Decimal(10**38 - 1)
    beyond = keyed(pa.array([Decimal(10**38 - 1), Decimal(1)], pa.decimal128(38, 0)))
    with pytest.raises(DataError, match="leaves 38 digits") as caught:
        aggregated([beyond], total)
    assert caught.value.code is ErrorCode.ARITHMETIC_OVERFLOW
    unprovable = keyed(pa.array([Decimal(10**75)] * 11, pa.decimal256(76, 0)))
    with pytest.raises(DataError, match="leaves 76 digits"):
        aggregated([unprovable], total)


def test_an_average_beyond_its_digits_is_an_error() -> None:
    for widest in (pa.decimal128(38, 2), pa.decimal256(76, 2)):
        digits = "9" * (widest.precision - 2)
        rows = keyed(pa.array([Decimal(digits)], widest))
        with pytest.raises(DataError, match="an average leaves decimal"):
            aggregated([rows], [agg.avg("v")])


def test_durations_add_up_and_have_no_average() -> None:
    rows = keyed(pa.array([1, None, 5], pa.duration("ms")))
    wanted = [Aggregate(f, "v", f) for f in ("sum", "min", "max")]
    [row] = aggregated([rows.slice(0, 1), rows.slice(1)], wanted)
    assert [row[f] // timedelta(milliseconds=1) for f in ("sum", "min", "max")] == [6, 1, 5]
    average = agg.avg("v")
    with pytest.raises(ConfigurationError, match="divide a sum by a count"):
        result_type(average, accumulate({}, rows, average.accumulators).schema)
    beyond = keyed(pa.array([2**62, 2**62], pa.duration("ms")))
    with pytest.raises(DataError, match="leaves 64 bits"):
        aggregated([beyond], wanted)


def test_state_of_another_version_is_refused_by_name() -> None:
    needed = accumulators_of(MANY)
    nothing = pa.table({"any": [1]})
    require_known_versions(with_versions(nothing, needed).schema.metadata, needed)
    require_known_versions(None, needed)
    later = replace(Moments(), version=2)
    newer = with_versions(nothing, [Accumulator(later, "v")]).schema.metadata
    with pytest.raises(IncompatibleStateError, match=r"moments\(v\) is of version 2.* knows 1"):
        require_known_versions(newer, needed)


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
            "var_pop_v": statistics.pvariance(known) if known else None,
            "count_distinct_v": len(set(known)),
            "percentile_v": statistics.median(known) if known else None,
            "p1": max(known, default=None),
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
            "t": pa.array(range(len(rows))),
        }
    )
    bounds = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    parts = [table.slice(a, b - a) for a, b in itertools.pairwise(bounds)]
    results = aggregated(parts, MANY)
    expected = outcome([key for key, _ in rows], [value for _, value in rows])
    assert len(results) == len(expected)
    for row in results:
        for name, value in expected[row["k"]].items():
            # A tenth of the values' rounding, squared: of equal values the variance is not 0.
            tolerance = {"rel": 1e-9, "abs": 1e-6} if name == "var_pop_v" else {"rel": 1e-15}
            assert row[name] == (value if value is None else pytest.approx(value, **tolerance))


@settings(deadline=None, max_examples=drawn(30))
@given(ROWS, st.integers(0, 30))
def test_first_and_last_are_those_of_the_rows(rows: list, cut: int) -> None:
    table = keyed(pa.array([value for _, value in rows], pa.int64()), [key for key, _ in rows])
    table = table.append_column("t", pa.array([i % 7 for i in range(len(rows))]))
    [*results] = aggregated([table.slice(0, cut), table.slice(cut)], MANY[9:11])
    for row in results:
        mine = [(i % 7, v) for i, (k, v) in enumerate(rows) if k == row["k"]]
        smallest, largest = (end(at for at, _ in mine) for end in (min, max))
        first = [v for at, v in mine if at == smallest and v is not None]
        last = [v for at, v in mine if at == largest and v is not None]
        assert row["first_v"] == min(first, default=None)
        assert row["last_v"] == max(last, default=None)


ORACLE = {
    "long": pa.array([1, None, -5, 2**52, 7, None, 3], pa.int64()),
    "int": pa.array([1, None, -5, 4, 7, None, 3], pa.int32()),
    "double": pa.array([1.5, None, NAN, -0.25, math.inf, None, 3.0], pa.float64()),
    "float": pa.array([1.5, None, NAN, -0.25, NAN, None, NAN], pa.float32()),
    "decimal": pa.array([Decimal("1.50"), None, Decimal("-2.25"), *map(Decimal, "1700")][:7]),
    "zeros": pa.array([0.0, -0.0, NAN, NAN, -0.0, 2.0, None], pa.float64()),
}
ORACLE_KEYS = ["a", "a", "a", "a", None, "b", "c"]
ORACLE_CALLS = {
    **{function: f"{function}(v)" for function in FUNCTIONS},
    **{f"{f}_v": f"{f}(v)" for f in ("var_pop", "var_samp", "stddev_pop", "stddev_samp")},
    "first_v": "min_by(v, t)",
    "last_v": "max_by(v, t)",
    "count_distinct_v": "count(DISTINCT v)",
    "percentile_v": "percentile(v, 0.5)",
    "p1": "percentile(v, 1.0)",
}


@pytest.mark.spark
@pytest.mark.parametrize("name", ORACLE)
def test_spark_gives_the_same_results(spark: SparkSession, name: str) -> None:
    rows = keyed(ORACLE[name], ORACLE_KEYS).append_column("t", [[3, 1, 2, 4, 1, 1, 1]])
    calls = ", ".join(f"{call} AS {name}" for name, call in ORACLE_CALLS.items())
    spark.createDataFrame(rows).createOrReplaceTempView("rows")
    theirs = spark.sql(f"SELECT k, {calls} FROM rows GROUP BY k").toArrow().to_pylist()
    ours = aggregated([rows.slice(0, 3), rows.slice(3)], MANY)
    assert by_key(ours) == by_key(theirs)


@pytest.mark.spark
def test_spark_too_takes_an_overflow_for_an_error(spark: SparkSession) -> None:
    spark.createDataFrame(keyed(pa.array([2**63 - 1, 1]))).createOrReplaceTempView("rows")
    with pytest.raises(Exception, match="ARITHMETIC_OVERFLOW"):
        spark.sql("SELECT sum(v) FROM rows").collect()


def by_key(rows: list[dict]) -> dict:
    """Rows as text by key, because NaN equals nothing; reals to twelve digits, zeros unsigned."""
    return {row["k"]: {name: as_text(row[name]) for name in ORACLE_CALLS} for row in rows}


def as_text(value: object) -> str:
    return f"{value + 0.0:.12g}" if isinstance(value, float) else str(value)


def test_merging_in_order_keeps_the_order_of_keys() -> None:
    """pyarrow alone gives hundreds of groups, or those beside a null, in an order of its own."""
    needed = accumulators_of([agg.count()])
    for keys in ([0, None, 1, 0], [(i * 7_919) % 1_000 for i in range(3_000)]):
        state = pa.table({"k": keys, "count(*)": [1] * len(keys)})
        merged = merge_in_order(state, ["k"], needed)
        assert merged.column_names == ["k", "count(*)"]
        assert merged.column("k").to_pylist() == list(dict.fromkeys(keys))
        assert sum(merged.column("count(*)").to_pylist()) == len(keys)


FIRST_OF = [
    agg.count(), agg.count("v"), agg.sum("v"), agg.min("v"), agg.max("v"), agg.var_pop("v"),
    agg.first("v", by="t"), agg.last("v", by="t"), agg.count_distinct("v"),
    agg.approx_count_distinct("v"), agg.percentile("v", 0.5), agg.approx_percentile("v", 0.5),
]  # fmt: skip


@pytest.mark.parametrize("aggregate", FIRST_OF, ids=lambda a: a.name)
def test_the_first_value_changes_nothing_that_it_is_merged_with(aggregate) -> None:
    """So state can begin to keep an accumulator: its rows have the first value."""
    rows = pa.table({"k": [1, 1, 1], "v": [3.5, 1.0, None], "t": [1, 2, 3]})
    needs = aggregate.accumulators
    state = accumulate({"k": rows.column("k")}, rows, needs)
    columns = {"k": pa.array([1])}
    for one in needs:
        value = first_value(one, state.schema.field(one.name).type)
        assert value is not None
        columns[one.name] = pa.array([value.as_py()], value.type)
    first = pa.table(columns).select(state.schema.names)
    for tables in ([first, state], [state, first]):
        assert merge(pa.concat_tables(tables), ["k"], needs).to_pylist() == state.to_pylist()


@pytest.mark.parametrize("aggregate", MANY, ids=lambda aggregate: aggregate.name)
def test_a_null_in_a_dictionary_is_a_null(aggregate: Aggregate) -> None:
    """Goal: a column is what its values are, also where an index leads to a null."""
    values = pa.array([5.0, None], pa.float64())
    encoded = pa.DictionaryArray.from_arrays(pa.array([0, 1, 1], pa.int8()), values)
    assert encoded.null_count == 0
    answers = [
        aggregated([pa.table({"k": [1, 1, 1], "v": column, "t": [1, 2, 3]})], [aggregate])
        for column in (encoded, encoded.dictionary_decode())
    ]
    assert answers[0] == answers[1]


def test_without_keys_and_columns_rows_are_counted() -> None:
    counted = accumulate({}, pa.table({"v": [1, None, 3]}), accumulators_of((agg.count(),)))
    assert counted.to_pylist() == [{"count(*)": 3}]
