"""Entries of keys: the rows of lists and maps, found by their key, or by key and entry.

Rows lie in few *runs*, which are sorted by their place: the upper half of the key's hash, then that
of the entry. So the entries of a key are neighbours, and one entry is found by bisection. Each
change is a new run. Two neighbours become one when the older has at most twice the rows of the
newer; the newest row of an entry is kept then. Removals leave memory when they reach the oldest
run, but for those whose expiry must not be forgotten; the log of changes has them until they are
written.
"""

# What Arrow hands to numpy is Any.
# pyright: reportUnknownArgumentType=false

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow.compute import call_function

from laminar_core.aggregates.row_groups import Integers, as_array
from laminar_core.codec.arrow import empty_table
from laminar_core.codec.stable_hash import UInt64Array, hash_columns
from laminar_core.operators.process.changes import (
    ChangeLog,
    PinnedChanges,
    expiries_us,
    least_of_all,
    newest_positions,
)
from laminar_core.state.chunks import Chunk, StateBackend
from laminar_core.state.expiry import EXPIRES
from laminar_core.state.kept_rows import (
    Room,
    Rows,
    common_cuts,
    hash_ranges,
    is_held,
    rows_per_block,
    upper_halves,
)
from laminar_core.state.keyed_rows import same_keys
from laminar_core.state.named_tables import TableLayout

_SIZE_RATIO = 2
_HALF = np.uint64(32)
_LOWER = np.uint64(0xFFFF_FFFF)
PLACE = "_place"
"""While rows are held, beside the columns of the layout."""
_Stay = Callable[[pa.Table], npt.NDArray[np.bool_]]
"""Says which rows stay."""


@dataclass(frozen=True, slots=True, eq=False)
class _Run:
    """Rows of the table with their place, each of another entry, sorted by place."""

    rows: Rows
    places: UInt64Array

    def slice(self, some: slice) -> pa.Table:
        """Return neighbouring rows."""
        return self.rows.take(pa.array(np.arange(some.start, some.stop)))


@dataclass(frozen=True, slots=True, eq=False)
class PinnedEntries:
    """Entries as they were at a cut.

    ``whole``: leave out the rows that say that an entry was removed.
    """

    layout: TableLayout
    runs: tuple[_Run, ...]
    whole: bool

    def stored_tables(self, max_parallelism: int) -> Iterator[pa.Table]:
        """Yield the tables of a checkpoint, one range of key groups after the other."""
        size_bytes = sum(run.rows.nbytes for run in self.runs)
        uppers = [upper_halves(run.places) for run in self.runs]
        for first, stop in hash_ranges(size_bytes, max_parallelism):
            slices = [slice(*np.searchsorted(upper, [first, stop])) for upper in uppers]
            tables = [run.slice(some) for run, some in zip(self.runs, slices, strict=True)]
            plain = tuple(table.drop_columns([PLACE]) for table in tables)
            yield from PinnedChanges(self.layout, plain, whole=self.whole).stored_tables(
                max_parallelism
            )


class EntryTable:
    """The entries of one state in one subtask.

    The last column of the layout's keys is the entry; those before it are the key. ``is_reused``:
    an entry that was removed can come again. Then a removal has to be remembered until its row
    would have expired: a later row of the entry must not expire before it, because a segment that
    has expired is dropped unread.
    """

    def __init__(self, layout: TableLayout, backend: StateBackend, *, is_reused: bool) -> None:
        self.layout = layout
        self.expired_us: int | None = None
        """Entries that expire at this time or before have been dropped."""
        self._expires = EXPIRES in layout.schema.names
        self._forgets = not (is_reused and self._expires)
        self._schema = layout.schema.remove(0)
        with_place = self._schema.append(pa.field(PLACE, pa.uint64()))
        self._room = Room(with_place, backend.shelf(with_place))
        self._keys, self._entry = list(layout.keys[:-1]), layout.keys[-1]
        self._log = ChangeLog(layout)
        self._runs: list[_Run] = []

    @property
    def row_count(self) -> int:
        """Number of rows held, also of those that were replaced or removed."""
        return sum(len(run.places) for run in self._runs)

    # --- reading --------------------------------------------------------------------------------

    def of_keys(self, keys: pa.Table) -> tuple[Integers, pa.Table]:
        """Return all entries of these keys; each key is given once.

        Shapes: the position of the key of each row, ascending, and the rows of the layout, without
        key group. They are in no particular order.
        """
        upper = _upper_half(self._hashes(keys, self._keys))
        owners, parts = [np.empty(0, np.int64)], [empty_table(self._schema)]
        for run in self._runs:
            first = np.searchsorted(run.places, upper, "left")
            counts = np.searchsorted(run.places, upper | _LOWER, "right") - first
            owner = np.repeat(np.arange(len(upper)), counts)
            position = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts - first, counts)
            same = self._same(keys, owner, run, position, self._keys)
            owners.append(owner[same])
            parts.append(self._taken(run, position[same]))
        owner, rows = np.concatenate(owners), pa.concat_tables(parts)
        if len(self._runs) > 1:
            identity = {"key": pa.chunked_array([owner]), "entry": rows.column(self._entry)}
            newest = newest_positions(identity)
            owner, rows = owner[newest], rows.take(pa.array(newest))
        order = np.argsort(owner, kind="stable")
        return owner[order], rows.take(pa.array(order))

    def of_entries(self, wanted: pa.Table) -> tuple[Integers, pa.Table]:
        """Return the rows of these entries, also of removed ones that are still remembered.

        Shapes: ``wanted`` has key and entry, and may repeat. Returns the positions that have a row,
        ascending, and these rows.
        """
        places = self._places(wanted)
        found = np.full(len(places), -1, np.int64)
        parts, before = [empty_table(self._schema)], 0
        for run in self._runs:
            first = np.searchsorted(run.places, places, "left")
            counts = np.searchsorted(run.places, places, "right") - first
            owner = np.repeat(np.arange(len(places)), counts)
            position = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts - first, counts)
            same = self._same(wanted, owner, run, position, [*self._keys, self._entry])
            found[owner[same]] = before + np.arange(int(same.sum()))
            parts.append(self._taken(run, position[same]))
            before += parts[-1].num_rows
        has_row = np.flatnonzero(found >= 0)
        return has_row, pa.concat_tables(parts).take(pa.array(found[has_row]))

    def are_present(self, rows: pa.Table) -> npt.NDArray[np.bool_]:
        """Return which rows are entries, and do not say that one was removed."""
        assert self.layout.present is not None, "entries can be removed"
        valid = as_array(call_function("is_valid", [rows.column(self.layout.present)]))
        return valid.to_numpy(zero_copy_only=False)

    # --- changing -------------------------------------------------------------------------------

    def change(self, rows: pa.Table) -> None:
        """Take rows, each of another entry, that replace those of their entries."""
        if not rows.num_rows:
            return
        self._log.add(rows, self.expired_us)
        self._add(rows)

    def restore(self, rows: pa.Table) -> None:
        """Take rows from a checkpoint; later ones replace earlier ones."""
        if rows.num_rows:
            identity = {name: rows.column(name) for name in self.layout.keys}
            self._add(rows.select(self._schema.names).take(pa.array(newest_positions(identity))))

    def restore_mark(self, expired_us: Sequence[int | None]) -> None:
        """Continue from where all subtasks of a checkpoint had come to."""
        self.expired_us = least_of_all(expired_us)

    def expire(self, expired_us: int) -> int:
        """Drop what expires at this time or before; return how many entries that were.

        The work is on all rows.
        """
        self.expired_us = expired_us
        if not self._runs:
            return 0
        count = 0

        def stay(rows: pa.Table) -> npt.NDArray[np.bool_]:
            nonlocal count
            gone = expiries_us(rows) <= expired_us
            present = self.are_present(rows)
            count += int((gone & present).sum())
            return ~gone & present if self._forgets else ~gone

        kept = self._joined(self._runs, stay)
        self._runs = [kept] if len(kept.places) else []
        return count

    def pin(self) -> PinnedEntries:
        """Hold on to all entries as they are now."""
        return PinnedEntries(self.layout, tuple(self._runs), self._forgets)

    def take_changes(self) -> PinnedChanges | PinnedEntries:
        """Hold on to the entries that changed since the last call."""
        return self._log.take(self.expired_us) or self.pin()

    # --- runs -----------------------------------------------------------------------------------

    def _add(self, rows: pa.Table) -> None:
        with_places = rows.append_column(PLACE, [self._places(rows)])
        self._runs.append(_Run(*self._arranged([with_places])))
        for at in range(len(self._runs) - 2, -1, -1):
            older, newer = self._runs[at : at + 2]
            if len(older.places) <= _SIZE_RATIO * len(newer.places):
                stay = self.are_present if at == 0 and self._forgets else None
                joined = self._joined([older, newer], stay)
                self._runs[at : at + 2] = [joined] if len(joined.places) else []
        for at in self._room.overfull([run.rows for run in self._runs]):
            self._runs[at] = self._put_away(self._runs[at : at + 1], None)

    def _joined(self, runs: Sequence[_Run], stay: _Stay | None) -> _Run:
        if not all(is_held(run.rows) for run in runs):
            return self._put_away(runs, stay)
        return _staying(*self._arranged([run.rows for run in runs]), stay)

    def _put_away(self, runs: Sequence[_Run], stay: _Stay | None) -> _Run:
        """Make one run of several, with its rows on the shelf."""
        size = rows_per_block([run.rows for run in runs], sum(len(run.places) for run in runs))
        places: list[UInt64Array] = [np.empty(0, np.uint64)]
        blocks: list[Chunk] = []
        for slices in common_cuts([run.places for run in runs], size):
            tables = [run.slice(some) for run, some in zip(runs, slices, strict=True)]
            part = _staying(*self._arranged(tables), stay)
            blocks += self._room.put(part.rows, 0, upper_halves(part.places))
            places.append(part.places)
        return _Run(self._room.rows_in(blocks), np.concatenate(places))

    def _arranged(self, tables: Sequence[pa.Table]) -> tuple[pa.Table, UInt64Array]:
        """Sort rows by place, and keep the last one of each entry."""
        rows = pa.concat_tables(tables)
        places: UInt64Array = rows.column(PLACE).to_numpy()
        order = np.argsort(places, kind="stable")
        rows, places = rows.take(pa.array(order)).combine_chunks(), places[order]
        same = places[1:] == places[:-1]
        if same.any():
            repeated = np.zeros(len(places), np.bool_)
            repeated[1:] |= same
            repeated[:-1] |= same
            positions = np.flatnonzero(repeated)
            some = rows.take(pa.array(positions))
            last = newest_positions({name: some.column(name) for name in self.layout.keys})
            repeated[positions[last]] = False
            rows, places = rows.filter(pa.array(~repeated)).combine_chunks(), places[~repeated]
        return rows, places

    def _taken(self, run: _Run, positions: Integers) -> pa.Table:
        return run.rows.take(pa.array(positions)).drop_columns([PLACE])

    @staticmethod
    def _same(
        wanted: pa.Table, owner: Integers, run: _Run, position: Integers, columns: Sequence[str]
    ) -> npt.NDArray[np.bool_]:
        mine = wanted.select(list(columns)).take(pa.array(owner))
        return same_keys(mine, run.rows.select(list(columns)).take(pa.array(position)))

    def _places(self, rows: pa.Table) -> UInt64Array:
        keys, entries = self._hashes(rows, self._keys), self._hashes(rows, [self._entry])
        return _upper_half(keys) | (entries >> _HALF)

    @staticmethod
    def _hashes(rows: pa.Table, columns: Sequence[str]) -> UInt64Array:
        return hash_columns([as_array(rows.column(name)) for name in columns], rows.num_rows)


def _staying(rows: pa.Table, places: UInt64Array, stay: _Stay | None) -> _Run:
    """Return the rows that stay; None: all."""
    if stay is None or (staying := stay(rows)).all():
        return _Run(rows, places)
    return _Run(rows.filter(pa.array(staying)).combine_chunks(), places[staying])


def _upper_half(hashes: UInt64Array) -> UInt64Array:
    return hashes & ~_LOWER


def offsets(owners: Integers, count: int) -> pa.Array:
    """Return the offsets of lists, given the position of the list of each value, ascending."""
    return pa.array(np.searchsorted(owners, np.arange(count + 1)).astype(np.int32))
