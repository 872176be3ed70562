"""Exact distinct counts and exact percentiles: the distinct values of each group, sorted.

State grows with the distinct values of a group, not with its rows. If it grows too large, use
``hyperloglog`` and ``digests``.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from laminar_core.aggregates.grouping import is_ordered, plain_type
from laminar_core.aggregates.moments import is_number
from laminar_core.aggregates.row_groups import Integers, RowGroups, known_rows, listed, unlisted
from laminar_core.aggregates.values import canonical, canonical_type, ranks

_COUNTED = pa.struct([("value", pa.float64()), ("count", pa.int64())])


@dataclass(frozen=True, slots=True)
class DistinctValues:
    """List of the distinct values of each group, ascending, without null; NaN comes last."""

    label: str = "distinct"
    version: int = 1

    def state_type(self, columns: list[pa.DataType]) -> pa.DataType | None:
        """Return the state's type for all ordered types; half floats are stored as float32."""
        if not is_ordered(plain_type(columns[0])):
            return None
        return pa.list_(canonical_type(columns[0]))

    def accumulate(self, columns: list[pa.Array], groups: RowGroups) -> pa.Array:
        """Return the distinct values of each group, sorted."""
        known = known_rows(columns[0])
        values = canonical(columns[0]).filter(pa.array(known))
        return _distinct(groups.numbers()[known], values, groups.count)

    def merge(self, states: pa.Array, groups: RowGroups) -> pa.Array:
        """Return the distinct values of all lists of each group, sorted."""
        return _distinct(*unlisted(states, groups.numbers()), groups.count)


def _distinct(numbers: Integers, values: pa.Array, group_count: int) -> pa.Array:
    places = ranks(values)
    order = _order(numbers, places)
    order = order[_begins(numbers[order], places[order])]
    return listed(numbers[order], values.take(pa.array(order)), group_count)


def _order(numbers: Integers, places: Integers) -> Integers:
    """Sort by group, then by rank; one key sorts several times as fast as two."""
    low, high = int(places.min(initial=0)), int(places.max(initial=0))
    groups, span = int(numbers.max(initial=0)) + 1, high - low + 1
    if groups * span < 2**63:
        return np.argsort(numbers * span + (places - low))
    return np.lexsort((places, numbers))


def _begins(numbers: Integers, places: Integers) -> np.ndarray:
    """Where a sorted pair differs from the one before it."""
    begins = np.ones(len(numbers), np.bool_)
    begins[1:] = (numbers[1:] != numbers[:-1]) | (places[1:] != places[:-1])
    return begins


def distinct_count(states: pa.Array) -> pa.Array:
    """Return the number of distinct values of each group."""
    return pa.array(np.diff(states.offsets.to_numpy()).astype(np.int64))


@dataclass(frozen=True, slots=True)
class ValueCounts:
    """List of ``{value, count}`` of each group, ascending by value, in double precision."""

    label: str = "value_counts"
    version: int = 1

    def state_type(self, columns: list[pa.DataType]) -> pa.DataType | None:
        """Return the state's type for numbers; None for others."""
        return pa.list_(_COUNTED) if is_number(columns[0]) else None

    def accumulate(self, columns: list[pa.Array], groups: RowGroups) -> pa.Array:
        """Return the distinct values of each group with their counts."""
        known = known_rows(columns[0])
        values = canonical(columns[0]).filter(pa.array(known)).cast(pa.float64(), safe=False)
        return _counted(groups.numbers()[known], values, np.ones(len(values)), groups.count)

    def merge(self, states: pa.Array, groups: RowGroups) -> pa.Array:
        """Return the distinct values of each group with the counts added up."""
        numbers, items = unlisted(states, groups.numbers())
        values, counts = items.flatten()
        return _counted(numbers, values, counts.to_numpy(), groups.count)


def _counted(numbers: Integers, values: pa.Array, counts: np.ndarray, group_count: int) -> pa.Array:
    places = ranks(values)
    order = _order(numbers, places)
    begins = np.flatnonzero(_begins(numbers[order], places[order]))
    sums = np.add.reduceat(counts[order].astype(np.int64), begins) if len(begins) else begins
    kept = order[begins]
    columns = [values.take(pa.array(kept)), pa.array(sums.astype(np.int64))]
    items = pa.StructArray.from_arrays(columns, fields=list(_COUNTED))
    return listed(numbers[kept], items, group_count)


def percentile(states: pa.Array, fraction: float) -> pa.Array:
    """Interpolate linearly between the two values next to ``fraction``; null without values.

    Source: Spark's ``percentile``, which is ``PERCENTILE_CONT`` of SQL.
    """
    starts = states.offsets.to_numpy().astype(np.int64)
    items = states.values
    values, counts = (field.to_numpy(zero_copy_only=False) for field in items.flatten())
    ends = np.append(0, np.cumsum(counts))  # Values up to each item, over all groups.
    before, totals = ends[starts[:-1]], ends[starts[1:]] - ends[starts[:-1]]
    position = fraction * (totals - 1)
    has_values = totals > 0
    lower, upper = np.floor(position), np.ceil(position)
    result = np.zeros(len(totals))
    low, high = (_at(values, ends, (before + place)[has_values]) for place in (lower, upper))
    weight = (position - lower)[has_values]
    with np.errstate(invalid="ignore"):  # Between infinities.
        between = (1 - weight) * low + weight * high
    result[has_values] = np.where((weight == 0) | (low == high), low, between)
    return pa.array(result, mask=~has_values)


def _at(values: np.ndarray, ends: np.ndarray, places: np.ndarray) -> np.ndarray:
    """The value at each place among all values, counted with repetition."""
    return values[np.searchsorted(ends, places.astype(np.int64), side="right") - 1]
