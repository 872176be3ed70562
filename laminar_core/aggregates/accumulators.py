"""Accumulators: the state columns of aggregates, and how two partial states are merged.

An *aggregate* is a result that a user requested, such as the average of ``amount``. It is computed
from *accumulators*: one column of state each, with a value per group, and two operations.
:func:`accumulate` makes state from rows, :func:`merge` makes one state from several; both over all
groups at once. Aggregates share accumulators: count, sum and average of a column need two.

    aggregate                   accumulator       type                              merged by
    count()                     count(*)          int64                             adding
    count(c)                    count(c)          int64                             adding
    sum(c)                      sum(c)            int64, float64, decimal (1)       adding
    avg(c)                      sum(c), count(c)  as above                          adding
    min, max(c)                 min(c), max(c)    the type of c                     min, max
    var, stddev(c)              moments(c)        {count, mean, m2}                 ``moments``
    first(c, by=t)              first(c, t)       {at, value}                       ``ordered``
    count_distinct(c)           distinct(c)       list of c                         ``distinct``
    approx_count_distinct(c)    hyperloglog_12(c) list of int32                     ``hyperloglog``
    percentile(c, f)            value_counts(c)   list of {value, count}            ``distinct``
    approx_percentile(c, f)     t_digest_500(c)   {digest, low, high, nan}          ``digests``
    user(u, c, d)               user_name(c, d)   as the user says                  the user

Over rows that come and go sums have a count and a ``balance(c)`` beside them, and where single
values matter all are kept: ``weighted_values(c)``, see ``weighted``.

(1) int64 over integers, float64 over floating point, over decimal(p, s) decimal(p + 10, s), and
over durations a duration.

Nulls, NaN and overflow are Spark's (ANSI mode): nulls are skipped, a group without a value has a
null result, and a count of 0; NaN is larger than any number and equals itself; a sum of integers
or decimals that does not fit is an error, never a wrong number. In one thing we differ: Spark
averages integers in double precision from the start, here their sum is exact or an error.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from pyarrow.compute import RoundOptions, call_function

from laminar_core.aggregates.dense import dense_group, encoded_group
from laminar_core.aggregates.digests import Digests, quantile
from laminar_core.aggregates.distinct import DistinctValues, ValueCounts, distinct_count, percentile
from laminar_core.aggregates.grouping import (
    Fold,
    Reduction,
    group,
    is_ordered,
    plain_type,
    sum_type,
)
from laminar_core.aggregates.hyperloglog import HyperLogLog
from laminar_core.aggregates.moments import Moments, is_number, spread
from laminar_core.aggregates.ordered import Endmost, values_of
from laminar_core.aggregates.row_groups import RowGroups, StateFunction, as_array
from laminar_core.aggregates.user_aggregates import UserDefined
from laminar_core.aggregates.weighted import (
    Balance,
    WeightedValues,
    balanced_sum,
    weighted_result,
)
from laminar_core.errors import ConfigurationError, DataError, ErrorCode, IncompatibleStateError

PlainFunction = Literal["count", "sum", "min", "max"]
"""Functions that pyarrow computes for all groups in one call."""


@dataclass(frozen=True, slots=True)
class Accumulator:
    """One column of state. Its name, such as ``sum(amount)``, identifies the contents."""

    function: PlainFunction | StateFunction
    column: str | None
    more: tuple[str, ...] = ()
    """Further columns that the function takes."""

    @property
    def label(self) -> str:
        """The name of the function."""
        return self.function if isinstance(self.function, str) else self.function.label

    @property
    def version(self) -> int:
        """The version of the state's meaning (ERRATA 1.10)."""
        return 1 if isinstance(self.function, str) else self.function.version

    @property
    def columns(self) -> tuple[str, ...]:
        """The input columns."""
        return self.more if self.column is None else (self.column, *self.more)

    @property
    def name(self) -> str:
        """Name of the column in state tables."""
        return f"{self.label}({', '.join(self.columns) or '*'})"


ROW_COUNT = Accumulator("count", None)
"""Kept in every state, so that rows can be counted when their group is refused as late."""


def accumulator_type(accumulator: Accumulator, *columns: pa.DataType) -> pa.DataType:
    """Return the type of the state over columns of these types.

    Raises:
        ConfigurationError: the function does not take such columns (UNSUPPORTED_TYPE).
    """
    function = accumulator.function
    if isinstance(function, str):
        found = _plain_state_type(function, plain_type(columns[0]) if columns else pa.null())
    else:
        found = function.state_type([plain_type(column) for column in columns])
    if found is not None:
        return found
    names = ", ".join(
        f"{name!r} is {of}" for name, of in zip(accumulator.columns, columns, strict=True)
    )
    raise ConfigurationError(
        ErrorCode.UNSUPPORTED_TYPE,
        f"{accumulator.name} takes {_taken(accumulator.label)}, and {names}; cast it first",
    )


def _plain_state_type(function: PlainFunction, column: pa.DataType) -> pa.DataType | None:
    match function:
        case "count":
            return pa.int64()
        case "sum":
            return sum_type(column)
        case "min" | "max":
            return column if is_ordered(column) else None


def first_value(accumulator: Accumulator, data_type: pa.DataType) -> pa.Scalar | None:
    """Return the state of a group without rows; None for a user's function.

    Only the user knows what that is.
    """
    match accumulator.function:
        case "count":
            return pa.scalar(0, data_type)
        case Moments() | Digests() | Balance():
            zeros = [None if pa.types.is_binary(f.type) else 0 for f in data_type]
            names = [f.name for f in data_type]
            return pa.scalar(dict(zip(names, zeros, strict=True)), data_type)
        case DistinctValues() | ValueCounts() | HyperLogLog() | WeightedValues():
            return pa.scalar([], data_type)
        case UserDefined():
            return None
        case _:
            return pa.scalar(None, data_type)


def _taken(label: str) -> str:
    if label == "sum":
        return "integers, floating point, decimals or durations"
    if label.startswith(("moments", "value_counts", "t_digest")):
        return "numbers"
    return "numbers, booleans, strings, binary, dates, times, timestamps and durations"


def accumulate(
    keys: Mapping[str, pa.ChunkedArray], rows: pa.Table, accumulators: Sequence[Accumulator]
) -> pa.Table:
    """Reduce input rows to one row of accumulators per key.

    Shapes: [keys ..., accumulators ...], in an order that depends on nothing but the input. Keys
    stay dictionary-encoded if they come so, and may then repeat where the dictionary does.

    Raises:
        DataError: a sum leaves its type (ARITHMETIC_OVERFLOW).
    """
    reductions = [_accumulation(accumulator, rows) for accumulator in accumulators]
    dense = dense_group(keys, rows, reductions)
    return group(keys, rows, reductions) if dense is None else dense


def merge(state: pa.Table, keys: Sequence[str], accumulators: Sequence[Accumulator]) -> pa.Table:
    """Reduce rows of accumulators to one per key; the same columns come back.

    Raises:
        DataError: a sum leaves its type (ARITHMETIC_OVERFLOW).
    """
    reductions = [_merging(accumulator, state) for accumulator in accumulators]
    columns = {key: state.column(key) for key in keys}
    merged = encoded_group(columns, state, reductions)
    return group(columns, state, reductions) if merged is None else merged


def merge_in_order(
    state: pa.Table, keys: Sequence[str], accumulators: Sequence[Accumulator]
) -> pa.Table:
    """Reduce rows like ``merge``; the result is in the order in which keys appear first.

    Raises:
        DataError: a sum leaves its type (ARITHMETIC_OVERFLOW).
    """
    reductions = [_merging(accumulator, state) for accumulator in accumulators]
    reductions.append(Reduction("first row", "first_row", None))
    merged = group({key: state.column(key) for key in keys}, state, reductions)
    first_rows = merged.columns[-1].to_numpy()
    merged = merged.remove_column(merged.num_columns - 1)
    if (np.diff(first_rows) > 0).all():
        return merged
    return merged.take(pa.array(np.argsort(first_rows)))


def _accumulation(accumulator: Accumulator, rows: pa.Table) -> Reduction:
    function = accumulator.function
    if isinstance(function, str):
        return Reduction(accumulator.name, function, accumulator.column)

    def fold(groups: RowGroups) -> pa.Array:
        columns = [as_array(rows.column(name)) for name in accumulator.columns]
        return function.accumulate(columns, groups)

    return Reduction(accumulator.name, fold, None)


def _merging(accumulator: Accumulator, state: pa.Table) -> Reduction:
    function, name = accumulator.function, accumulator.name
    column = state.column(name)
    if not isinstance(function, str):
        return Reduction(name, _fold_states(function, column), None)
    if function in ("count", "sum"):
        return Reduction(name, "sum", name, sum_type=column.type)
    return Reduction(name, function, name)


def _fold_states(function: StateFunction, column: pa.ChunkedArray) -> Fold:
    return partial(function.merge, as_array(column))


# --- aggregates -------------------------------------------------------------------------------

AggregateFunction = Literal[
    "count", "sum", "min", "max", "avg", "var_pop", "var_samp", "stddev_pop", "stddev_samp",
    "first", "last", "count_distinct", "approx_count_distinct", "percentile",
    "approx_percentile", "user", "row",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One result column: ``function`` over ``column`` (None counts rows), called ``name``.

    ``more``: further columns, such as the order of ``first``. ``fraction``: the rank of a
    percentile. ``state``: the state function, where ``function`` alone does not determine it.
    ``weighted``: rows come and go. ``row`` takes the greatest row of the columns ``more``, and is
    for such rows only.
    """

    function: AggregateFunction
    column: str | None
    name: str
    more: tuple[str, ...] = ()
    fraction: float | None = None
    state: StateFunction | None = None
    weighted: bool = False

    def __post_init__(self) -> None:
        names: tuple[object, ...] = (*self.columns, self.name)
        if self.column is None and self.function not in ("count", "row"):
            names = (None,)
        for name in names:
            if not isinstance(name, str):
                raise ConfigurationError(
                    ErrorCode.INVALID_OPTION,
                    f"{self.function} is called by names of columns, not by {name!r}",
                )

    @property
    def accumulators(self) -> tuple[Accumulator, ...]:
        """Return the accumulators that the result is computed from."""
        column, more = self.column, self.more
        if self.weighted:
            return _weighted_accumulators(self)
        if self.state is not None:
            return (Accumulator(self.state, column, more),)
        match self.function:
            case "count" | "sum" | "min" | "max" as plain:
                return (Accumulator(plain, column),)
            case "avg":
                return Accumulator("sum", column), Accumulator("count", column)
            case "var_pop" | "var_samp" | "stddev_pop" | "stddev_samp":
                return (Accumulator(Moments(), column),)
            case "first" | "last" as end:
                return (Accumulator(Endmost(end), column, more),)
            case "count_distinct":
                return (Accumulator(DistinctValues(), column),)
            case "percentile":
                return (Accumulator(ValueCounts(), column),)
            case _:
                raise AssertionError(f"{self.function} says how its state is kept")

    @property
    def columns(self) -> tuple[str, ...]:
        """The input columns."""
        return self.more if self.column is None else (self.column, *self.more)

    def over_weights(self) -> "Aggregate":
        """Return the same over rows that come and go.

        Raises:
            ConfigurationError: its state cannot take rows away (INVALID_PIPELINE).
        """
        if self.state is not None:
            instead = {
                "approx_count_distinct": "use count_distinct",
                "approx_percentile": "use percentile",
            }
            raise ConfigurationError(
                ErrorCode.INVALID_PIPELINE,
                f"{self.name} cannot take back what it has counted, and rows of this stream come"
                f" and go: {instead.get(self.function, 'use another aggregate')}, or call"
                " .changes() to count each change",
            )
        return replace(self, weighted=True)

    def describe(self) -> dict[str, Any]:
        """Return the identity for the fingerprint of a pipeline."""
        described: dict[str, Any] = {
            "function": self.function,
            "column": self.column,
            "name": self.name,
        }
        if self.more:
            described["more"] = list(self.more)
        if self.fraction is not None:
            described["fraction"] = self.fraction
        if self.state is not None:
            described["state"] = self.state.label
        if isinstance(self.state, UserDefined):
            described["code"] = self.state.code
        if self.weighted:
            described["weighted"] = True
        if versions := [a.version for a in self.accumulators if a.version > 1]:
            described["version"] = max(versions)
        return described


def _weighted_accumulators(aggregate: Aggregate) -> tuple[Accumulator, ...]:
    column, more = aggregate.column, aggregate.more
    match aggregate.function:
        case "count":
            return (Accumulator("count", column),)
        case "sum" | "avg":
            plain: tuple[PlainFunction, ...] = ("sum", "count")
            return (*(Accumulator(f, column) for f in plain), Accumulator(Balance(), column))
        case "first" | "last":
            pairs = WeightedValues("weighted_pairs", ("at", "value"))
            return (Accumulator(pairs, more[0], (column,) if column else ()),)
        case "row":
            rows = WeightedValues("weighted_rows", more, has_nulls=True)
            return (Accumulator(rows, None, more),)
        case _:
            return (Accumulator(WeightedValues(), column),)


def accumulators_of(aggregates: Iterable[Aggregate]) -> tuple[Accumulator, ...]:
    """List what the aggregates need, each once, the row count first."""
    needed = [needs for aggregate in aggregates for needs in aggregate.accumulators]
    return tuple(dict.fromkeys([ROW_COUNT, *needed]))


def result_type(aggregate: Aggregate, state: pa.Schema) -> pa.DataType:
    """Return the type of the finished aggregate, given the schema of its accumulators.

    Raises:
        ConfigurationError: durations have no average (UNSUPPORTED_TYPE).
    """
    kept = state.field(aggregate.accumulators[0].name).type
    if pa.types.is_list(kept) and aggregate.weighted:
        return _weighted_type(aggregate, kept.value_type)
    match aggregate.function:
        case "avg":
            return _average_type(aggregate, kept)
        case "count_distinct" | "approx_count_distinct":
            return pa.int64()
        case "first" | "last":
            return kept.field("value").type
        case "count" | "sum" | "min" | "max":
            return kept
        case "user":
            assert isinstance(aggregate.state, UserDefined)
            return aggregate.state.udaf.result_type
        case _:
            return pa.float64()


def _weighted_type(aggregate: Aggregate, item: pa.StructType) -> pa.DataType:
    match aggregate.function:
        case "row":
            return item
        case "count_distinct":
            return pa.int64()
        case "min" | "max" | "first" | "last":
            return item.field("value").type
        case _:
            if not is_number(item.field("value").type):
                raise ConfigurationError(
                    ErrorCode.UNSUPPORTED_TYPE,
                    f"{aggregate.function} takes numbers, and {aggregate.column!r} is"
                    f" {item.field('value').type}; cast it first",
                )
            return pa.float64()


def _average_type(aggregate: Aggregate, sums: pa.DataType) -> pa.DataType:
    if pa.types.is_duration(sums):
        raise ConfigurationError(
            ErrorCode.UNSUPPORTED_TYPE,
            f"avg takes numbers, and {aggregate.column!r} is {sums}: divide a sum by a count",
        )
    if not pa.types.is_decimal(sums):
        return pa.float64()
    make, most = (pa.decimal128, 38) if pa.types.is_decimal128(sums) else (pa.decimal256, 76)
    if sums.precision < most:  # A sum has ten digits more than its values, an average four.
        return make(sums.precision - 6, sums.scale + 4)
    return make(most, min(sums.scale + 4, most))


def finish(state: pa.Table, aggregate: Aggregate) -> pa.ChunkedArray:
    """Compute the result of ``aggregate`` from merged accumulators, one value per row."""
    first, *rest = (state.column(needs.name) for needs in aggregate.accumulators)
    if aggregate.weighted and rest:
        first = pa.chunked_array([balanced_sum(*map(as_array, (first, *rest)))])
    elif aggregate.weighted and aggregate.function != "count":
        result = result_type(aggregate, state.schema)
        values = weighted_result(as_array(first), aggregate.function, aggregate.fraction, result)
        return pa.chunked_array([values])
    match aggregate.function:
        case "count" | "sum" | "min" | "max":
            return first
        case "avg" if pa.types.is_decimal(first.type):
            average = _average_type(aggregate, first.type)
            return _decimal_average(first, rest[0], average, checked=not aggregate.weighted)
        case "avg":
            # Doubles are what Spark divides; above 2**53 the sum is rounded, as it is there.
            pair = (first, rest[0])
            total, count = (column.cast(pa.float64(), safe=False) for column in pair)
            return call_function("divide", [total, count])
        case _:
            return pa.chunked_array([_finished(aggregate, as_array(first))])


def _finished(aggregate: Aggregate, states: pa.Array) -> pa.Array:
    fraction = aggregate.fraction or 0.0
    match aggregate.function, aggregate.state:
        case ("var_pop" | "var_samp" | "stddev_pop" | "stddev_samp") as which, _:
            return spread(states, which)
        case "first" | "last", _:
            return values_of(states)
        case "count_distinct", _:
            return distinct_count(states)
        case _, HyperLogLog() as sketch:
            return sketch.estimate(states)
        case "approx_percentile", _:
            return quantile(states, fraction)
        case _, UserDefined() as user:
            return user.finish(states)
        case _:
            return percentile(states, fraction)


def _decimal_average(
    sums: pa.ChunkedArray, counts: pa.ChunkedArray, result: pa.DataType, *, checked: bool
) -> pa.ChunkedArray:
    """Divide with digits to spare, then round half away from zero, as Spark does.

    Unless ``checked``, what does not fit is null. An average of values always fits; while some rows
    have gone before they came, the sum and the count belong to different rows, and it may not.
    """
    some = call_function("max_element_wise", [counts, pa.scalar(1)])  # Then the sum is null.
    rounding = RoundOptions(result.scale, "half_towards_infinity")
    try:
        total = sums.cast(pa.decimal256(min(sums.type.precision, 56), sums.type.scale))
        quotient = call_function("divide", [total, some.cast(pa.decimal256(19, 0))])
        rounded = call_function("round", [quotient], rounding)
        if not checked:
            limit = pa.scalar(Decimal(10) ** (result.precision - result.scale), rounded.type)
            fits = call_function("less", [call_function("abs", [rounded]), limit])
            rounded = call_function("if_else", [fits, rounded, pa.scalar(None, rounded.type)])
        return rounded.cast(result)
    except pa.ArrowInvalid as error:
        raise DataError(
            ErrorCode.ARITHMETIC_OVERFLOW, f"an average leaves {result}; cast to float64 before"
        ) from error


# --- versions ---------------------------------------------------------------------------------

VERSIONS_KEY = b"laminar.accumulators"
"""Key in the metadata of a state table: JSON, the version of the state by accumulator name."""


def with_versions(state: pa.Table, accumulators: Iterable[Accumulator]) -> pa.Table:
    """Return the table with the versions of its accumulators in the metadata (ERRATA 1.10)."""
    versions = {accumulator.name: accumulator.version for accumulator in accumulators}
    return state.replace_schema_metadata({VERSIONS_KEY: json.dumps(versions).encode()})


def require_known_versions(
    metadata: Mapping[bytes, bytes] | None, accumulators: Iterable[Accumulator]
) -> None:
    """Check that the state's accumulators have the versions known here.

    Raises:
        IncompatibleStateError: one has another version (OPERATORS_CHANGED).
    """
    found: dict[str, int] = json.loads((metadata or {}).get(VERSIONS_KEY, b"{}"))
    for accumulator in accumulators:
        version = found.get(accumulator.name, 1)
        if version != accumulator.version:
            raise IncompatibleStateError(
                ErrorCode.OPERATORS_CHANGED,
                f"the state of {accumulator.name} is of version {version}, and this Laminar knows "
                f"{accumulator.version}: run the version that wrote it",
            )
