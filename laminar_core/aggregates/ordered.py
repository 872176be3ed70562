"""First and last value by an order that rows carry in themselves.

"The first row that arrived" depends on which channel was faster, so a restart may answer
differently. Here a column says what comes first, most often event time. Of rows at one place in
the order, ``first`` takes the smallest value and ``last`` the largest, a null only where there is
nothing else: the answer is that of the rows, however they were cut, sent and merged. Rows without
a place in the order do not count. So do Spark's ``min_by`` and ``max_by``, but for ties.
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
        """``first`` or ``last``."""
        return self.end

    def state_type(self, columns: list[pa.DataType]) -> pa.DataType | None:
        """Columns are the value and what it is ordered by."""
        value, at = map(plain_type, columns)
        if not (is_ordered(value) and is_ordered(at)):
            return None
        return pa.struct([("at", at), ("value", value)])

    def accumulate(self, columns: list[pa.Array], groups: RowGroups) -> pa.Array:
        """Pick one row of each group."""
        value, at = map(plain, columns)
        places, numbers = ranks(at), groups.numbers()
        rows = np.flatnonzero(places != NULL_RANK)
        rows = rows[self._is_endmost(places[rows], numbers[rows], groups.count)]
        if len(rows) > groups.count:  # Some are at one place: their values decide.
            sizes = ranks(value.take(pa.array(rows)))
            known = np.bincount(numbers[rows], sizes != NULL_RANK, groups.count) > 0
            is_value = (sizes != NULL_RANK) | ~known[numbers[rows]]
            rows, sizes = rows[is_value], sizes[is_value]
            rows = rows[self._is_endmost(sizes, numbers[rows], groups.count)]
        picked = np.full(groups.count, -1)
        picked[numbers[rows]] = rows  # Of several that are equal, one.
        return _struct_at(at, value, picked)

    def _is_endmost(self, ranked: Integers, numbers: Integers, group_count: int) -> np.ndarray:
        """Which of these are the smallest, or the largest, of their group."""
        limits = np.iinfo(np.int64)
        if self.end == "first":
            ends = np.full(group_count, limits.max)
            np.minimum.at(ends, numbers, ranked)
        else:
            ends = np.full(group_count, limits.min)
            np.maximum.at(ends, numbers, ranked)
        return ranked == ends[numbers]

    def merge(self, states: pa.Array, groups: RowGroups) -> pa.Array:
        """The same among states: they are rows."""
        at, value = states.flatten()
        return self.accumulate([value, at], groups)


def _struct_at(at: pa.Array, value: pa.Array, rows: np.ndarray) -> pa.Array:
    missing = rows < 0
    indices = pa.array(rows, mask=missing)
    fields = [pa.field("at", at.type), pa.field("value", value.type)]
    columns = [at.take(indices), value.take(indices)]
    return pa.StructArray.from_arrays(columns, fields=fields, mask=pa.array(missing))


def values_of(states: pa.Array) -> pa.Array:
    """The values that were picked."""
    return states.flatten()[1]
