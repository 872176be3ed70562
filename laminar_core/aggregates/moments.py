"""Variance and standard deviation from count, mean and sum of squared deviations.

Sums of squares would lose all digits where the spread is small against the mean. Halves merge as
in Chan, Golub & LeVeque, "Updating formulae and a pairwise algorithm for computing sample
variances" (1979), here for any number of halves at once:

    n = sum n_i;   d_i = mean_i - p;   d = sum n_i d_i / n
    mean = p + d;   m2 = sum m2_i + sum n_i (d_i - d)**2

with ``p`` the mean of the first half, which makes merging one half exact, and keeps digits that
are lost next to a large mean.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from laminar_core.aggregates.grouping import plain_type
from laminar_core.aggregates.row_groups import Integers, RowGroups, known_rows, sums
from laminar_core.aggregates.values import canonical

Spread = Literal["var_pop", "var_samp", "stddev_pop", "stddev_samp"]

_STATE = pa.struct([("count", pa.int64()), ("mean", pa.float64()), ("m2", pa.float64())])
_Reals = npt.NDArray[np.float64]


def is_number(data_type: pa.DataType) -> bool:
    """Return whether the type is an integer, floating point or decimal type."""
    plain, types = plain_type(data_type), pa.types
    return types.is_integer(plain) or types.is_floating(plain) or types.is_decimal(plain)


def real_values(column: pa.Array, groups: RowGroups) -> tuple[Integers, _Reals]:
    """Group number and value, in double precision, of every row that has one."""
    known = known_rows(column)
    values = canonical(column).cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return groups.numbers()[known], values[known]


@dataclass(frozen=True, slots=True)
class Moments:
    """``{count, mean, m2}`` of each group; mean and m2 are 0 where the count is."""

    label: str = "moments"
    version: int = 1

    def state_type(self, columns: list[pa.DataType]) -> pa.DataType | None:
        """Return the state's type for numbers, in double precision as in Spark; None for others."""
        return _STATE if is_number(columns[0]) else None

    def accumulate(self, columns: list[pa.Array], groups: RowGroups) -> pa.Array:
        """Return the moments of each group, in two passes.

        The mean, then the deviations from it.
        """
        numbers, values = real_values(columns[0], groups)
        count = np.bincount(numbers, minlength=groups.count)
        return _merged(numbers, np.ones(len(values)), values, np.zeros(len(values)), count)

    def merge(self, states: pa.Array, groups: RowGroups) -> pa.Array:
        """Return the merged moments of each group; the module has the formulas."""
        n, mean, m2 = (field.to_numpy() for field in states.flatten())
        known = n > 0
        numbers = groups.numbers()[known]
        count = np.bincount(numbers, n[known], groups.count).astype(np.int64)
        return _merged(numbers, n[known].astype(np.float64), mean[known], m2[known], count)


def moments_of(
    numbers: Integers, values: _Reals, weights: Integers, group_count: int
) -> pa.StructArray:
    """Return the moments of values, each with the number of its group and how often it is there."""
    count = np.bincount(numbers, weights, group_count).astype(np.int64)
    return _merged(numbers, weights.astype(np.float64), values, np.zeros(len(values)), count)


def _merged(
    numbers: Integers, n: _Reals, mean: _Reals, m2: _Reals, count: Integers
) -> pa.StructArray:
    groups = len(count)
    pivot = np.zeros(groups)
    pivot[numbers[::-1]] = mean[::-1]  # The first one of a group is written last.
    with np.errstate(invalid="ignore", over="ignore"):  # Infinities have no spread: NaN.
        distance = mean - pivot[numbers]  # Exact for neighbours: the digits of the spread.
        shift = sums(numbers, n * distance, groups) / np.maximum(count, 1)
        apart = n * (distance - shift[numbers]) ** 2
    total = sums(numbers, m2, groups) + sums(numbers, apart, groups)
    columns = [pa.array(count), pa.array(pivot + shift), pa.array(total)]
    return pa.StructArray.from_arrays(columns, fields=list(_STATE))


def spread(states: pa.Array, which: Spread) -> pa.Array:
    """Return variance or standard deviation; null without values, and for a sample of one."""
    count, _, m2 = (field.to_numpy() for field in states.flatten())
    divisor = count - which.endswith("_samp")
    variance = m2 / np.maximum(divisor, 1)
    result = np.sqrt(variance) if which.startswith("stddev") else variance
    return pa.array(result, mask=divisor < 1)
