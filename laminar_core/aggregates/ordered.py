"""First and last value by an order that a column defines.

"The first row that arrived" depends on which channel was faster, so a restart may give another
answer. Here a column defines the order, most often event time. Of rows with equal order, ``first``
takes the smallest value and ``last`` the largest, a null only if there is no other. So the result
depends only on the rows, however they were batched, sent and merged. Rows with a null in the order
column do not count. Spark's ``min_by`` and ``max_by`` behave so except for ties.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from laminar_core.aggregates.grouping import is_ordered, plain_type
from laminar_core.aggregates.row_groups import Integers, RowGroups
from laminar_core.aggregates.values import NULL_RANK, plain, ranks


@dataclass(frozen=True, slots=True)
class Endmost:
    """``{at, value}`` of the first or last row of each group; null where none has a place."""

    end: Literal["first", "last"]
    version: int = 1

    @property
    def label(self) -> str:
        """The name: ``first`` or ``last``."""
        return self.end

    def state_type(self, columns: list[pa.DataType]) -> pa.DataType | None:
        """Return the state's type for two columns: the value, and its order.

        None if one is not ordered.
        """
        value, at = map(plain_type, columns)
        if not (is_ordered(value) and is_ordered(at)):
            return None
        return pa.struct([("at", at), ("value", value)])

    def accumulate(self, columns: list[pa.Array], groups: RowGroups) -> pa.Array:
        """Return the first or last row of each group."""
        value, at = map(plain, columns)
        places, numbers = ranks(at), groups.numbers()
        rows = np.flatnonzero(places != NULL_RANK)
        rows = rows[self._is_endmost(places[rows], numbers[rows], groups.count)]
        if len(rows) > len(np.unique(numbers[rows])):  # Some are at one place: values decide.
            sizes = ranks(value.take(pa.array(rows)))
            known = np.bincount(numbers[rows], sizes != NULL_RANK, groups.count) > 0
            is_value = (sizes != NULL_RANK) | ~known[numbers[rows]]
            rows, sizes = rows[is_value], sizes[is_value]
            rows = rows[self._is_endmost(sizes, numbers[rows], groups.count)]
        picked = np.full(groups.count, -1)
        picked[numbers[rows]] = rows  # Of several that are equal, one.
        return _struct_at(at, value, picked)

    def _is_endmost(self, ranked: Integers, numbers: Integers, group_count: int) -> np.ndarray:
        """Return which rows have the smallest, or the largest, rank of their group."""
        limits = np.iinfo(np.int64)
        if self.end == "first":
            ends = np.full(group_count, limits.max)
            np.minimum.at(ends, numbers, ranked)
        else:
            ends = np.full(group_count, limits.min)
            np.maximum.at(ends, numbers, ranked)
        return ranked == ends[numbers]

    def merge(self, states: pa.Array, groups: RowGroups) -> pa.Array:
        """Return the first or last state of each group."""
        at, value = states.flatten()
        return self.accumulate([value, at], groups)


def _struct_at(at: pa.Array, value: pa.Array, rows: np.ndarray) -> pa.Array:
    missing = rows < 0
    indices = pa.array(rows, mask=missing)
    fields = [pa.field("at", at.type), pa.field("value", value.type)]
    columns = [at.take(indices), value.take(indices)]
    return pa.StructArray.from_arrays(columns, fields=fields, mask=pa.array(missing))


def values_of(states: pa.Array) -> pa.Array:
    """Return the values of the picked rows."""
    return states.flatten()[1]
