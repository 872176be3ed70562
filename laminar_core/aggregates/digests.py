"""Approximate percentiles: one t-digest per group, by the Apache DataSketches library.

A t-digest answers ranks near 0 and 1 more precisely than those in the middle, and the same values
in the same order give the same bytes. (KLL sketches, which have a proven bound, draw random
numbers: two runs over the same rows would differ.) With ``k`` = 500 the rank of an answer is within
0.01 of the requested rank; ``tests/aggregates/test_digests.py`` measures it, including merged
digests.

State of a group: ``{digest, low, high, nan}``, the serialised ``tdigest_double`` over the finite
values (null if there are none) and the counts of values that it does not accept: -inf, inf, NaN.

Updates take all values of a group at once, so the only Python loop is over groups.
"""

# datasketches ships no types.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
from datasketches import tdigest_double  # pyright: ignore[reportAttributeAccessIssue] - its names are in a compiled module

from laminar_core.aggregates.moments import is_number, real_values
from laminar_core.aggregates.row_groups import Integers, RowGroups

COMPRESSION_MIN, COMPRESSION_MAX = 10, 65_535
_STATE = pa.struct(
    [("digest", pa.binary()), ("low", pa.int64()), ("high", pa.int64()), ("nan", pa.int64())]
)


@dataclass(frozen=True, slots=True)
class Digests:
    """One t-digest per group."""

    compression: int = 500
    version: int = 1

    @property
    def label(self) -> str:
        """The name in state columns.

        It contains the compression, because others cannot be merged.
        """
        return f"t_digest_{self.compression}"

    def state_type(self, columns: list[pa.DataType]) -> pa.DataType | None:
        """Return the state's type for numbers, which are taken in double precision.

        None for others.
        """
        return _STATE if is_number(columns[0]) else None

    def accumulate(self, columns: list[pa.Array], groups: RowGroups) -> pa.Array:
        """Update a fresh digest of each group with its values."""
        numbers, values = real_values(columns[0], groups)
        outside = [
            np.bincount(numbers[is_so], minlength=groups.count)
            for is_so in (values == -np.inf, values == np.inf, np.isnan(values))
        ]
        finite = np.isfinite(values)
        numbers, values = numbers[finite], values[finite]
        order = np.argsort(numbers, kind="stable")
        ends = np.cumsum(np.bincount(numbers, minlength=groups.count)).tolist()
        values, digests, start = values[order], [], 0
        for end in ends:
            digests.append(self._digest(values[start:end]))
            start = end
        return _state(digests, outside)

    def merge(self, states: pa.Array, groups: RowGroups) -> pa.Array:
        """Merge the digests of each group, in order."""
        serialised, *counts = states.flatten()
        numbers = groups.numbers()
        outside = [
            np.bincount(numbers, count.to_numpy(), groups.count).astype(np.int64)
            for count in counts
        ]
        ordered = serialised.take(pa.array(groups.order))
        bounds = groups.starts.tolist()
        digests = [
            self._merged(ordered.slice(start, stop - start).drop_null())
            for start, stop in pairwise(bounds)
        ]
        return _state(digests, outside)

    def _digest(self, values: np.ndarray) -> bytes | None:
        if not len(values):
            return None
        digest = tdigest_double(self.compression)
        digest.update(values)
        return digest.serialize()

    def _merged(self, serialised: pa.Array) -> bytes | None:
        first, *others = serialised.to_pylist() or [None]
        if first is None or not others:
            return first
        merged = tdigest_double.deserialize(first)
        for other in others:
            merged.merge(tdigest_double.deserialize(other))
        return merged.serialize()


def _state(digests: list[bytes | None], outside: list[Integers]) -> pa.Array:
    columns = [pa.array(digests, pa.binary()), *map(pa.array, outside)]
    return pa.StructArray.from_arrays(columns, fields=list(_STATE))


def quantile(states: pa.Array, fraction: float) -> pa.Array:
    """Return the approximate value at rank ``fraction`` of each group; null without values."""
    digests, *outside = (field.to_pylist() for field in states.flatten())
    states_by_group = zip(digests, *outside, strict=True)
    answers = [_quantile(digest, counts, fraction) for digest, *counts in states_by_group]
    return pa.array(answers, pa.float64())


def _quantile(serialised: bytes | None, outside: list[int], fraction: float) -> float | None:
    low, high, nan = outside
    digest = None if serialised is None else tdigest_double.deserialize(serialised)
    finite = 0 if digest is None else digest.get_total_weight()
    place = fraction * (low + finite + high + nan)
    if not low + finite + high + nan:
        return None
    if place <= low and low:
        return -np.inf
    if digest is not None and place <= low + finite:
        return digest.get_quantile((place - low) / finite)
    return np.inf if high and place <= low + finite + high else np.nan if nan else np.inf
