"""Keyed window state as merge-on-read panes: append partial results, reduce them when read.

A *pane* holds the rows of one slide of event time as a list of tables of accumulators. Adding rows
appends a table and touches no key. A pane is reduced to one row per key when what came since
outnumbers twice what it had, so each row is merged a bounded number of times, and memory stays
proportional to the number of keys (ADR-0008).

A tumbling window is one pane. A sliding window is ``size / slide`` neighbouring panes, put
together when it fires: a row is stored and sent once, however many windows it is in.

Invariants, checked by ``tests/operators/test_aggregation_model.py``:
    I1  a window fires once, when the watermark reaches its end plus the allowed lateness
    I2  a row counts in every window that contains it and fires after it came
    I3  a row that no window waits for any more is dropped, and counted as late

Tables are immutable, so a snapshot pins them by reference and works on them in the background.

What came since the last cut is kept apart from what came before, each half reduced for itself. So
the changes since then are pinned as cheaply as everything, and partial results of one key, from
however many cuts, add up to its state (``take_changes``).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow.compute import call_function

from laminar_core.state.accumulators import ROW_COUNT, Accumulator, merge
from laminar_core.state.key_groups import key_groups_of

WINDOW_START = "window_start"
KEY_GROUP = "key_group"
TIME_TYPE = pa.timestamp("us", tz="UTC")

PENDING_ROWS_MIN = 65_536
PENDING_TABLES_MAX = 64
FIRED_ROWS_MIN = 1_048_576
_SCANS_MAX = 4


WindowTables = tuple[int, Sequence[pa.Table]]
"""Start of a window in microseconds, and the tables that together hold its rows."""


@dataclass(frozen=True, slots=True)
class StateLayout:
    """What the state of one window aggregation consists of.

    ``schema``: the keys, ``window_start``, the accumulators. ``window_start`` (timestamp[us, UTC])
    is the start of the last window that contains a row, which is also the start of its pane.
    """

    keys: tuple[str, ...]
    accumulators: tuple[Accumulator, ...]
    schema: pa.Schema
    size_us: int
    slide_us: int
    lateness_us: int

    @property
    def pane_schema(self) -> pa.Schema:
        """Schema of the tables in a pane, where the window is understood."""
        return self.schema.remove(len(self.keys))

    @property
    def stored_schema(self) -> pa.Schema:
        """Schema in a checkpoint. The key group is int32, because Spark reads no unsigned."""
        return self.schema.insert(0, pa.field(KEY_GROUP, pa.int32()))

    def finished_us(self, watermark_us: int | None) -> int | None:
        """Start of the newest pane that no window waits for any more; None: all are open."""
        return None if watermark_us is None else watermark_us - self.size_us - self.lateness_us

    def merged_pane(self, tables: Iterable[pa.Table]) -> pa.Table:
        """Reduce the rows of one window to one per key, in order of first appearance."""
        return merge(pa.concat_tables(tables), self.keys, self.accumulators)

    def merged(self, windows: Sequence[WindowTables]) -> pa.Table:
        """Reduce the rows of several windows to one per window and key, in this order.

        Shapes: returns ``schema``; rows come in order of first appearance.
        """
        if len(windows) == 1:  # Most often: a constant need not be hashed row by row.
            start_us, tables = windows[0]
            return self._labelled(start_us, self.merged_pane(tables))
        labelled = [self._labelled(start, table) for start, tables in windows for table in tables]
        rows = pa.concat_tables([self.schema.empty_table(), *labelled])
        return merge(rows, [*self.keys, WINDOW_START], self.accumulators)

    def _labelled(self, start_us: int, table: pa.Table) -> pa.Table:
        starts = pa.repeat(pa.scalar(start_us, TIME_TYPE), table.num_rows)
        return table.add_column(len(self.keys), self.schema.field(WINDOW_START), starts)


class WindowState:
    """The windows that one subtask holds open."""

    def __init__(self, layout: StateLayout) -> None:
        self.watermark_us: int | None = None
        self.late_row_count = 0
        """Input rows dropped, because all windows that contain them had fired."""
        self._layout = layout
        self._panes: dict[int, _Pane] = {}
        self._next_firing_us: int | None = None

    def add(self, rows: pa.Table) -> None:
        """Take accumulators of any keys and windows; drop and count what is late."""
        for start_us, pane_rows in split_by_window(self._without_late(rows)):
            self._append(start_us, pane_rows)

    def advance(self, watermark_us: int) -> Iterator[pa.Table]:
        """Fire every window that ends, lateness included, at or before ``watermark_us``.

        The state changes at once; the tables are computed as they are asked for. They have the
        layout's schema, with the start of the fired window, one row per key and window, in the
        order of windows. A watermark that does not advance changes nothing.
        """
        if self.watermark_us is not None and watermark_us <= self.watermark_us:
            return iter(())
        fired = self._due(watermark_us)
        self.watermark_us = watermark_us
        if fired:
            self._drop_finished()
        return self._merge_fired(fired)

    def pin(self) -> tuple[WindowTables, ...]:
        """Hold on to the panes as they are now, without copying any of them."""
        return tuple((start_us, pane.tables) for start_us, pane in self._panes.items())

    def take_changes(self) -> tuple[WindowTables, ...]:
        """Hold on to what came since the last call, of the panes that are still there.

        Merged with what earlier calls returned it is the state, once ``unfinished_rows`` has left
        out what belongs to panes that are gone.
        """
        changes = ((start_us, pane.take_fresh()) for start_us, pane in self._panes.items())
        return tuple((start_us, tables) for start_us, tables in changes if tables)

    @property
    def finished_us(self) -> int | None:
        """Start of the newest pane that no window waits for any more; None: all are open."""
        return self._layout.finished_us(self.watermark_us)

    def restore(
        self, tables: Iterable[pa.Table], watermark_us: int | None, late_row_count: int
    ) -> None:
        """Start from ``tables``, which were pinned when the watermark was ``watermark_us``.

        To ``take_changes`` all of it is new.
        """
        assert not self._panes, "restore comes before any row"
        self.watermark_us = watermark_us
        self.late_row_count = late_row_count
        for rows in tables:
            for start_us, pane_rows in split_by_window(rows):
                self._append(start_us, pane_rows)

    def _without_late(self, rows: pa.Table) -> pa.Table:
        newest_late_us = self.finished_us
        if newest_late_us is None or not rows.num_rows:
            return rows
        late = window_starts_of(rows) <= newest_late_us
        if not late.any():
            return rows
        late_counts = rows.column(ROW_COUNT.name).filter(pa.array(late))
        self.late_row_count += call_function("sum", [late_counts]).as_py()
        return rows.filter(pa.array(~late))

    def _append(self, start_us: int, rows: pa.Table) -> None:
        pane = self._panes.get(start_us)
        if pane is None:
            self._panes[start_us] = pane = _Pane.of(self._layout.pane_schema.empty_table())
            firing_us = self._firing_of(start_us)
            if self._next_firing_us is None or firing_us < self._next_firing_us:
                self._next_firing_us = firing_us
        pane.append(rows, self._layout)

    def _firing_of(self, start_us: int) -> int:
        """Watermark at which the next window over the pane at ``start_us`` fires."""
        layout = self._layout
        first_us = start_us + layout.slide_us + layout.lateness_us
        if self.watermark_us is None or first_us > self.watermark_us:
            return first_us
        passed = (self.watermark_us - first_us) // layout.slide_us + 1
        return first_us + passed * layout.slide_us

    def _due(self, watermark_us: int) -> list[WindowTables]:
        """List the windows that fire now, ascending, with the tables they consist of."""
        if self._next_firing_us is None or watermark_us < self._next_firing_us:
            return []
        layout = self._layout
        open_us = layout.size_us + layout.lateness_us
        starts = {
            start_us
            for pane_us in self._panes
            for start_us in range(
                self._firing_of(pane_us) - open_us,
                min(pane_us, watermark_us - open_us) + 1,
                layout.slide_us,
            )
        }
        return [(start_us, self._tables_of(start_us)) for start_us in sorted(starts)]

    def _tables_of(self, window_us: int) -> list[pa.Table]:
        starts = range(window_us, window_us + self._layout.size_us, self._layout.slide_us)
        panes = [self._panes[start_us] for start_us in starts if start_us in self._panes]
        return [table for pane in panes for table in pane.tables]

    def _drop_finished(self) -> None:
        """Let go of the panes that no window waits for, and look for the next firing."""
        newest_us = self.finished_us
        assert newest_us is not None
        self._panes = {start: pane for start, pane in self._panes.items() if start > newest_us}
        self._next_firing_us = min(map(self._firing_of, self._panes), default=None)

    def _merge_fired(self, fired: Iterable[WindowTables]) -> Iterator[pa.Table]:
        """Merge many small windows in one pass, but no more than the memory takes well."""
        waiting: list[WindowTables] = []
        waiting_rows = 0
        for window in fired:
            waiting.append(window)
            waiting_rows += sum(table.num_rows for table in window[1])
            if waiting_rows >= FIRED_ROWS_MIN:
                yield self._layout.merged(waiting)
                waiting, waiting_rows = [], 0
        if waiting:
            yield self._layout.merged(waiting)


@dataclass(slots=True)
class _Run:
    """Rows of a pane: the reduced ones, then what came since, in order."""

    reduced: pa.Table
    pending: list[pa.Table] = field(default_factory=list)
    pending_rows: int = 0

    @property
    def tables(self) -> list[pa.Table]:
        return [table for table in (self.reduced, *self.pending) if table.num_rows]

    def append(self, tables: Iterable[pa.Table]) -> None:
        for table in tables:
            self.pending.append(table)
            self.pending_rows += table.num_rows

    def tidy(self, layout: StateLayout) -> None:
        """Reduce it if that is worth while by now."""
        if self.pending_rows > max(PENDING_ROWS_MIN, 2 * self.reduced.num_rows):
            self.reduced = layout.merged_pane([self.reduced, *self.pending])
            self.pending, self.pending_rows = [], 0
        elif len(self.pending) > PENDING_TABLES_MAX:
            # Of many small tables a merge costs more per table than per row.
            self.pending = [pa.concat_tables(self.pending).combine_chunks()]


@dataclass(slots=True)
class _Pane:
    """The rows of one slide of event time: those of the last cut, and those that came since."""

    empty: pa.Table
    settled: _Run
    fresh: _Run

    @classmethod
    def of(cls, empty: pa.Table) -> "_Pane":
        return cls(empty, _Run(empty), _Run(empty))

    @property
    def tables(self) -> list[pa.Table]:
        return [*self.settled.tables, *self.fresh.tables] or [self.empty]

    def append(self, table: pa.Table, layout: StateLayout) -> None:
        self.fresh.append([table])
        self.fresh.tidy(layout)
        self.settled.tidy(layout)

    def take_fresh(self) -> list[pa.Table]:
        """Settle what came since the last call, without reducing it: rows wait meanwhile."""
        taken = self.fresh.tables
        self.settled.append(taken)
        self.fresh = _Run(self.empty)
        return taken


def split_by_window(rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """Yield (``window_start`` in microseconds, its rows in order without that column).

    Rows of different windows share no memory afterwards: a window that stays open long must not
    keep alive the large batches of which it got a few rows.
    """
    if not rows.num_rows:
        return
    starts = window_starts_of(rows)
    rows = rows.drop_columns([WINDOW_START])
    if (starts == starts[0]).all():
        yield int(starts[0]), rows
        return
    for start_us, indices in _rows_by_start(starts):
        yield start_us, rows.take(pa.array(indices))


def _rows_by_start(starts: npt.NDArray[np.int64]) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """Yield the distinct starts with their row numbers: one scan for each of a few, else a sort."""
    unseen = np.ones(len(starts), dtype=np.bool_)
    for _ in range(_SCANS_MAX):
        start = starts[unseen.argmax()]
        same = starts == start
        yield int(start), np.flatnonzero(same)
        unseen ^= same
        if not unseen.any():
            return
    rows = np.flatnonzero(unseen)
    distinct, start_of_row = np.unique(starts[rows], return_inverse=True)
    order = np.argsort(start_of_row, kind="stable")
    ends = np.cumsum(np.bincount(start_of_row))
    for start, positions in zip(distinct, np.split(order, ends[:-1]), strict=True):
        yield int(start), rows[positions]


def window_starts_of(rows: pa.Table) -> npt.NDArray[np.int64]:
    """``window_start`` of every row, in microseconds."""
    return rows.column(WINDOW_START).cast(pa.int64()).to_numpy()


def stored_table(
    pinned: Sequence[WindowTables], layout: StateLayout, max_parallelism: int
) -> pa.Table:
    """Build the table of a checkpoint from pinned panes: one row per key and ``window_start``.

    Shapes: ``layout.stored_schema``, sorted by key group, then ``window_start``.
    """
    rows = layout.merged(pinned).combine_chunks()
    groups = [key_groups_of(b, layout.keys, max_parallelism) for b in rows.to_batches()]
    key_group = np.concatenate([np.empty(0, np.int32), *groups]).astype(np.int32)
    stored = rows.add_column(0, layout.stored_schema.field(KEY_GROUP), [pa.array(key_group)])
    return _sorted(stored)


def merge_stored(
    tables: Iterable[pa.Table], layout: StateLayout, finished_us: int | None
) -> pa.Table:
    """Put tables of several checkpoints together to one, without the panes that are finished.

    Shapes: all have ``layout.stored_schema``, and so has the result, sorted as theirs are.
    """
    rows = [unfinished_rows(table, finished_us) for table in tables]
    together = pa.concat_tables([layout.stored_schema.empty_table(), *rows])
    keys = [KEY_GROUP, *layout.keys, WINDOW_START]
    return _sorted(merge(together, keys, layout.accumulators).combine_chunks())


def _sorted(stored: pa.Table) -> pa.Table:
    groups = stored.column(KEY_GROUP).to_numpy()
    return stored.take(pa.array(np.lexsort((window_starts_of(stored), groups))))


def unfinished_rows(rows: pa.Table, finished_us: int | None) -> pa.Table:
    """Leave out the rows of panes that start at ``finished_us`` or before."""
    if finished_us is None or not rows.num_rows:
        return rows
    finished = window_starts_of(rows) <= finished_us
    return rows.filter(pa.array(~finished)) if finished.any() else rows


def rows_of_key_groups(stored: pa.Table, key_groups: range) -> pa.Table:
    """Select the rows of ``key_groups`` from the table of a checkpoint, as state again."""
    groups = stored.column(KEY_GROUP).to_numpy()
    rows = np.flatnonzero((groups >= key_groups.start) & (groups < key_groups.stop))
    return stored.take(pa.array(rows)).drop_columns([KEY_GROUP])
