"""Panes: the rows of one slide of event time, in buckets of key groups, as chunks on a shelf.

A pane begins as one *bucket* for all key groups of its subtask. A large bucket is halved, so that
every operation on rows (merging, firing, writing a checkpoint) handles some tens of megabytes at a
time, however large the pane. So the event loop is not blocked for long, and only one bucket of a
state on disk is in memory at a time.

In a bucket, rows reduced to one per key are followed by newer rows. The bucket is reduced again
when the newer rows outnumber twice the reduced ones (ADR-0008). There are two such *runs*: rows
from before the last cut, and rows since then, which are the changes. New rows of a pane with many
buckets are gathered first, or every batch would be split into tiny tables.

Rows that have a place in arrays, see ``placed_rows``, are in no bucket.

All ranges come from halving the subtask's own, so any two are disjoint or nested.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from laminar_core.codec.key_groups import key_group_order, key_groups_of
from laminar_core.state.chunks import Chunk, HeldTable, Shelf
from laminar_core.state.placed_rows import PinnedPlaces, PlacedLayout, PlacedRows
from laminar_core.state.window_layout import KEY_GROUP, StateLayout, WindowTables, window_starts_of

PENDING_ROWS_MIN = 65_536
PENDING_TABLES_MAX = 64
BUCKET_ROWS_MAX = 65_536
"""Reduced rows; a bucket with more is halved."""
GATHERED_ROWS_MAX = 65_536
TIDIED_ROWS_MAX = 65_536
"""Once so many rows were merged, the rest of the tidying is left to the next batches."""
_CUT_ROWS_MIN = 4_096
"""Rows for each bucket from which on a restored table is divided at once, on disk."""
TABLE_BYTES_MAX = 16 * 1024 * 1024
"""About the size of the tables of a snapshot, before rows of one key are merged."""


@dataclass(frozen=True, slots=True)
class Ground:
    """The common settings of all panes of a subtask. ``owned``: the subtask's key groups."""

    layout: StateLayout
    shelf: Shelf
    max_parallelism: int
    owned: range
    placed: PlacedLayout | None = None
    """None: no row has a place."""

    def groups_of(self, table: pa.Table) -> npt.NDArray[np.int32]:
        """Return the key group of every row."""
        batches = table.combine_chunks().to_batches()
        groups = [key_groups_of(b, self.layout.keys, self.max_parallelism) for b in batches]
        return np.concatenate([np.empty(0, np.int32), *groups]).astype(np.int32)

    def split(self, table: pa.Table, ranges: Sequence[range]) -> Iterator[tuple[int, pa.Table]]:
        """Yield (position of the range, its rows in order), for ranges that have any."""
        if not table.num_rows:
            return
        if len(ranges) == 1:
            yield 0, table
            return
        stops = np.array([groups.stop for groups in ranges])
        range_of_group = np.searchsorted(stops, np.arange(self.max_parallelism), side="right")
        parts: dict[int, list[pa.RecordBatch]] = {}
        for batch in table.combine_chunks().to_batches():  # Several only with gigabytes of text.
            groups = key_groups_of(batch, self.layout.keys, self.max_parallelism)
            where = range_of_group.astype(np.uint16)[groups]
            ordered = batch.take(pa.array(np.argsort(where, kind="stable")))
            ends = np.cumsum(np.bincount(where, minlength=len(ranges))).tolist()
            for position, (start, stop) in enumerate(pairwise([0, *ends])):
                if start < stop:
                    parts.setdefault(position, []).append(_copied(ordered, start, stop))
        for position in sorted(parts):
            yield position, pa.Table.from_batches(parts[position])

    def ranges_for(self, parts: int) -> list[range]:
        """Return at least ``parts`` ranges, as far as there are enough key groups."""
        ranges = [self.owned]
        while len(ranges) < parts and any(len(groups) > 1 for groups in ranges):
            ranges = [half for groups in ranges for half in halves(groups)]
        return ranges


def _copied(rows: pa.RecordBatch, start: int, stop: int) -> pa.RecordBatch:
    """Return a copy of these rows: a part that stays must not keep the others alive."""
    return pa.concat_batches([rows.slice(start, stop - start)])


def halves(groups: range) -> tuple[range, ...]:
    """Cut a range in two; a single key group stays whole."""
    middle = (groups.start + groups.stop) // 2
    if middle in (groups.start, groups.stop):
        return (groups,)
    return range(groups.start, middle), range(middle, groups.stop)


@dataclass(frozen=True, slots=True)
class PinnedPane:
    """A pane, or what changed in it, as it was at some moment; holding on to it keeps its rows."""

    start_us: int
    buckets: tuple[tuple[range, tuple[Chunk, ...]], ...]
    gathered: tuple[pa.Table, ...]
    """Gathered rows, not yet divided by key group."""
    placed: PinnedPlaces | None = None

    @property
    def is_reduced(self) -> bool:
        """Whether no key has two rows, because all of them have a place."""
        return self.placed is not None and not self.gathered and not self._has_chunks

    @property
    def _has_chunks(self) -> bool:
        return any(chunks for _, chunks in self.buckets)

    @property
    def row_count(self) -> int:
        """Number of rows; a key may have several."""
        held = sum(chunk.row_count for _, chunks in self.buckets for chunk in chunks)
        placed = 0 if self.placed is None else self.placed.row_count
        return held + placed + sum(table.num_rows for table in self.gathered)

    @property
    def size_bytes(self) -> int:
        """Bytes of memory that all rows would take."""
        held = sum(chunk.size_bytes for _, chunks in self.buckets for chunk in chunks)
        placed = 0 if self.placed is None else self.placed.size_bytes
        return held + placed + sum(table.nbytes for table in self.gathered)

    def tables(self) -> list[pa.Table]:
        """Return all rows."""
        chunks = [chunk for _, chunks in self.buckets for chunk in chunks]
        placed = [] if self.placed is None else [self.placed.read()]
        return [*(chunk.read() for chunk in chunks), *self.gathered, *placed]

    def is_empty(self) -> bool:
        """Whether there are no rows."""
        return self.placed is None and not self.gathered and not self._has_chunks


@dataclass(slots=True)
class _Run:
    """Rows of a bucket: the reduced ones, then what came since, in order."""

    reduced: Chunk | None = None
    pending: list[Chunk] = field(default_factory=list[Chunk])
    pending_rows: int = 0

    @property
    def chunks(self) -> list[Chunk]:
        return self.pending if self.reduced is None else [self.reduced, *self.pending]

    @property
    def reduced_rows(self) -> int:
        return 0 if self.reduced is None else self.reduced.row_count

    def append(self, chunks: Iterable[Chunk]) -> None:
        for chunk in chunks:
            self.pending.append(chunk)
            self.pending_rows += chunk.row_count

    def is_due(self) -> bool:
        """Whether reducing it is worth while by now."""
        return self.pending_rows > max(PENDING_ROWS_MIN, 2 * self.reduced_rows)


@dataclass(slots=True)
class _Half:
    """The rows from before the last cut, or those since then."""

    gathered: list[pa.Table] = field(default_factory=list[pa.Table])
    runs: list[_Run] = field(default_factory=lambda: [_Run()])


class Pane:
    """The rows of one slide of event time that one subtask holds."""

    def __init__(self, start_us: int, ground: Ground) -> None:
        self.start_us = start_us
        self.gathered_bytes = 0
        self._gathered_rows = 0
        self._ground = ground
        self._ranges = [ground.owned]
        self._settled = _Half()
        self._fresh = _Half()
        self._placed = None if ground.placed is None else PlacedRows(ground.placed)
        self._turn = 0

    def add(self, rows: pa.Table) -> None:
        """Take rows in the layout's ``pane_schema``."""
        if self._placed is not None and self._placed.add(rows):
            return
        if self._ground.shelf.in_memory and len(self._ranges) == 1:
            self._fresh.runs[0].append([self._put(self._ranges[0], rows)])
        else:
            self._gather(rows)
        self._tidy()

    def restore(self, rows: pa.Table) -> None:
        """Take rows of a checkpoint before any others: ``pane_schema``, and ``key_group`` first.

        Stored tables have one row for a key and are sorted by key group. So the first rows of a
        bucket count as reduced, and tables are cut where a bucket ends: nothing is hashed and
        nothing is merged. Rows of other tables follow as newer ones.
        """
        groups, rows = _sorted(rows)
        self._make_room(groups)
        inner = np.searchsorted(groups, [owned.start for owned in self._ranges[1:]])
        bounds = [0, *inner.tolist(), len(groups)]
        if not self._ground.shelf.in_memory and rows.num_rows < len(self._ranges) * _CUT_ROWS_MIN:
            self._gather(rows)  # Each bucket would get a file of a few rows.
        else:
            for position, (start, stop) in enumerate(pairwise(bounds)):
                if start < stop:
                    # Its own copy: a part that stays must not keep the others alive.
                    part = rows.slice(start, stop - start).take(pa.array(np.arange(stop - start)))
                    self._take_stored(position, part)
        self._tidy()

    def _take_stored(self, position: int, rows: pa.Table) -> None:
        run, chunk = self._fresh.runs[position], self._put(self._ranges[position], rows)
        if run.reduced is None and not run.pending:
            run.reduced = chunk
        else:
            run.append([chunk])

    def _make_room(self, groups: npt.NDArray[np.int32]) -> None:
        """Halve the buckets that would get too many rows of these key groups."""
        for position in reversed(range(len(self._ranges))):
            owned = self._ranges[position]
            ranges: tuple[range, ...] = (owned,)
            start, stop = np.searchsorted(groups, [owned.start, owned.stop])
            while stop - start > BUCKET_ROWS_MAX * len(ranges) and any(
                len(some) > 1 for some in ranges
            ):
                ranges = tuple(half for some in ranges for half in halves(some))
            if len(ranges) > 1:
                self._replace(position, ranges)

    def _gather(self, rows: pa.Table) -> None:
        self._fresh.gathered.append(rows)
        self._gathered_rows += rows.num_rows
        self.gathered_bytes += rows.nbytes
        if self._gathered_rows > GATHERED_ROWS_MAX:
            self.put_away()

    def put_away(self) -> None:
        """Distribute what is gathered over the buckets."""
        for half in (self._settled, self._fresh):
            if half.gathered:
                for position, part in self._ground.split(self._taken(half), self._ranges):
                    half.runs[position].append([self._put(self._ranges[position], part)])
        self._gathered_rows = self.gathered_bytes = 0

    def pin(self) -> PinnedPane:
        """Return references to all rows, which later changes do not affect."""
        buckets = zip(self._ranges, self._settled.runs, self._fresh.runs, strict=True)
        return PinnedPane(
            self.start_us,
            tuple((groups, (*old.chunks, *new.chunks)) for groups, old, new in buckets),
            (*self._settled.gathered, *self._fresh.gathered),
            None if self._placed is None else self._placed.pin(),
        )

    def take_fresh(self) -> PinnedPane:
        """Hold on to what came since the last call; it is settled without being reduced."""
        fresh, self._fresh = self._fresh, _Half(runs=[_Run() for _ in self._ranges])
        for old, new in zip(self._settled.runs, fresh.runs, strict=True):
            old.append(new.chunks)
        self._settled.gathered += fresh.gathered
        buckets = zip(self._ranges, fresh.runs, strict=True)
        return PinnedPane(
            self.start_us,
            tuple((groups, tuple(run.chunks)) for groups, run in buckets),
            tuple(fresh.gathered),
            None if self._placed is None else self._placed.take_fresh(),
        )

    def _taken(self, half: _Half) -> pa.Table:
        tables, half.gathered = half.gathered, []
        if self._ground.shelf.in_memory or len(tables) == 1:
            return pa.concat_tables(tables)
        return self._ground.layout.merged_pane(tables)  # The fewer rows, the less is written.

    def _put(self, groups: range, table: pa.Table) -> Chunk:
        return self._ground.shelf.put(self.start_us, groups.start, table)

    # --- reducing -------------------------------------------------------------------------------

    def _tidy(self) -> None:
        """Reduce the buckets for which it is time, in turn, but not so many that rows wait long."""
        merged_rows = 0
        for _ in range(2 * len(self._ranges)):
            self._turn = (self._turn + 1) % (2 * len(self._ranges))
            half = (self._settled, self._fresh)[self._turn % 2]
            position = self._turn // 2
            run = half.runs[position]
            if run.is_due():
                merged_rows += run.pending_rows + run.reduced_rows
                self._reduce(run, self._ranges[position])
                self._halve_if_large(position)
                if merged_rows > TIDIED_ROWS_MAX:
                    return
            elif self._ground.shelf.in_memory and len(run.pending) > PENDING_TABLES_MAX:
                # Of many small tables a merge costs more per table than per row.
                rows = pa.concat_tables(chunk.read() for chunk in run.pending).combine_chunks()
                run.pending = [self._put(self._ranges[position], rows)]

    def _reduce(self, run: _Run, groups: range) -> None:
        merged = self._ground.layout.merged_pane(chunk.read() for chunk in run.chunks)
        run.reduced = self._put(groups, merged)
        run.pending, run.pending_rows = [], 0

    def _halve_if_large(self, position: int) -> None:
        """Halve a bucket, its halves and so on; rows of all key groups are moved once."""
        rows = max(half.runs[position].reduced_rows for half in (self._settled, self._fresh))
        ranges: tuple[range, ...] = (self._ranges[position],)
        while rows > BUCKET_ROWS_MAX * len(ranges) and any(len(groups) > 1 for groups in ranges):
            ranges = tuple(half for groups in ranges for half in halves(groups))
        if len(ranges) > 1:
            self._replace(position, ranges)
            for side in reversed(range(len(ranges))):  # Rows may be of a few key groups only.
                self._halve_if_large(position + side)

    def _replace(self, position: int, ranges: Sequence[range]) -> None:
        """Put buckets of these ranges in the place of one, with its rows."""
        for half in (self._settled, self._fresh):
            half.runs[position : position + 1] = self._halved(half.runs[position], ranges)
        self._ranges[position : position + 1] = ranges

    def _halved(self, run: _Run, ranges: Sequence[range]) -> list[_Run]:
        runs = [_Run() for _ in ranges]
        if run.reduced is not None:
            for side, rows in self._ground.split(run.reduced.read(), ranges):
                runs[side].reduced = self._put(ranges[side], rows)
        if run.pending:
            pending = pa.concat_tables(chunk.read() for chunk in run.pending)
            for side, rows in self._ground.split(pending, ranges):
                runs[side].append([self._put(ranges[side], rows)])
        return runs


def _sorted(stored: pa.Table) -> tuple[npt.NDArray[np.int32], pa.Table]:
    """Return the key groups, ascending, and the rows without them; old tables may need sorting."""
    groups = stored.column(KEY_GROUP).to_numpy()
    rows = stored.drop_columns([KEY_GROUP])
    if (groups[1:] >= groups[:-1]).all():
        return groups, rows
    order = key_group_order(groups)
    return groups[order], rows.take(pa.array(order))


# --- reading pinned panes, range by range -------------------------------------------------------


def by_key_groups(
    panes: Sequence[PinnedPane], ranges: Sequence[range], ground: Ground
) -> Iterator[list[WindowTables]]:
    """Yield for each range the rows of all panes, one range at a time in memory.

    Buckets that are wider than a range are cut first, and put back on the shelf.
    """
    if len(ranges) == 1:
        yield [WindowTables(pane.start_us, pane.tables(), pane.is_reduced) for pane in panes]
        return
    cut = [_cut(pane, ranges, ground) for pane in panes]
    for position in range(len(ranges)):
        yield [
            WindowTables(
                pane.start_us, [chunk.read() for chunk in chunks.pop(position, ())], pane.is_reduced
            )
            for pane, chunks in zip(panes, cut, strict=True)
        ]


def _cut(pane: PinnedPane, ranges: Sequence[range], ground: Ground) -> dict[int, list[Chunk]]:
    """Return the chunks of each range; chunks of wider buckets are split."""
    parts: dict[int, list[Chunk]] = {}
    for groups, chunks in pane.buckets:
        inside = [n for n, some in enumerate(ranges) if _meet(some, groups)]
        if len(inside) == 1:
            parts.setdefault(inside[0], []).extend(chunks)
            continue
        within = [ranges[n] for n in inside]
        for chunk in chunks:
            for side, rows in ground.split(chunk.read(), within):
                kept = ground.shelf.put(pane.start_us, within[side].start, rows)
                parts.setdefault(inside[side], []).append(kept)
    placed = [] if pane.placed is None else [pane.placed.read()]
    for table in (*pane.gathered, *placed):
        for position, rows in ground.split(table, ranges):
            parts.setdefault(position, []).append(HeldTable(rows))
    return parts


def _meet(one: range, other: range) -> bool:
    return one.start < other.stop and other.start < one.stop


def stored_tables(panes: Sequence[PinnedPane], ground: Ground) -> Iterator[pa.Table]:
    """Yield the tables of a checkpoint: one row per key and ``window_start``, in disjoint ranges.

    Shapes: all have ``layout.stored_schema``, sorted by key group, then ``window_start``; the key
    groups of each table are below the next one's. Tables without rows are left out.
    """
    size_bytes = sum(pane.size_bytes for pane in panes)
    ranges = ground.ranges_for(-(-size_bytes // TABLE_BYTES_MAX))
    if len(panes) == 1 and panes[0].placed is not None and panes[0].is_reduced:
        yield from _stored_places(panes[0].start_us, panes[0].placed, ranges, ground)
        return
    for windows in by_key_groups(panes, ranges, ground):
        if not any(table.num_rows for window in windows for table in window.tables):
            continue  # Nothing changed, which is most uploads ahead of a quiet job.
        rows = ground.layout.merged(windows).combine_chunks()
        if rows.num_rows:
            yield sorted_by_key_group(_stored(ground.groups_of(rows), rows, ground))


def _stored_places(
    start_us: int, placed: PinnedPlaces, ranges: Sequence[range], ground: Ground
) -> Iterator[pa.Table]:
    """Yield the tables of a pane in which each key has one row: nothing is merged."""
    groups, rows = placed.read_by_key_group(ground.groups_of)
    bounds = np.searchsorted(groups, [ground.owned.start, *(some.stop for some in ranges)])
    for start, stop in pairwise(bounds.tolist()):
        if start < stop:
            part = ground.layout.labelled(start_us, rows.slice(start, stop - start))
            yield _stored(groups[start:stop], part, ground)


def _stored(groups: npt.NDArray[np.int32], rows: pa.Table, ground: Ground) -> pa.Table:
    return rows.add_column(0, ground.layout.stored_schema.field(KEY_GROUP), [pa.array(groups)])


def sorted_by_key_group(stored: pa.Table) -> pa.Table:
    """Sort by key group, then ``window_start``."""
    groups, starts = stored.column(KEY_GROUP).to_numpy(), window_starts_of(stored)
    is_ascending = (starts[1:] >= starts[:-1]).all()
    order = key_group_order(groups) if is_ascending else np.lexsort((starts, groups))
    return stored.take(pa.array(order))
