"""What an aggregate keeps while rows still come, and how two such halves become one.

An *aggregate* is a result that a user asked for, such as the average of ``amount``. It is computed
from *accumulators*: columns that hold one number or value per group and can be merged. Aggregates
share them: count, sum and average of one column need two, not four.

    aggregate    accumulators             type                      merged by
    count()      count(*)                 int64                     adding
    count(c)     count(c)                 int64                     adding
    sum(c)       sum(c)                   int64, or float64 (1)     adding
    avg(c)       sum(c), count(c)         as above                  adding
    min, max(c)  min(c), max(c)           the type of c             min, max

(1) int64 over integers, float64 over floating point.

Nulls, NaN and overflow are Spark's (ANSI mode): nulls are skipped, a group without a value has a
null sum, average, minimum and maximum and a count of 0; NaN is larger than any number; an integer
sum beyond 64 bits is an error, never a wrong number. In one thing we differ: Spark averages
integers in double precision from the start, here their sum is exact or an error.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
from pyarrow.compute import call_function

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.state.dense import dense_group
from laminar_core.state.grouping import Reduction, group, plain_type

AggregateFunction = Literal["count", "sum", "min", "max", "avg"]
AccumulatorFunction = Literal["count", "sum", "min", "max"]


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One result column: ``function`` over ``column`` (None counts rows), called ``name``."""

    function: AggregateFunction
    column: str | None
    name: str

    @property
    def accumulators(self) -> tuple["Accumulator", ...]:
        """What it is computed from."""
        if self.function == "avg":
            return Accumulator("sum", self.column), Accumulator("count", self.column)
        return (Accumulator(self.function, self.column),)

    def describe(self) -> dict[str, str | None]:
        """Identity in the fingerprint of a pipeline."""
        return {"function": self.function, "column": self.column, "name": self.name}


@dataclass(frozen=True, slots=True)
class Accumulator:
    """One column of state. Its name, such as ``sum(amount)``, says what it holds."""

    function: AccumulatorFunction
    column: str | None

    @property
    def name(self) -> str:
        """Name of the column in state tables."""
        return f"{self.function}({self.column or '*'})"


ROW_COUNT = Accumulator("count", None)
"""Kept in every state, so that rows can be counted when their group is refused as late."""


def accumulators_of(aggregates: Iterable[Aggregate]) -> tuple[Accumulator, ...]:
    """List what the aggregates need, each once, the row count first."""
    needed = [needs for aggregate in aggregates for needs in aggregate.accumulators]
    return tuple(dict.fromkeys([ROW_COUNT, *needed]))


def accumulator_type(accumulator: Accumulator, column_type: pa.DataType) -> pa.DataType:
    """Type of the state over a column of ``column_type``.

    Raises:
        ConfigurationError: the function does not take such a column (UNSUPPORTED_TYPE).
    """
    plain = plain_type(column_type)
    if accumulator.function == "count":
        return pa.int64()
    if accumulator.function == "sum" and pa.types.is_integer(plain):
        return pa.int64()
    if accumulator.function == "sum" and _is_real(plain):
        return pa.float64()
    if accumulator.function in ("min", "max") and _is_ordered(plain):
        return plain
    takes = "integers or floating point (float32, float64)"
    if accumulator.function in ("min", "max"):
        takes = "numbers, booleans, strings, dates and timestamps"
    raise ConfigurationError(
        ErrorCode.UNSUPPORTED_TYPE,
        f"{accumulator.name} takes {takes}, and {accumulator.column!r} is {column_type};"
        " cast it first",
    )


def result_type(aggregate: Aggregate, state: pa.Schema) -> pa.DataType:
    """Type of the finished aggregate, given the schema of its accumulators."""
    if aggregate.function == "avg":
        return pa.float64()
    return state.field(aggregate.accumulators[0].name).type


def accumulate(
    keys: Mapping[str, pa.ChunkedArray], rows: pa.Table, accumulators: Sequence[Accumulator]
) -> pa.Table:
    """Reduce input rows to one row of accumulators per key.

    Shapes: [keys ..., accumulators ...], in an order that depends on nothing but the input. Keys
    stay dictionary-encoded if they come so, and may then repeat where the dictionary does.

    Raises:
        DataError: an integer sum leaves 64 bits (ARITHMETIC_OVERFLOW).
    """
    reductions = [Reduction(a.name, a.function, a.column) for a in accumulators]
    dense = dense_group(keys, rows, reductions)
    return group(keys, rows, reductions) if dense is None else dense


def merge(state: pa.Table, keys: Sequence[str], accumulators: Sequence[Accumulator]) -> pa.Table:
    """Reduce rows of accumulators to one per key; the same columns come back.

    Raises:
        DataError: an integer sum leaves 64 bits (ARITHMETIC_OVERFLOW).
    """
    reductions = [
        Reduction(a.name, "sum" if a.function == "count" else a.function, a.name)
        for a in accumulators
    ]
    return group({key: state.column(key) for key in keys}, state, reductions)


def finish(state: pa.Table, aggregate: Aggregate) -> pa.ChunkedArray:
    """Compute the result of ``aggregate`` from merged accumulators, one value per row."""
    first, *rest = (state.column(needs.name) for needs in aggregate.accumulators)
    if aggregate.function != "avg":
        return first
    # Doubles are what Spark divides; above 2**53 the sum is rounded, as it is there.
    total, count = (column.cast(pa.float64(), safe=False) for column in (first, *rest))
    return call_function("divide", [total, count])


def _is_real(data_type: pa.DataType) -> bool:
    return pa.types.is_float32(data_type) or pa.types.is_float64(data_type)


def _is_ordered(data_type: pa.DataType) -> bool:
    types = pa.types
    is_text = types.is_string(data_type) or types.is_large_string(data_type)
    is_time = types.is_date32(data_type) or types.is_timestamp(data_type)
    is_number = types.is_integer(data_type) or _is_real(data_type) or types.is_decimal(data_type)
    return is_number or is_time or is_text or types.is_boolean(data_type)
