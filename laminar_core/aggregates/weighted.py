"""State of aggregates over rows that come and go, each with a weight.

Counts and sums take a row away by adding it with a negative weight. Minima, percentiles and all
others that depend on single values keep every distinct value of a group with its weight, so their
state grows with the distinct values. Weights below zero are kept: the row may still come.

A sum of floats has three traps, and ``Balance`` is kept beside it for them. NaN and infinity do not
go away by subtraction, so they are counted. What is left after rounding is not zero, so a checksum
of the values says whether all of them have gone. And a sum of no values is null.
"""

from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow.compute import call_function

from laminar_core.aggregates.distinct import percentile
from laminar_core.aggregates.grouping import is_ordered, plain_type
from laminar_core.aggregates.moments import Spread, moments_of, spread
from laminar_core.aggregates.row_groups import (
    Integers,
    RowGroups,
    StateFunction,
    known_rows,
    listed,
    unlisted,
)
from laminar_core.aggregates.values import (
    NULL_RANK,
    canonical,
    canonical_type,
    hashes,
    ranks,
)

_BALANCE = pa.struct([(name, pa.int64()) for name in ("nan", "high", "low", "check")])
_WEIGHT = pa.field("_weight", pa.int64())  # No column of rows with weights can be called so.


@runtime_checkable
class WeightedFunction(StateFunction, Protocol):
    """A state function over rows with weights; ``accumulate`` gives each the weight 1."""

    def accumulate_weighted(
        self, columns: list[pa.Array], weights: Integers, groups: RowGroups
    ) -> pa.Array:
        """Return the state of each group, computed from input rows."""
        ...


@dataclass(frozen=True, slots=True)
class WeightedValues:
    """A list of ``{names ..., _weight}`` of each group: its distinct values with their weights.

    Shapes: a column of input for each of ``names``. Items are sorted by them, null first. Rows with
    a null in the first column are left out, unless ``has_nulls``.
    """

    label: str = "weighted_values"
    names: tuple[str, ...] = ("value",)
    has_nulls: bool = False
    version: int = 1

    def state_type(self, columns: list[pa.DataType]) -> pa.DataType | None:
        """Return the state's type for ordered types; None for others."""
        if not all(is_ordered(plain_type(column)) for column in columns):
            return None
        fields = zip(self.names, map(canonical_type, columns), strict=True)
        return pa.list_(pa.struct([*(pa.field(*one) for one in fields), _WEIGHT]))

    def accumulate(self, columns: list[pa.Array], groups: RowGroups) -> pa.Array:
        """Return the distinct values of each group, each with the number of its rows."""
        return self.accumulate_weighted(columns, np.ones(len(columns[0]), np.int64), groups)

    def accumulate_weighted(
        self, columns: list[pa.Array], weights: Integers, groups: RowGroups
    ) -> pa.Array:
        """Return the distinct values of each group, each with the sum of its weights."""
        values, numbers = [canonical(column) for column in columns], groups.numbers()
        if not self.has_nulls:
            known = known_rows(columns[0])
            values = [column.filter(pa.array(known)) for column in values]
            numbers, weights = numbers[known], weights[known]
        return self._added(numbers, values, weights, groups.count)

    def merge(self, states: pa.Array, groups: RowGroups) -> pa.Array:
        """Return the values of all lists of each group, with the sums of their weights."""
        numbers, items = unlisted(states, groups.numbers())
        *values, counts = items.flatten()
        return self._added(numbers, values, counts.to_numpy(), groups.count)

    def _added(
        self, numbers: Integers, values: list[pa.Array], weights: Integers, group_count: int
    ) -> pa.Array:
        keys = [numbers, *(ranks(column) for column in values)]
        order = np.lexsort(keys[::-1])
        begins = np.zeros(len(order), np.bool_)
        begins[:1] = True
        for key in keys:
            begins[1:] |= np.diff(key[order]) != 0
        first = np.flatnonzero(begins)
        added = np.add.reduceat(weights[order], first) if len(first) else np.empty(0, np.int64)
        kept, added = order[first][added != 0], added[added != 0].astype(np.int64)
        columns = [*(column.take(pa.array(kept)) for column in values), pa.array(added)]
        fields = [pa.field(*one) for one in zip(self.names, (v.type for v in values), strict=True)]
        items = pa.StructArray.from_arrays(columns, fields=[*fields, _WEIGHT])
        return listed(numbers[kept], items, group_count)


@dataclass(frozen=True, slots=True)
class Balance:
    """``{nan, high, low, check}`` of each group: what a sum of floats cannot say itself.

    The weights of NaN and of both infinities, and a sum of hashes, which is 0 if all values have
    gone. All are 0 for other types.
    """

    label: str = "balance"
    version: int = 1

    def state_type(self, columns: list[pa.DataType]) -> pa.DataType | None:
        """Return the state's type."""
        del columns
        return _BALANCE

    def accumulate(self, columns: list[pa.Array], groups: RowGroups) -> pa.Array:
        """Return the balance of rows with the weight 1."""
        return self.accumulate_weighted(columns, np.ones(len(columns[0]), np.int64), groups)

    def accumulate_weighted(
        self, columns: list[pa.Array], weights: Integers, groups: RowGroups
    ) -> pa.Array:
        """Return the balance of each group."""
        if not pa.types.is_floating(plain_type(columns[0].type)):
            nothing = pa.array(np.zeros(groups.count, np.int64))
            return pa.StructArray.from_arrays([nothing] * 4, fields=list(_BALANCE))
        column = canonical(columns[0]).cast(pa.float64())
        values = column.fill_null(0.0).to_numpy()
        parts = [np.isnan(values), values == np.inf, values == -np.inf]
        checks = hashes(column).view(np.int64) * known_rows(column)
        return _balances([*(part * weights for part in parts), checks * weights], groups)

    def merge(self, states: pa.Array, groups: RowGroups) -> pa.Array:
        """Return the sums, which wrap around as those of the check must."""
        return _balances([part.to_numpy() for part in states.flatten()], groups)


def _balances(parts: list[Integers], groups: RowGroups) -> pa.Array:
    numbers, added = groups.numbers(), np.zeros((len(parts), groups.count), np.int64)
    for sums, part in zip(added, parts, strict=True):
        np.add.at(sums, numbers, part)
    return pa.StructArray.from_arrays([pa.array(sums) for sums in added], fields=list(_BALANCE))


def balanced_sum(sums: pa.Array, counts: pa.Array, balance: pa.Array) -> pa.Array:
    """Return the sum of each group; null where it has no value."""
    has_values = call_function("greater", [counts, pa.scalar(0, pa.int64())])
    if pa.types.is_floating(sums.type):
        nan, high, low = (part.to_numpy() > 0 for part in balance.flatten()[:3])
        finite = sums.fill_null(0.0).to_numpy()
        special = np.select([nan | (high & low), high, low], [np.nan, np.inf, -np.inf], finite)
        sums = pa.array(special)
    return call_function("if_else", [has_values, sums, pa.scalar(None, sums.type)])


def weighted_result(
    states: pa.Array, function: str, fraction: float | None, result: pa.DataType
) -> pa.Array:
    """Return the result of ``function`` for each group, from the values with a positive weight."""
    numbers, items = unlisted(states, np.arange(len(states)))
    counts: Integers = items.flatten()[-1].to_numpy()
    there = pa.array(counts > 0)
    kept = _Items(numbers[counts > 0], items.filter(there), len(states))
    match function:
        case "count_distinct":
            return pa.array(np.bincount(kept.numbers, minlength=kept.group_count).astype(np.int64))
        case "min":
            return kept.ends("first").flatten()[0].cast(result)
        case "max":
            return kept.ends("last").flatten()[0].cast(result)
        case "first" | "last" as end:
            return kept.ends(end).flatten()[1].cast(result)
        case "row":
            return kept.ends("last")
        case "percentile":
            return percentile(kept.counted(), fraction or 0.0)
        case "var_pop" | "var_samp" | "stddev_pop" | "stddev_samp" as which:
            return kept.spread(which)
        case _:
            raise AssertionError(f"{function} keeps no values")


@dataclass(frozen=True, slots=True)
class _Items:
    """The items of all groups that are there, sorted by group and value."""

    numbers: Integers
    items: pa.StructArray
    group_count: int

    def ends(self, end: Literal["first", "last"]) -> pa.StructArray:
        """Return the first or the last item of each group; null where there is none."""
        order = np.arange(len(self.numbers))
        values = self.items.flatten()[:-1]
        if end == "first" and len(values) > 1:  # Of several at one place a null comes last.
            *places, value = (ranks(column) for column in values)
            keys = [self.numbers, *places, value == NULL_RANK, value]
            order = np.lexsort(keys[::-1])
        picked = np.full(self.group_count, -1)
        chosen = order[::-1] if end == "first" else order
        picked[self.numbers[chosen]] = chosen  # What is written last stays.
        return self.items.take(pa.array(picked, mask=picked < 0))

    def counted(self) -> pa.ListArray:
        """Return the lists of values in double precision and their counts."""
        values, counts = self.items.flatten()
        parts = {"value": values.cast(pa.float64(), safe=False), "count": counts}
        return listed(
            self.numbers,
            pa.StructArray.from_arrays(list(parts.values()), names=list(parts)),
            self.group_count,
        )

    def spread(self, which: Spread) -> pa.Array:
        """Return the variance or deviation, each value as often as it is there."""
        values, counts = self.items.flatten()
        real: npt.NDArray[Any] = values.cast(pa.float64(), safe=False).to_numpy()
        return spread(moments_of(self.numbers, real, counts.to_numpy(), self.group_count), which)
