"""Rows as partial results of one row each, for batches in which hardly any key comes twice.

Combining a batch costs a look into a hash table per row. If nearly every row has a key of its own,
as many rows are left, and the owner of the keys looks all of them up again. So each row becomes a
partial result by itself: a count of one, and its value as sum, minimum and maximum.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from laminar_core.aggregates.accumulators import Accumulator
from laminar_core.aggregates.grouping import has_nulls, plain_column

SPARSE = 0.75
"""Further batches are not combined if more than this part of the rows is left of one."""

SPARSE_BATCHES = 15
"""Number of batches until one is combined again, because keys may have changed."""


class Density:
    """Notes how many rows combining leaves, to decide whether the next batches are combined.

    It is part of no checkpoint, because results are the same whatever it decides.
    """

    def __init__(self) -> None:
        self._left = 0

    @property
    def is_sparse(self) -> bool:
        """Whether the next batch need not be combined."""
        return self._left > 0

    def combined(self, rows_before: int, rows_after: int) -> None:
        """Learn from a batch that was combined."""
        self._left = SPARSE_BATCHES if rows_after > SPARSE * rows_before else 0

    def left_alone(self) -> None:
        """Count a batch that was not."""
        self._left -= 1


def single_rows(
    rows: pa.Table, accumulators: Sequence[Accumulator]
) -> dict[str, pa.ChunkedArray] | None:
    """Return the accumulators of each row, by name; None if the rows have to be combined.

    Only counts, and sums and extremes of whole numbers and times, without nulls, need not be:
    merging single rows gives exactly what merging combined ones gives.
    """
    found: dict[str, pa.ChunkedArray] = {}
    for accumulator in accumulators:
        column = _single(rows, accumulator)
        if column is None:
            return None
        found[accumulator.name] = column
    return found


def _single(rows: pa.Table, accumulator: Accumulator) -> pa.ChunkedArray | None:
    if accumulator.column is None:
        return _ones(rows.num_rows) if accumulator.function == "count" else None
    values = rows.column(accumulator.column)
    if has_nulls(values):
        return None
    match accumulator.function:
        case "count":
            return _ones(rows.num_rows)
        case "sum" if pa.types.is_signed_integer(values.type):
            return values.cast(pa.int64())
        case "min" | "max" if _is_exact(values.type):
            return plain_column(values)
        case _:
            return None


def _ones(count: int) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(np.ones(count, np.int64))])


def _is_exact(data_type: pa.DataType) -> bool:
    types = pa.types
    return types.is_integer(data_type) or types.is_timestamp(data_type) or types.is_date(data_type)
