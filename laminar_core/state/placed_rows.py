"""The rows of a pane in arrays that have a place for each key: no key is looked up.

Partial results of integers that lie close together are added at the address of their key as they
come. Other rows have no place, and go to the buckets of the pane.

There are two *halves*, as in buckets: rows from before the last cut, and rows since then. Pinned
arrays never change again: later rows are added to a copy.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from laminar_core.aggregates.dense import add_at, identity_of
from laminar_core.aggregates.grouping import INT64_MAX
from laminar_core.aggregates.key_places import IntegerPlaces
from laminar_core.aggregates.numbered_keys import Numbers, distances
from laminar_core.codec.key_groups import key_group_order
from laminar_core.state.window_layout import StateLayout

PLACED_ROWS_MIN = 4_096
"""Rows of the first batch of a pane, or after a cut; a smaller one goes to the buckets."""

PLACES_PER_KEY_MAX = 6
"""Memory is the limit: a row of a bucket takes as much as one place, or two while it waits.

A subtask has the keys of its own key groups only. So four subtasks have four places for each key,
and somewhat more if not all keys have come.
"""

GROWTH_MAX = 0.8
"""A half grows up to this part of its places at most: with little to spare it would soon be copied
again."""

BYTES_MAX = 64 << 20
"""Memory of one half of one pane: with five accumulators, places for 1.7 million keys."""

KeyGroups = npt.NDArray[np.int32]
Values = npt.NDArray[np.int64] | npt.NDArray[np.float64]


@dataclass(slots=True, eq=False)
class _Half:
    """Shapes: each of ``columns`` has a place for each integer of ``keys``.

    The first column counts input rows, and is 0 at the places of keys that have none.
    """

    keys: range
    columns: Sequence[Values]
    is_pinned: bool = False

    @property
    def key_count(self) -> int:
        return int(np.count_nonzero(self.columns[0]))

    def places(self) -> Numbers:
        """Return the places that have a row, in ascending order."""
        return np.flatnonzero(self.columns[0])


@dataclass(frozen=True, slots=True)
class PlacedLayout:
    """The columns of a place. ``schema``: the key, and accumulators; the first one counts rows."""

    schema: pa.Schema
    functions: tuple[str, ...]
    """By accumulator: sum, min or max."""

    @classmethod
    def of(cls, layout: StateLayout) -> Self | None:
        """Return what the rows of this state have at their places; None: they cannot have any.

        Only panes that are a window by themselves have places. A pane of several windows is read
        for each of them, and its rows would be divided by key group each time.
        """
        schema = layout.pane_schema
        is_tumbling = layout.size_us == layout.slide_us and layout.grows_from_us is None
        if not is_tumbling or len(layout.keys) != 1 or not pa.types.is_integer(schema.types[0]):
            return None
        functions: list[str] = []
        for accumulator, data_type in zip(layout.accumulators, schema.types[1:], strict=True):
            function = "sum" if accumulator.function == "count" else accumulator.function
            # Of two zeros with different signs numpy and pyarrow take different ones as the least.
            is_exact = pa.types.is_float64(data_type) and function == "sum"
            if not isinstance(function, str) or not (pa.types.is_int64(data_type) or is_exact):
                return None
            functions.append(function)
        return cls(schema, tuple(functions))

    @property
    def places_max(self) -> int:
        """The most places of one half."""
        return BYTES_MAX // (8 * len(self.functions))

    @property
    def row_bytes(self) -> int:
        """Bytes of a row in a table."""
        return sum(data_type.bit_width for data_type in self.schema.types) // 8

    def half(self, keys: range) -> _Half:
        """Return places for these keys, without rows."""
        columns: list[Values] = []
        for function, data_type in zip(self.functions, self.schema.types[1:], strict=True):
            dtype = np.dtype(data_type.to_pandas_dtype())
            columns.append(np.full(len(keys), identity_of(function, dtype)[0], dtype))
        return _Half(keys, columns)

    def copied(self, half: _Half, keys: range) -> _Half:
        """Return a copy that has places for more keys, or for the same."""
        if keys == half.keys:
            return _Half(keys, [values.copy() for values in half.columns])
        copy = self.half(keys)
        here = _part(keys, half.keys)
        for column, values in zip(copy.columns, half.columns, strict=True):
            column[here] = values
        return copy

    def merged(self, half: _Half, other: _Half) -> _Half:
        """Merge ``other`` into ``half``, or into a copy where that must not change."""
        keys = _joined(half.keys, other.keys)
        if half.is_pinned or keys != half.keys:
            half = self.copied(half, keys)
        here = _part(keys, other.keys)
        triples = zip(self.functions, half.columns, other.columns, strict=True)
        with np.errstate(over="ignore", invalid="ignore"):
            for function, column, values in triples:
                _, merge = identity_of(function, column.dtype)
                merge(column[here], values, out=column[here])
        return half

    def keys(self, half: _Half, at: Numbers) -> pa.Table:
        """Return the keys at these places."""
        places = IntegerPlaces(self.schema.types[0], half.keys.start, len(half.keys))
        return pa.table([places.keys(at)], names=self.schema.names[:1])

    def table(self, half: _Half, at: Numbers) -> pa.Table:
        """Return the rows at these places. Shapes: returns ``schema``."""
        columns = [self.keys(half, at).column(0), *(column[at] for column in half.columns)]
        return pa.table(columns, schema=self.schema)

    def largest(self, columns: Sequence[Values]) -> int:
        """Return the largest absolute value in any column of integer sums."""
        return max(
            max(-int(values.min()), int(values.max()))
            for function, values in zip(self.functions, columns, strict=True)
            if function == "sum" and values.dtype == np.int64
        )


@dataclass(frozen=True, slots=True, eq=False)
class PinnedPlaces:
    """The placed rows of a pane as they were at some moment."""

    layout: PlacedLayout
    halves: Sequence[_Half]
    row_count: int
    """Number of rows; a key has one in each half."""

    @property
    def size_bytes(self) -> int:
        """Bytes of memory that the rows would take in a table."""
        return self.row_count * self.layout.row_bytes

    def read(self) -> pa.Table:
        """Return one row per key, in ascending order of keys; safe to call from any thread."""
        half = self._whole()
        return self.layout.table(half, half.places())

    def read_by_key_group(
        self, groups_of: Callable[[pa.Table], KeyGroups]
    ) -> tuple[KeyGroups, pa.Table]:
        """Return the key groups, ascending, and one row per key in their order.

        ``groups_of`` returns the key group of each row of a table that has the key.
        """
        half = self._whole()
        at = half.places()
        groups = groups_of(self.layout.keys(half, at))
        order = key_group_order(groups)
        return groups[order], self.layout.table(half, at[order])

    def _whole(self) -> _Half:
        return reduce(self.layout.merged, self.halves)


class PlacedRows:
    """The rows of one pane that have a place."""

    def __init__(self, layout: PlacedLayout) -> None:
        self._layout = layout
        self._settled: _Half | None = None
        self._fresh: _Half | None = None
        self._keys_before = 0
        """Keys that came between the last two cuts; about as many will come again."""
        self._largest = 0
        """A bound of the absolute value of every sum of integers."""
        self._is_measured = False
        """Whether the bound has been taken from the sums since the last cut."""

    def add(self, rows: pa.Table) -> bool:
        """Add partial results; return False, and leave them, if they cannot be placed.

        ``rows``: the layout's ``schema``.
        """
        if rows.num_rows < (PLACED_ROWS_MIN if self._fresh is None else 1):
            return False
        if any(column.null_count for column in rows.columns):
            return False
        keys, *values = (column.to_numpy() for column in rows.columns)
        if values[0].min() < 1:
            return False
        largest = rows.num_rows * self._layout.largest(values)
        if not self._fits(largest):
            return False
        half = self._room(range(int(keys.min()), int(keys.max()) + 1), rows.num_rows)
        if half is None:
            return False
        at = distances(keys, half.keys.start)
        for function, column, of_rows in zip(
            self._layout.functions, half.columns, values, strict=True
        ):
            add_at(identity_of(function, column.dtype)[1], column, at, of_rows)
        self._largest += largest
        return True

    def pin(self) -> PinnedPlaces | None:
        """Hold on to all rows; None: there are none."""
        halves = [half for half in (self._settled, self._fresh) if half is not None]
        return self._pinned(halves) if halves else None

    def take_fresh(self) -> PinnedPlaces | None:
        """Hold on to the rows since the last call, which are settled then; None: there are none."""
        fresh, self._fresh = self._fresh, None
        self._is_measured = False
        if fresh is None:
            return None
        pinned = self._pinned([fresh])
        self._keys_before = pinned.row_count
        settled = self._settled
        self._settled = fresh if settled is None else self._layout.merged(settled, fresh)
        return pinned

    def _pinned(self, halves: Sequence[_Half]) -> PinnedPlaces:
        for half in halves:
            half.is_pinned = True
        return PinnedPlaces(self._layout, halves, sum(half.key_count for half in halves))

    def _fits(self, largest: int) -> bool:
        """Return whether no sum can leave 64 bits by so much more."""
        if self._largest + largest > INT64_MAX and not self._is_measured:
            self._is_measured = True
            halves = (half for half in (self._settled, self._fresh) if half is not None)
            self._largest = sum(self._layout.largest(half.columns) for half in halves)
        return self._largest + largest <= INT64_MAX

    def _room(self, keys: range, row_count: int) -> _Half | None:
        """Return the half that takes rows of these keys; None: there would be too many places."""
        fresh, settled = self._fresh, self._settled
        if fresh is not None and _joined(fresh.keys, keys) == fresh.keys:
            if fresh.is_pinned:
                self._fresh = fresh = self._layout.copied(fresh, fresh.keys)
            return fresh
        came = 0 if fresh is None else fresh.key_count
        fresh_keys = row_count + max(came, self._keys_before)
        places_max = self._places_max(fresh_keys)
        wanted = keys if fresh is None else _joined(fresh.keys, keys)
        if _width(wanted) > (places_max if fresh is None else GROWTH_MAX * places_max):
            return None
        if settled is not None:
            all_keys = _joined(wanted, settled.keys)
            all_max = self._places_max(fresh_keys + settled.key_count)
            if _width(all_keys) > all_max:
                return None
            places_max = min(places_max, _width(wanted) + all_max - _width(all_keys))
            if _width(all_keys) <= places_max:
                wanted = all_keys
        if fresh is None:
            self._fresh = self._layout.half(wanted)
        else:
            self._fresh = self._layout.copied(fresh, self._with_spare(wanted, fresh, places_max))
        return self._fresh

    def _places_max(self, keys: int) -> int:
        return min(PLACES_PER_KEY_MAX * keys, self._layout.places_max)

    def _with_spare(self, wanted: range, grown: _Half, places_max: int) -> range:
        """Add places beyond the keys on the side to which the range has grown.

        Keys often come in ascending order, and the arrays would be copied for every batch.
        """
        spare = min(_width(wanted), places_max - _width(wanted)) // 2
        limits = np.iinfo(self._layout.schema.types[0].to_pandas_dtype())
        start = wanted.start - (spare if wanted.start < grown.keys.start else 0)
        stop = wanted.stop + (spare if wanted.stop > grown.keys.stop else 0)
        return range(max(start, limits.min), min(stop, limits.max + 1))


def _joined(one: range, other: range) -> range:
    """Return the least range with both."""
    return range(min(one.start, other.start), max(one.stop, other.stop))


def _width(keys: range) -> int:
    """Return the number of integers, which ``len`` does only below 2**63."""
    return keys.stop - keys.start


def _part(whole: range, part: range) -> slice:
    return slice(part.start - whole.start, part.stop - whole.start)
