"""From rows with weights to accumulators: the counterpart of ``accumulators.accumulate``.

A row of weight -2 counts as if it were there twice and taken away. So counts and sums add values
that are multiplied by their weight, exactly or not at all, and are merged like all others.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from pyarrow.compute import call_function

from laminar_core.aggregates.accumulators import ROW_COUNT, Accumulator
from laminar_core.aggregates.grouping import Reduction, group, plain_column, sum_type
from laminar_core.aggregates.row_groups import Integers, RowGroups, as_array
from laminar_core.aggregates.weighted import Balance, WeightedFunction, WeightedValues
from laminar_core.errors import DataError, ErrorCode

_DECIMAL_DIGITS_MAX = 76
_WEIGHT_DIGITS = 10


def accumulate_weighted(
    keys: Mapping[str, pa.ChunkedArray],
    rows: pa.Table,
    weights: Integers,
    accumulators: Sequence[Accumulator],
) -> pa.Table:
    """Reduce rows with weights to one row of accumulators per key; those of nothing are left out.

    Shapes: as ``accumulate``; keys are plain values.

    Raises:
        DataError: a sum leaves its type (ARITHMETIC_OVERFLOW).
    """
    columns: dict[str, pa.Array] = {}
    reductions = [_accumulation(needs, rows, weights, columns) for needs in accumulators]
    plain = {name: plain_column(key) for name, key in keys.items()}
    values = pa.table(columns) if columns else rows
    reduced = group(plain, values, reductions)
    return reduced.filter(pa.array(~is_nothing(reduced, accumulators)))


def is_nothing(state: pa.Table, accumulators: Sequence[Accumulator]) -> np.ndarray:
    """Return which groups are as if no row had ever come, but for the rounding of floats."""
    nothing = np.ones(state.num_rows, np.bool_)
    for needs in accumulators:
        column = as_array(state.column(needs.name))
        match needs.function:
            case WeightedValues():
                nothing &= np.diff(column.offsets.to_numpy()) == 0
            case Balance():
                for part in column.flatten():
                    nothing &= part.to_numpy() == 0
            case _ if not pa.types.is_floating(column.type):
                nothing &= _is_zero(column)
            case _:  # Its balance says it.
                pass
    return nothing


def _is_zero(column: pa.Array) -> np.ndarray:
    values = column.cast(pa.int64()) if pa.types.is_duration(column.type) else column
    zero = call_function("equal", [values, pa.scalar(0, values.type)])
    return zero.fill_null(pa.scalar(value=True)).to_numpy(zero_copy_only=False)


def _accumulation(
    needs: Accumulator, rows: pa.Table, weights: Integers, columns: dict[str, pa.Array]
) -> Reduction:
    function = needs.function
    if isinstance(function, WeightedFunction):

        def fold(groups: RowGroups) -> pa.Array:
            values = [as_array(rows.column(name)) for name in needs.columns]
            return function.accumulate_weighted(values, weights, groups)

        return Reduction(needs.name, fold, None)
    if needs == ROW_COUNT:
        columns[needs.name] = pa.array(weights)
        return Reduction(needs.name, "sum", needs.name)
    assert needs.column is not None, "only rows are counted without a column"
    values = as_array(plain_column(rows.column(needs.column)))
    if function == "count":
        columns[needs.name] = pa.array(weights * values.is_valid().to_numpy(zero_copy_only=False))
        return Reduction(needs.name, "sum", needs.name)
    assert function == "sum", f"{needs.name} takes no rows away"
    columns[needs.name] = _times(values, weights, needs.name)
    return Reduction(needs.name, "sum", needs.name, sum_type=sum_type(values.type))


def _times(values: pa.Array, weights: Integers, what: str) -> pa.Array:
    """Multiply each value by its weight; of floats only those that are finite."""
    types, data_type = pa.types, values.type
    if types.is_floating(data_type):
        real = values.cast(pa.float64())
        finite = call_function("is_finite", [real])
        kept = call_function("if_else", [finite, real, pa.scalar(0.0)])
        return call_function("multiply", [kept, pa.array(weights.astype(np.float64))])
    if types.is_decimal(data_type):
        return _decimal_times(values, weights, what)
    try:
        whole = values.cast(pa.int64())
        times = call_function("multiply_checked", [whole, pa.array(weights)])
    except pa.ArrowInvalid as error:
        raise _overflow(what) from error
    return times.cast(data_type) if types.is_duration(data_type) else times


def _decimal_times(values: pa.Array, weights: Integers, what: str) -> pa.Array:
    wide = pa.decimal256(values.type.precision, values.type.scale)
    if (np.abs(weights) == 1).all():  # The digits stay.
        values = values.cast(wide)
        negative = call_function("negate", [values])
        return call_function("if_else", [pa.array(weights < 0), negative, values])
    if wide.precision + _WEIGHT_DIGITS + 1 > _DECIMAL_DIGITS_MAX:
        raise _overflow(what)
    often = pa.array(weights).cast(pa.decimal128(19, 0)).cast(pa.decimal256(_WEIGHT_DIGITS, 0))
    return call_function("multiply", [values.cast(wide), often])


def _overflow(what: str) -> DataError:
    return DataError(
        ErrorCode.ARITHMETIC_OVERFLOW,
        f"{what} leaves its type; cast the column to float64 before it is summed",
    )
