"""Merge rows of accumulators with one other row each, without grouping them.

Grouping costs the same for twenty rows as for a thousand. Where each key has one row of state and
one partial result, they are two columns side by side, and one call merges a column. That is done
for the plain functions over columns where it gives what ``grouping`` gives; the others are grouped.
"""

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
from pyarrow.compute import call_function

from laminar_core.aggregates.accumulators import Accumulator

_Columns = tuple[pa.ChunkedArray, pa.ChunkedArray]
_Merge = Callable[[_Columns], pa.ChunkedArray | None]
"""Merges two columns value by value; None if they have to be grouped."""

PairMerge = Callable[[pa.Table, pa.Table], list[pa.ChunkedArray] | None]
"""Takes rows of state and partial results, of the same keys in the same order."""


def pair_merge(schema: pa.Schema, accumulators: Sequence[Accumulator]) -> PairMerge | None:
    """Return the function that merges accumulators with these types; None if there is none.

    It returns a column for each accumulator, or None if these rows have to be grouped.
    """
    names = [accumulator.name for accumulator in accumulators]
    chosen = [_merge_of(accumulator, schema) for accumulator in accumulators]
    merges = [merge for merge in chosen if merge is not None]
    if len(merges) < len(chosen):
        return None

    def merge_pairs(state: pa.Table, partial: pa.Table) -> list[pa.ChunkedArray] | None:
        merged: list[pa.ChunkedArray] = []
        for name, merge in zip(names, merges, strict=True):
            column = merge((state.column(name), partial.column(name)))
            if column is None:
                return None
            merged.append(column)
        return merged

    return merge_pairs


def _merge_of(accumulator: Accumulator, schema: pa.Schema) -> _Merge | None:
    data_type = schema.field(accumulator.name).type
    match accumulator.function:
        case "count" | "sum" if pa.types.is_int64(data_type):
            return _sums
        case "count" | "sum" if pa.types.is_float64(data_type):
            return _sums
        case "min" if _is_exact(data_type):
            return lambda pair: _extremes(pair, "min_element_wise")
        case "max" if _is_exact(data_type):
            return lambda pair: _extremes(pair, "max_element_wise")
        case "min" if pa.types.is_float64(data_type):
            return lambda pair: _float_extremes(pair, np.fmin)
        case "max" if pa.types.is_float64(data_type):
            return lambda pair: _float_extremes(pair, np.maximum)
        case _:
            return None


def _is_exact(data_type: pa.DataType) -> bool:
    return pa.types.is_integer(data_type) or pa.types.is_timestamp(data_type)


def _sums(pair: _Columns) -> pa.ChunkedArray | None:
    if any(column.null_count for column in pair):
        return None
    try:
        return call_function("add_checked", [*pair])
    except pa.ArrowInvalid:
        return None  # Grouping says which sum it is.


def _extremes(pair: _Columns, function: str) -> pa.ChunkedArray:
    """Compare times as the integers that they are: Arrow has no such function for zoned ones."""
    data_type = pair[0].type
    if pa.types.is_integer(data_type):
        return call_function(function, [*pair])
    numbers = [column.cast(pa.int64()) for column in pair]
    return call_function(function, numbers).cast(data_type)


def _float_extremes(pair: _Columns, extreme: np.ufunc) -> pa.ChunkedArray | None:
    """NaN is larger than any number: only the least value looks past it."""
    if any(column.null_count for column in pair):
        return None
    state, partial = (column.to_numpy() for column in pair)
    return pa.chunked_array([pa.array(extreme(state, partial))])
