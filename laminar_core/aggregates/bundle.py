"""Partial results of many batches, in arrays with a place for each key of a pane.

A batch that is reduced by itself leaves a row for each of its keys, and the owner of a key gets one
from every batch. In a bundle, batch after batch is added to the same arrays, so the owner gets one
row for all of them, and adding costs less than reducing: no result is taken out in between.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from laminar_core.aggregates.accumulators import Accumulator
from laminar_core.aggregates.dense import add_at, identity_of, is_simple
from laminar_core.aggregates.grouping import INT64_MAX, Reduction
from laminar_core.aggregates.key_places import KeyPlaces
from laminar_core.aggregates.numbered_keys import Numbers

BYTES_MAX = 64 << 20
"""Memory of all places of a bundle: with four arrays, a place for each of two million keys."""

PANES_MAX = 4
"""Number of neighbouring panes that a bundle has places for; a power of two."""

NEAR_PLACES_MIN = 65_536
"""From so many places on, all numbers of a place are next to each other in memory.

Adding a row to a place then misses the cache once or twice, not once for each number.

With fewer places, each accumulator has an array that fits into the cache by itself.
"""

STEP_ROWS = 16_384
"""Rows that all columns take before the next ones come, if they share lines of the cache."""

Values = npt.NDArray[np.int64 | np.float64]

_Batch = Sequence[Values | None]
"""The values of each accumulator's column; None: it counts rows."""


@dataclass(frozen=True, slots=True)
class Panes:
    """The panes of a batch: from ``first`` to ``last``; ``of_rows`` is None if that is one."""

    first: int
    last: int
    of_rows: npt.NDArray[np.int64] | None


@dataclass(frozen=True, slots=True)
class Addition:
    """A batch that can be added."""

    keys: Sequence[pa.ChunkedArray]
    places: KeyPlaces
    panes: Panes
    columns: _Batch
    largest: int
    """The most that the batch can add to any sum of integers, whatever its sign."""


@dataclass(frozen=True, slots=True)
class PartialResults:
    """Results of one pane: ``keys`` by column, and ``values`` by accumulator."""

    pane: int
    keys: Sequence[pa.Array]
    values: Sequence[pa.Array]


class Bundle:
    """The arrays, and the places of keys in them, which outlive the rows."""

    def __init__(self, accumulators: Sequence[Accumulator]) -> None:
        self._accumulators = accumulators
        arrays = 1 + sum(each.function != "count" for each in accumulators)
        self._places_max = BYTES_MAX // (8 * arrays)
        """Places in all panes."""
        self._places: KeyPlaces | None = None
        self._arrays: _Arrays | None = None
        self._scratch: Numbers = np.empty(0, np.intp)
        """Memory for the places of a batch's rows: fresh memory would cost more than they do."""
        self._panes: set[int] = set()
        self._largest = 0
        self._row_count = 0
        """Rows that were added and not taken."""
        self._rows_before = 0
        """Rows of the last bundle, from which those of the next one are estimated.

        A shorter bundle only halves the estimate, because it may have been cut short.
        """

    @property
    def first_pane(self) -> int | None:
        """The oldest pane that has rows; None: it is empty."""
        return min(self._panes, default=None)

    def addition(
        self, keys: Sequence[pa.ChunkedArray], panes: Panes, rows: pa.Table
    ) -> Addition | None:
        """Prepare to add ``rows``; return None if they cannot be bundled.

        They cannot if numpy would not reduce their values exactly, or if they have too many keys
        or panes.
        """
        if panes.last - panes.first >= PANES_MAX:
            return None
        found = _columns(rows, self._accumulators)
        if found is None:
            return None
        keys = [_encoded(key) for key in keys]
        row_count = rows.num_rows  # At least one more batch like it is expected.
        shared_by = max(2 * row_count, self._row_count + row_count, self._rows_before)
        rows_of_a_pane = shared_by // (panes.last - panes.first + 1)
        places = KeyPlaces.of(keys, self._places, rows_of_a_pane)
        if places is None or panes.last - panes.first >= self._panes_max(places):
            return None
        return Addition(keys, places, panes, *found)

    def has_room(self, addition: Addition) -> bool:
        """Return whether the batch can be added; if not, take all results first."""
        if not self._panes:
            return True
        assert self._places is not None
        first = min(*self._panes, addition.panes.first)
        last = max(*self._panes, addition.panes.last)
        return (
            addition.places.keeps(self._places)
            and self._largest + addition.largest <= INT64_MAX
            and last - first < self._panes_max(addition.places)
        )

    def add(self, addition: Addition) -> None:
        """Add a batch, for which there is room."""
        assert self.has_room(addition)
        places, panes = addition.places, addition.panes
        if not self._panes:
            self._largest = 0
        if self._arrays is None or self._arrays.count != places.count:
            self._arrays = _Arrays.of(
                places.count, self._panes_max(places), self._accumulators, addition.columns
            )
        self._places = places
        self._largest += addition.largest
        row_count = len(addition.keys[0])
        if len(self._scratch) < row_count:
            self._scratch = np.empty(row_count, np.intp)
        at = places.of_rows(addition.keys, self._scratch[:row_count])
        self._arrays.add(at, panes, addition.columns)
        self._row_count += row_count
        self._panes.update(range(panes.first, panes.last + 1))

    def take(self, before: int | None = None) -> Iterator[PartialResults]:
        """Take out the results of panes before this one, in ascending order; None: of all."""
        taken = [pane for pane in sorted(self._panes) if before is None or pane < before]
        if taken:
            self._rows_before = max(self._row_count, self._rows_before // 2)
        for pane in taken:
            assert self._places is not None
            assert self._arrays is not None
            self._panes.discard(pane)
            row_count, there, values = self._arrays.take(pane)
            self._row_count -= row_count
            if row_count:
                yield PartialResults(pane, self._places.keys(there), values)

    def _panes_max(self, places: KeyPlaces) -> int:
        """Return how many neighbouring panes can have these places; a power of two, or none."""
        return 1 << min(self._places_max // places.count, PANES_MAX).bit_length() >> 1


def _encoded(key: pa.ChunkedArray) -> pa.ChunkedArray:
    """Encode plain texts, so that each of them is looked up once."""
    types = pa.types
    is_text = types.is_string(key.type) or types.is_large_string(key.type)
    is_bytes = types.is_binary(key.type) or types.is_large_binary(key.type)
    return key.dictionary_encode() if is_text or is_bytes else key


@dataclass(frozen=True, slots=True)
class _Column:
    """One number of each place, and how a value is added to it."""

    numbers: Values
    function: np.ufunc


@dataclass(frozen=True, slots=True)
class _Arrays:
    """``count`` places for each of ``panes`` neighbouring panes.

    The places of a pane are found by its number modulo ``panes``. Shapes: ``places`` has a row for
    each place, ``empty`` is a row without input.
    """

    count: int
    panes: int
    places: npt.NDArray[np.int64]
    empty: npt.NDArray[np.int64]
    columns: Sequence[_Column | None]
    """By accumulator; None: it is the number of rows."""

    @classmethod
    def of(
        cls, count: int, panes: int, accumulators: Sequence[Accumulator], like: _Batch
    ) -> "_Arrays":
        """Return arrays without rows, for values that are ``like`` these."""
        width = 1 + sum(values is not None for values in like)
        order: Literal["C", "F"] = "C" if count * panes >= NEAR_PLACES_MIN else "F"
        places = np.empty((count * panes, width), np.int64, order)
        empty = np.zeros(width, np.int64)
        columns: list[_Column | None] = []
        at = 0
        for accumulator, values in zip(accumulators, like, strict=True):
            if values is None:
                columns.append(None)
                continue
            at += 1
            first, function = identity_of(str(accumulator.function), values.dtype)
            empty[at : at + 1].view(values.dtype)[0] = first
            columns.append(_Column(places[:, at].view(values.dtype), function))
        places[:] = empty
        return cls(count, panes, places, empty, columns)

    def add(self, at: Numbers, panes: Panes, batch: _Batch) -> None:
        """Add rows; ``at`` has the place of each in its pane."""
        part = slice(None)
        if panes.of_rows is None:
            part = self._part(panes.first)
        else:
            pane_at = panes.of_rows & (self.panes - 1)
            pane_at *= self.count
            at = np.add(pane_at, at, out=pane_at)
        pairs = zip(self.columns, batch, strict=True)
        added = [
            (column.function, column.numbers[part], values)
            for column, values in pairs
            if column is not None and values is not None
        ]
        row_counts = self.places[part, 0]
        for some in self._steps(len(at)):
            add_at(np.add, row_counts, at[some], 1)
            for function, numbers, values in added:
                add_at(function, numbers, at[some], values[some])

    def take(self, pane: int) -> tuple[int, Numbers, Sequence[pa.Array]]:
        """Remove the rows of the pane; return how many, the places that had any, their values."""
        part = self._part(pane)
        row_counts = self.places[part, 0]
        at = np.flatnonzero(row_counts)
        row_count = int(row_counts.sum())
        kept = [row_counts if column is None else column.numbers[part] for column in self.columns]
        found = [np.empty(len(at), numbers.dtype) for numbers in kept]
        for some in self._steps(len(at)):
            for values, numbers in zip(found, kept, strict=True):
                values[some] = numbers[at[some]]
        self.places[part] = self.empty
        return row_count, at, [pa.array(values) for values in found]

    def _steps(self, row_count: int) -> Iterator[slice]:
        are_near = len(self.places) >= NEAR_PLACES_MIN
        rows = STEP_ROWS if are_near else max(row_count, 1)
        return (slice(start, start + rows) for start in range(0, row_count, rows))

    def _part(self, pane: int) -> slice:
        first = (pane & (self.panes - 1)) * self.count
        return slice(first, first + self.count)


def _columns(rows: pa.Table, accumulators: Sequence[Accumulator]) -> tuple[_Batch, int] | None:
    """Return the values, and a bound of integer sums; None: numpy would not reduce them exactly."""
    columns: list[Values | None] = []
    largest = 0
    for accumulator in accumulators:
        if not isinstance(accumulator.function, str):
            return None
        reduction = Reduction(accumulator.name, accumulator.function, accumulator.column)
        if not is_simple(rows, reduction):
            return None
        if accumulator.function == "count":
            columns.append(None)
            continue
        values: Values = rows.column(str(accumulator.column)).to_numpy()
        columns.append(values)
        if accumulator.function == "sum" and values.dtype == np.int64:
            largest = max(largest, len(values) * max(-int(values.min()), int(values.max())))
    return columns, largest
