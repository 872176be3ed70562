"""One row of accumulators per key, for operators that emit results after every batch.

Merging on read, as windows do it, would read everything for each batch. Here a hash table numbers
the keys, and their rows are a log: a changed key gets a new row at the end, and its previous row is
dead. Tables of the log are immutable. Two neighbours are merged without their dead rows when the
older has at most twice the rows of the newer. So there are few tables, each row is copied a
logarithmic number of times, and dead rows never greatly outnumber living ones.

With a backend on disk the rows of large tables are there, in the order of their keys' hashes, see
``kept_rows``. In memory are about 60 bytes a key: its hash, its number, and the place of its row.

Snapshots pin the tables, and find out later which rows of them were living: the newest of each key.
The changes since the last cut are the end of the log, so tables from before and after a cut are not
merged until the next cut.

Source: the log of Bitcask and the merging of LSM trees, without the disk.
"""

from collections.abc import Iterable, Iterator, Sequence
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
from laminar_core.aggregates.row_pairs import PairMerge, pair_merge
from laminar_core.codec.arrow import empty_table
from laminar_core.codec.canonical import is_ambiguous
from laminar_core.codec.key_groups import key_group_order
from laminar_core.codec.stable_hash import UInt64Array, hash_columns
from laminar_core.state.chunks import Chunk, Shelf
from laminar_core.state.kept_rows import (
    Room,
    Rows,
    groups_of,
    hash_order,
    hash_ranges,
    in_pieces,
    is_held,
    rows_per_block,
    taken,
    upper_halves,
)
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
    rows: Rows
    keys: Integers

    def living(self, row_of_key: Integers) -> Integers:
        """Positions in the part of the rows that are the newest of their key."""
        return np.flatnonzero(
            row_of_key[self.keys] == np.arange(self.first, self.first + len(self.keys))
        )


@dataclass(frozen=True, slots=True, eq=False)
class PinnedRows:
    """Rows as they were at a cut; reading them changes nothing."""

    parts: tuple[_Part, ...]
    hashes: UInt64Array
    layout: RowLayout

    def stored_tables(self, max_parallelism: int) -> Iterator[pa.Table]:
        """Yield the tables of a checkpoint: the living rows, sorted by the hash of their key.

        Shapes: the key groups of each table are below the next one's. None is empty.
        """
        rows, keys = _living_of(self.parts, self._row_of_key())
        upper = upper_halves(self.hashes[keys])
        order = hash_order(upper)
        rows, upper = rows[order], upper[order]
        row_bytes = max((part.rows.nbytes // len(part.keys) for part in self.parts), default=0)
        for first, stop in hash_ranges(row_bytes * len(rows), max_parallelism):
            some = slice(*np.searchsorted(upper, [first, stop]))
            if some.start < some.stop:
                groups = pa.array(groups_of(upper[some], max_parallelism))
                table = rows_at(rows[some], self.parts, self.layout.schema).combine_chunks()
                yield table.add_column(0, self.layout.stored_schema.field(KEY_GROUP), [groups])

    def _row_of_key(self) -> Integers:
        """Return the newest row of each key in these parts, and ``MISSING`` of other keys."""
        row_of_key = np.full(len(self.hashes), MISSING)
        for part in self.parts:
            row_of_key[part.keys] = np.arange(part.first, part.first + len(part.keys))
        return row_of_key


class Kept(Protocol):
    """Chooses rows to keep."""

    def __call__(self, rows: pa.Table, *, settled: bool) -> pa.Table:
        """Return some of the rows; ``settled``: they did not change since the last cut."""
        ...


class KeyedRows:
    """The rows of one subtask's keys."""

    def __init__(self, layout: RowLayout, shelf: Shelf | None = None) -> None:
        self._layout = layout
        self._merge_pairs = _pair_merge_of(layout)
        self._room = Room(layout.schema, shelf)
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
        numbers, read = self._find_and_read(partial, hashes)
        at_known, at_fresh = np.flatnonzero(numbers != MISSING), np.flatnonzero(numbers == MISSING)
        known, firsts = np.unique(numbers[at_known], return_index=True)
        before = self._rows_of(known) if read is None else read.take(pa.array(firsts))
        merged, fresh = None, hashes[at_fresh]
        if len(known) == len(at_known) and len(np.unique(fresh)) == len(fresh):
            merged = self._paired(before, partial, np.append(at_known[firsts], at_fresh))
        if merged is None:
            together = pa.concat_tables([before, partial])
            merged = merge_in_order(together, self._layout.keys, self._layout.accumulators)
            fresh = self._hashes_of(merged.slice(len(known)))
        self._append(merged, np.append(known, self._add(fresh)))
        return before, merged

    def _paired(self, before: pa.Table, partial: pa.Table, order: Integers) -> pa.Table | None:
        """Merge the first rows of ``partial``, in this order, with ``before``; keep the others.

        Shapes: no key repeats. None if the rows have to be grouped.
        """
        if self._merge_pairs is None:
            return None
        rows = partial.take(pa.array(order))
        columns = self._merge_pairs(before, rows.slice(0, before.num_rows))
        if columns is None:
            return None
        for accumulator, column in zip(self._layout.accumulators, columns, strict=True):
            at = rows.schema.get_field_index(accumulator.name)
            fresh = rows.column(at).slice(before.num_rows)
            both = pa.concat_arrays([*column.chunks, *fresh.chunks])
            rows = rows.set_column(at, self._layout.schema.field(accumulator.name), both)
        return rows

    def replace(self, rows: pa.Table) -> None:
        """Take rows, each of another key, in place of those that their keys have."""
        self.put(rows, self._find(rows, self._hashes_of(rows)))

    def put(self, rows: pa.Table, numbers: Integers) -> None:
        """Take rows, each of another key, in place of those of the keys with these numbers.

        ``MISSING``: the key has none yet.
        """
        missing = np.flatnonzero(numbers == MISSING)
        numbers = numbers.copy()
        numbers[missing] = self._add(self._hashes_of(rows.take(pa.array(missing))))
        self._append(rows, numbers)

    def numbers_of(self, keys: Sequence[pa.ChunkedArray]) -> Integers:
        """Return the number of each key that has a row, from 0 on, and ``MISSING`` of the others.

        A number is valid until the next ``forget``. Shapes: a column for each key of the layout;
        keys may repeat.
        """
        rows = pa.Table.from_arrays(list(keys), list(self._layout.keys))
        return self._find(rows, self._hashes_of(rows))

    def rows_of(self, numbers: Integers) -> pa.Table:
        """Return the rows of the keys with these numbers, in this order."""
        return self._rows_of(numbers)

    def look_up(self, keys: pa.Table) -> tuple[Integers, pa.Table]:
        """Return the positions of the keys that have a row, ascending, and these rows.

        Shapes: ``keys`` has the layout's keys; the rows have the layout's schema.
        """
        numbers = self._find(keys, self._hashes_of(keys))
        found = np.flatnonzero(numbers != MISSING)
        return found, self._rows_of(numbers[found])

    def forget(self, kept: Kept) -> None:
        """Keep only the rows that ``kept`` returns of those it is given; nothing else changes.

        It is called for pieces of the rows from before the last cut, and of those that changed
        since. What is forgotten of the former is no change: those who read have to leave it out,
        too. The work is in proportion to all keys.
        """
        parts, settled, row_of_key = self._parts, self._settled, self._row_of_key
        self._index, self._row_of_key = KeyIndex(), np.empty(0, np.int64)
        self._parts, self._settled, self._is_tidy = [], 0, True
        for number, part in enumerate(parts):
            if number == settled:
                self._settled = len(self._parts)
            for some in in_pieces(part.rows, part.living(row_of_key), len(part.keys)):
                rows = kept(some, settled=number < settled)
                self._append(rows, self._add(self._hashes_of(rows)))
        if len(parts) == settled:
            self._settled = len(self._parts)

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
        """Return the living rows."""
        return rows_at(
            _living_of(self._parts, self._row_of_key)[0], self._parts, self._layout.schema
        )

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

    def _find_and_read(
        self, rows: pa.Table, hashes: UInt64Array
    ) -> tuple[Integers, pa.Table | None]:
        """Return what ``_find`` does, and the stored rows of the keys that were found.

        The rows are read to compare the keys. None if some of them are of other keys, which happens
        where two keys share a hash.
        """
        keys = rows.select(list(self._layout.keys))
        read: list[pa.Table] = []

        def are_equal(positions: Integers, numbers: Integers) -> np.ndarray:
            mine = keys if len(positions) == keys.num_rows else keys.take(pa.array(positions))
            read.append(self._rows_of(numbers))
            return same_keys(mine, read[-1].select(list(self._layout.keys)))

        numbers = self._index.find(hashes, are_equal)
        found = int((numbers != MISSING).sum())
        return numbers, read[0] if len(read) == 1 and read[0].num_rows == found else None

    def _add(self, hashes: UInt64Array) -> Integers:
        numbers = self._index.add(hashes)
        if len(self._row_of_key) < len(self._index):
            grown = np.empty(max(2 * len(self._row_of_key), len(self._index)), np.int64)
            grown[: len(self._row_of_key)] = self._row_of_key
            self._row_of_key = grown
        return numbers

    # --- the log --------------------------------------------------------------------------------

    def _rows_of(self, numbers: Integers, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of these keys, in this order."""
        return rows_at(self._row_of_key[numbers], self._parts, self._layout.schema, columns)

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
        for at in self._room.overfull([part.rows for part in self._parts]):
            self._parts[at] = self._put_away(self._parts[at : at + 1])

    def _tidy(self, oldest: int) -> int:
        """Let neighbours from ``oldest`` on become one where they are alike; count all parts."""
        for at in range(len(self._parts) - 2, oldest - 1, -1):
            older, newer = self._parts[at : at + 2]
            if len(older.keys) <= _SIZE_RATIO * len(newer.keys):
                self._parts[at : at + 2] = [self._joined(older, newer)]
        return len(self._parts)

    def _joined(self, older: _Part, newer: _Part) -> _Part:
        """Make one part of two neighbours, without their dead rows."""
        both = (older, newer)
        if not (is_held(older.rows) and is_held(newer.rows)):
            return self._put_away(both)
        rows, keys = _living_of(both, self._row_of_key)
        table = rows_at(rows, both, self._layout.schema).combine_chunks()
        return self._placed(_Part(older.first, table, keys))

    def _put_away(self, parts: Sequence[_Part]) -> _Part:
        """Make one part of neighbours, with its rows on the shelf."""
        rows, keys = _living_of(parts, self._row_of_key)
        upper = upper_halves(self._index.hashes[keys])
        order = hash_order(upper)
        rows, keys, upper = rows[order], keys[order], upper[order]
        size = rows_per_block([part.rows for part in parts], sum(len(part.keys) for part in parts))
        blocks: list[Chunk] = []
        for start in range(0, len(rows), size):
            some = slice(start, start + size)
            table = rows_at(rows[some], parts, self._layout.schema)
            blocks += self._room.put(table, 0, upper[some])
        return self._placed(_Part(parts[0].first, self._room.rows_in(blocks), keys))

    def _placed(self, part: _Part) -> _Part:
        """Note that this is where the rows of its keys are."""
        self._row_of_key[part.keys] = np.arange(part.first, part.first + len(part.keys))
        return part

    def _pinned(self, parts: Sequence[_Part]) -> PinnedRows:
        return PinnedRows(tuple(parts), self._index.hashes, self._layout)


def _pair_merge_of(layout: RowLayout) -> PairMerge | None:
    """Return how rows of one key are merged without grouping; None if they have to be grouped.

    Grouping gives keys that have several forms the same one.
    """
    types = [layout.schema.field(key).type for key in layout.keys]
    if any(is_ambiguous(key) or pa.types.is_struct(key) for key in types):
        return None
    return pair_merge(layout.schema, layout.accumulators)


def _living_of(parts: Sequence[_Part], row_of_key: Integers) -> tuple[Integers, Integers]:
    """Return the newest rows of keys in these parts of the log, and the numbers of their keys."""
    living = [part.living(row_of_key) for part in parts]
    rows = [part.first + at for part, at in zip(parts, living, strict=True)]
    keys = [part.keys[at] for part, at in zip(parts, living, strict=True)]
    none = np.empty(0, np.int64)
    return np.concatenate([none, *rows]), np.concatenate([none, *keys])


def rows_at(
    rows: Integers, parts: Sequence[_Part], schema: pa.Schema, columns: Sequence[str] | None = None
) -> pa.Table:
    """Return rows of the log, in this order. ``columns``: only these."""
    starts = np.array([part.first for part in parts])
    if columns is None:
        return taken(rows, starts, lambda at: parts[at].rows, empty_table(schema))
    empty = empty_table(schema).select(columns)
    return taken(rows, starts, lambda at: parts[at].rows.select(columns), empty)


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
    rows = pa.concat_tables([empty_table(schema), *tables])
    last = Reduction("row", lambda groups: pa.array(groups.order[groups.starts[1:] - 1]), None)
    columns = {key: rows.column(key) for key in (KEY_GROUP, *keys)}
    newest = rows.take(group(columns, rows, [last]).columns[-1].combine_chunks())
    order = key_group_order(newest.column(KEY_GROUP).to_numpy())
    return newest.take(pa.array(order)).combine_chunks()
