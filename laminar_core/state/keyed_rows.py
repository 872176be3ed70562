"""One row of accumulators per key, for operators that emit results after every batch.

Merging on read, as windows do it, would read everything for each batch. Here a hash table numbers
the keys, and their rows are a log: a changed key gets a new row at the end, and its previous row is
dead. Tables of the log are immutable. Two neighbours are merged without their dead rows when the
older has at most twice the rows of the newer. So there are few tables, each row is copied a
logarithmic number of times, and dead rows never greatly outnumber living ones.

Snapshots pin the tables and copy the place of each key's row. The changes since the last cut are
the end of the log, so tables from before and after a cut are not merged until the next cut.

Source: the log of Bitcask and the merging of LSM trees, without the disk.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
from pyarrow.compute import call_function

from laminar_core.aggregates.accumulators import Accumulator, merge_in_order
from laminar_core.aggregates.group_keys import flat_keys
from laminar_core.aggregates.grouping import Reduction, group
from laminar_core.aggregates.key_index import MISSING, KeyIndex
from laminar_core.aggregates.row_groups import Integers, as_array
from laminar_core.codec.key_groups import key_groups_of
from laminar_core.codec.stable_hash import UInt64Array, hash_columns
from laminar_core.state.window_state import KEY_GROUP

_SIZE_RATIO = 2


@dataclass(frozen=True, slots=True)
class RowLayout:
    """``schema``: the keys, then the accumulators."""

    keys: tuple[str, ...]
    accumulators: tuple[Accumulator, ...]
    schema: pa.Schema

    @property
    def stored_schema(self) -> pa.Schema:
        """The schema in a checkpoint.

        The key group is int32, because Spark has no unsigned integers.
        """
        return self.schema.insert(0, pa.field(KEY_GROUP, pa.int32()))


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """A piece of the log.

    Rows ``first`` to ``first + len(keys)``, and the number of each row's key.
    """

    first: int
    table: pa.Table
    keys: Integers

    def living(self, row_of_key: Integers) -> Integers:
        """Positions in the table of the rows that are the newest of their key."""
        return np.flatnonzero(
            row_of_key[self.keys] == np.arange(self.first, self.first + len(self.keys))
        )


@dataclass(frozen=True, slots=True, eq=False)
class PinnedRows:
    """Rows as they were at a cut; reading them changes nothing."""

    parts: tuple[_Part, ...]
    row_of_key: Integers
    layout: RowLayout

    def stored_table(self, max_parallelism: int) -> pa.Table:
        """Build the table of a checkpoint: the living rows, sorted by key group."""
        layout = self.layout
        living = [part.table.take(pa.array(part.living(self.row_of_key))) for part in self.parts]
        rows = pa.concat_tables([layout.schema.empty_table(), *living]).combine_chunks()
        groups = [key_groups_of(b, layout.keys, max_parallelism) for b in rows.to_batches()]
        key_group = np.concatenate([np.empty(0, np.int32), *groups]).astype(np.int32)
        stored = rows.add_column(0, layout.stored_schema.field(KEY_GROUP), [pa.array(key_group)])
        return stored.take(pa.array(np.argsort(key_group, kind="stable")))


class Kept(Protocol):
    """Chooses rows to keep."""

    def __call__(self, rows: pa.Table, *, settled: bool) -> pa.Table:
        """Return some of the rows; ``settled``: they did not change since the last cut."""
        ...


class KeyedRows:
    """The rows of one subtask's keys."""

    def __init__(self, layout: RowLayout) -> None:
        self._layout = layout
        self._index = KeyIndex()
        self._row_of_key = np.empty(0, np.int64)
        self._parts: list[_Part] = []
        self._settled = 0
        """Number of parts from before the last cut."""
        self._is_tidy = True
        """Whether those parts need no more merging."""

    def __len__(self) -> int:
        return len(self._index)

    @property
    def row_count(self) -> int:
        """Number of rows, including dead ones."""
        return sum(len(part.keys) for part in self._parts)

    def update(self, partial: pa.Table) -> pa.Table:
        """Merge partial results into the rows of their keys; return the new rows.

        Shapes: ``partial`` and the result have the layout's schema; keys may repeat in ``partial``,
        the result has each once.

        Raises:
            DataError: a sum leaves its type; nothing has changed then.
        """
        return self.change(partial)[1]

    def change(self, partial: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Merge like ``update``; return the rows before, and the new ones.

        The first of the new rows replace the rows before, one by one; the others are of new keys.

        Raises:
            DataError: a sum leaves its type; nothing has changed then.
        """
        hashes = self._hashes_of(partial)
        known = np.unique(self._find(partial, hashes))
        known = known[known != MISSING]
        before = self._rows_of(known)
        together = pa.concat_tables([before, partial])
        merged = merge_in_order(together, self._layout.keys, self._layout.accumulators)
        fresh = merged.slice(len(known))
        self._append(merged, np.append(known, self._add(fresh)))
        return before, merged

    def replace(self, rows: pa.Table) -> None:
        """Take rows, each of another key, in place of those that their keys have."""
        numbers = self._find(rows, self._hashes_of(rows))
        missing = np.flatnonzero(numbers == MISSING)
        numbers[missing] = self._add(rows.take(pa.array(missing)))
        self._append(rows, numbers)

    def matching(self, keys: pa.Table) -> pa.Table:
        """Return the rows of those keys that have one; each once, in no particular order.

        Shapes: ``keys`` has the key columns of the layout; keys may repeat.
        """
        known = np.unique(self._find(keys, self._hashes_of(keys)))
        return self._rows_of(known[known != MISSING])

    def retained(self, stays: Callable[[pa.Table], np.ndarray]) -> "KeyedRows":
        """Return the rows of the keys whose row stays; the work is in proportion to all keys.

        To ``take_changes`` that is no change, so tables of earlier cuts still have the others.
        """
        kept = KeyedRows(self._layout)
        for number, part in enumerate(self._parts):
            if number == self._settled:
                kept._settled = len(kept._parts)
            living = part.table.take(pa.array(part.living(self._row_of_key)))
            kept.replace(living.filter(pa.array(stays(living))))
        if len(self._parts) == self._settled:
            kept._settled = len(kept._parts)
        return kept

    def look_up(self, keys: pa.Table) -> tuple[Integers, pa.Table]:
        """Return the positions of the keys that have a row, ascending, and these rows.

        Shapes: ``keys`` has the layout's keys; the rows have the layout's schema.
        """
        numbers = self._find(keys, self._hashes_of(keys))
        found = np.flatnonzero(numbers != MISSING)
        return found, self._rows_of(numbers[found])

    def forget(self, kept: Kept) -> None:
        """Keep only the rows that ``kept`` returns of those it is given; nothing else changes.

        It is called for the rows from before the last cut, and for those that changed since. What
        is forgotten of the former is no change: those who read have to leave it out, too.
        """
        settled = self._living(self._parts[: self._settled])
        fresh = self._living(self._parts[self._settled :])
        self._index, self._row_of_key = KeyIndex(), np.empty(0, np.int64)
        self._parts, self._settled, self._is_tidy = [], 0, True
        self.replace(kept(settled, settled=True))
        self._settled = len(self._parts)
        self.replace(kept(fresh, settled=False))

    def pin(self) -> PinnedRows:
        """Hold on to all rows as they are now."""
        return self._pinned(self._parts)

    def take_changes(self) -> PinnedRows:
        """Hold on to the rows that changed since the last call."""
        changes = self._pinned(self._parts[self._settled :])
        self._settled = len(self._parts)
        self._is_tidy = False  # Not now: rows wait for a snapshot.
        return changes

    def rows(self) -> pa.Table:
        """Return the living rows, in the order of their last change."""
        return self._living(self._parts)

    def _living(self, parts: Sequence[_Part]) -> pa.Table:
        living = [part.table.take(pa.array(part.living(self._row_of_key))) for part in parts]
        return pa.concat_tables([self._layout.schema.empty_table(), *living])

    # --- keys -----------------------------------------------------------------------------------

    def _hashes_of(self, rows: pa.Table) -> UInt64Array:
        columns = [as_array(rows.column(key)) for key in self._layout.keys]
        return hash_columns(columns, rows.num_rows)

    def _find(self, rows: pa.Table, hashes: UInt64Array) -> Integers:
        keys = rows.select(list(self._layout.keys))

        def are_equal(positions: Integers, numbers: Integers) -> np.ndarray:
            mine = keys.take(pa.array(positions))
            return same_keys(mine, self._rows_of(numbers, self._layout.keys))

        return self._index.find(hashes, are_equal)

    def _add(self, rows: pa.Table) -> Integers:
        numbers = self._index.add(self._hashes_of(rows))
        if len(self._row_of_key) < len(self._index):
            grown = np.empty(max(2 * len(self._row_of_key), len(self._index)), np.int64)
            grown[: len(self._row_of_key)] = self._row_of_key
            self._row_of_key = grown
        return numbers

    # --- the log --------------------------------------------------------------------------------

    def _rows_of(self, numbers: Integers, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of these keys, in this order."""
        rows = self._row_of_key[numbers]
        part_of_row = np.searchsorted([part.first for part in self._parts], rows, "right") - 1
        order = np.argsort(part_of_row, kind="stable")
        bounds = np.searchsorted(part_of_row[order], np.arange(len(self._parts) + 1))
        taken = [self._layout.schema.empty_table()]
        for part, start, stop in zip(self._parts, bounds[:-1], bounds[1:], strict=True):
            if start < stop:
                table = part.table if columns is None else part.table.select(columns)
                taken.append(table.take(pa.array(rows[order[start:stop]] - part.first)))
        if columns is not None:
            taken[0] = taken[0].select(columns)
        together = pa.concat_tables(taken)
        if len(taken) <= 2:  # noqa: PLR2004 - of one part they are in order
            return together
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        return together.take(pa.array(place))

    def _append(self, rows: pa.Table, numbers: Integers) -> None:
        if not len(numbers):
            return
        if not self._is_tidy:
            self._settled = self._tidy(0)
            self._is_tidy = True
        first = self._parts[-1].first + len(self._parts[-1].keys) if self._parts else 0
        self._parts.append(_Part(first, rows.combine_chunks(), numbers))
        self._row_of_key[numbers] = np.arange(first, first + len(numbers))
        self._tidy(self._settled)

    def _tidy(self, oldest: int) -> int:
        """Let neighbours from ``oldest`` on become one where they are alike; count all parts."""
        for at in range(len(self._parts) - 2, oldest - 1, -1):
            older, newer = self._parts[at : at + 2]
            if len(older.keys) <= _SIZE_RATIO * len(newer.keys):
                self._parts[at : at + 2] = [self._joined(older, newer)]
        return len(self._parts)

    def _joined(self, older: _Part, newer: _Part) -> _Part:
        living = [part.living(self._row_of_key) for part in (older, newer)]
        tables = [
            part.table.take(pa.array(rows))
            for part, rows in zip((older, newer), living, strict=True)
        ]
        keys = np.concatenate([older.keys[living[0]], newer.keys[living[1]]])
        self._row_of_key[keys] = np.arange(older.first, older.first + len(keys))
        return _Part(older.first, pa.concat_tables(tables).combine_chunks(), keys)

    def _pinned(self, parts: Sequence[_Part]) -> PinnedRows:
        return PinnedRows(tuple(parts), self._row_of_key.copy(), self._layout)


def same_keys(left: pa.Table, right: pa.Table) -> np.ndarray:
    """Compare row by row; null equals null, and NaN equals NaN."""
    same = np.ones(left.num_rows, np.bool_)
    for mine, theirs in zip(left.columns, right.columns, strict=True):
        flat = zip(flat_keys(mine), flat_keys(theirs), strict=True)
        for one, other in flat:
            same &= _same_values(one, other)
    return same


def _same_values(mine: pa.ChunkedArray, theirs: pa.ChunkedArray) -> np.ndarray:
    if pa.types.is_null(mine.type):
        return np.ones(len(mine), np.bool_)
    if pa.types.is_floating(mine.type):
        mine, theirs = (_bits(column) for column in (mine, theirs))
    equal = call_function("equal", [mine, theirs]).fill_null(pa.scalar(value=False))
    if mine.null_count and theirs.null_count:
        both = call_function("and", [mine.is_null(), theirs.is_null()])
        equal = call_function("or", [equal, both])
    return equal.to_numpy(zero_copy_only=False)


def _bits(column: pa.ChunkedArray) -> pa.Array:
    """Return floats as integers: among canonical ones, equal values have equal bits."""
    return as_array(column).cast(pa.float64()).view(pa.int64())


def newest_rows(tables: Iterable[pa.Table], keys: Sequence[str], schema: pa.Schema) -> pa.Table:
    """Return the newest row of each key in tables of consecutive cuts, sorted by key group.

    Shapes: all tables, and the result, have ``schema``, the schema in a checkpoint.
    """
    rows = pa.concat_tables([schema.empty_table(), *tables])
    last = Reduction("row", lambda groups: pa.array(groups.order[groups.starts[1:] - 1]), None)
    columns = {key: rows.column(key) for key in (KEY_GROUP, *keys)}
    newest = rows.take(group(columns, rows, [last]).column("row").combine_chunks())
    order = np.argsort(newest.column(KEY_GROUP).to_numpy(), kind="stable")
    return newest.take(pa.array(order)).combine_chunks()
