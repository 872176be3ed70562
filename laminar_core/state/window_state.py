"""Keyed window state as merge-on-read panes: append partial results, reduce them when read.

A *pane* holds the rows of one slide of event time, see ``panes``. Adding rows appends a table and
touches no key, unless the rows have places (``placed_rows``). A tumbling window is one pane. A
sliding window is ``size / slide`` neighbouring panes, and a cumulative one all panes since its
start, combined when it fires: a row is stored and sent once, however many windows contain it.

Invariants, checked by ``tests/operators/test_aggregation_model.py`` for every backend:
    I1  a window fires once, when the watermark reaches its end plus the allowed lateness
    I2  a row counts in every window that contains it and fires after it came
    I3  a row that no window waits for any more is dropped, and counted as late

Chunks are immutable, so a snapshot pins them by reference and works on them in the background.

What came since the last cut is kept apart from what came before, each half reduced for itself. So
the changes since then are pinned as cheaply as everything, and partial results of one key, from
however many cuts, add up to its state (``take_changes``).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow.compute import call_function

from laminar_core.aggregates.accumulators import ROW_COUNT, merge
from laminar_core.codec.arrow import empty_table
from laminar_core.codec.stable_hash import UInt64Array
from laminar_core.state.changed_keys import ChangedKeys
from laminar_core.state.chunks import MemoryShelf
from laminar_core.state.expiry import unexpired
from laminar_core.state.panes import (
    TABLE_BYTES_MAX,
    Ground,
    Pane,
    PinnedPane,
    by_key_groups,
    sorted_by_key_group,
)
from laminar_core.state.window_layout import (
    KEY_GROUP,
    WINDOW_START,
    StateLayout,
    WindowTables,
    window_starts_of,
)

FIRED_ROWS_MIN = 1_048_576
"""Windows are merged together up to so many rows, and larger ones in parts."""
_SCANS_MAX = 4


@dataclass(frozen=True, slots=True)
class _Fired:
    """A window that fires, and the panes that it consists of."""

    label_us: int
    panes: tuple[PinnedPane, ...]

    @property
    def row_count(self) -> int:
        return sum(pane.row_count for pane in self.panes)

    @property
    def size_bytes(self) -> int:
        return sum(pane.size_bytes for pane in self.panes)

    @property
    def is_reduced(self) -> bool:
        return len(self.panes) == 1 and self.panes[0].is_reduced

    def rows(self) -> WindowTables:
        tables = [table for pane in self.panes for table in pane.tables()]
        return WindowTables(self.label_us, tables, self.is_reduced)


class WindowState:
    """The windows that one subtask holds open."""

    def __init__(
        self,
        layout: StateLayout,
        ground: Ground | None = None,
        changed: ChangedKeys | None = None,
    ) -> None:
        """``changed``: the keys that got rows, for ``take_changed``."""
        self.watermark_us: int | None = None
        self.late_row_count = 0
        """Input rows dropped, because all windows that contain them had fired."""
        self._layout = layout
        self._ground = ground or Ground(layout, MemoryShelf(), 1, range(1))
        self._changed = changed
        self._panes: dict[int, Pane] = {}
        self._gathered_bytes = 0
        self._next_firing_us: int | None = None

    def add(self, rows: pa.Table) -> None:
        """Take accumulators of any keys and windows; drop and count what is late."""
        for start_us, pane_rows in split_by_window(self._without_late(rows)):
            self._append(start_us, pane_rows)

    def advance(self, watermark_us: int) -> Iterator[pa.Table]:
        """Fire every window that ends, lateness included, at or before ``watermark_us``.

        The state changes at once; the tables are computed as they are consumed. They have the
        layout's schema, with the label of the fired window, one row per key and window, in the
        order of windows. A watermark that does not advance changes nothing.
        """
        if self.watermark_us is not None and watermark_us <= self.watermark_us:
            return iter(())
        fired = self._due(watermark_us)
        self.watermark_us = watermark_us
        if fired:
            self._drop_finished()
        return self._merge_fired(fired)

    def take_changed(self) -> Iterator[pa.Table]:
        """Yield what open windows amount to so far, for the keys with rows since the last call.

        Shapes and order are those of ``advance``. After a restore, all keys count as changed.
        """
        assert self._changed is not None, "the keys are not noted"
        hashes: dict[int, list[UInt64Array]] = {}
        for pane_us, changed in self._changed.take().items():
            if pane_us in self._panes:
                for label_us in self._open_labels(pane_us):
                    hashes.setdefault(label_us, []).append(changed)
        open_windows = [
            (_Fired(label_us, self._panes_of(label_us)), hashes[label_us])
            for label_us in sorted(hashes)
        ]
        return self._merge_changed(open_windows, self._changed)

    def pin(self) -> tuple[PinnedPane, ...]:
        """Hold on to the panes as they are now, without copying any of them."""
        return tuple(pane.pin() for pane in self._panes.values())

    def take_changes(self) -> tuple[PinnedPane, ...]:
        """Hold on to what came since the last call, of the panes that are still there.

        Merged with what earlier calls returned it is the state, once ``unexpired`` has left
        out what belongs to panes that are gone.
        """
        changes = (pane.take_fresh() for pane in self._panes.values())
        return tuple(change for change in changes if not change.is_empty())

    @property
    def finished_us(self) -> int | None:
        """Start of the newest pane that no window waits for any more; None: all are open."""
        return self._layout.finished_us(self.watermark_us)

    def restore(
        self, tables: Iterable[pa.Table], watermark_us: int | None, late_row_count: int
    ) -> None:
        """Start from ``tables``, which were pinned when the watermark was ``watermark_us``.

        They are tables of a checkpoint, as ``owned_rows`` returns them. To ``take_changes`` all of
        it is new.
        """
        assert not self._panes, "restore comes before any row"
        self.watermark_us = watermark_us
        self.late_row_count = late_row_count
        for rows in tables:
            for start_us, pane_rows in split_by_window(rows):
                self._append(start_us, pane_rows, restored=True)

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

    def _append(self, start_us: int, rows: pa.Table, *, restored: bool = False) -> None:
        pane = self._panes.get(start_us)
        if pane is None:
            self._panes[start_us] = pane = Pane(start_us, self._ground)
            firing_us = self._firing_of(start_us)
            if self._next_firing_us is None or firing_us < self._next_firing_us:
                self._next_firing_us = firing_us
        if self._changed is not None:
            self._changed.add(start_us, rows)  # Whatever other columns there are.
        before_bytes = pane.gathered_bytes
        if restored:
            pane.restore(rows)
        else:
            pane.add(rows)
        self._gathered_bytes += pane.gathered_bytes - before_bytes
        if self._gathered_bytes > self._ground.shelf.gathered_bytes_max:
            self._put_away()

    def _put_away(self) -> None:
        """Put the panes with the most gathered rows on the shelf if too many wait in memory."""
        if self._ground.shelf.in_memory:
            return
        for pane in sorted(self._panes.values(), key=lambda pane: -pane.gathered_bytes):
            if 2 * self._gathered_bytes <= self._ground.shelf.gathered_bytes_max:
                return
            self._gathered_bytes -= pane.gathered_bytes
            pane.put_away()

    def _firing_of(self, start_us: int) -> int:
        """Watermark at which the next window over the pane at ``start_us`` fires."""
        layout = self._layout
        first_us = start_us + layout.slide_us + layout.lateness_us
        if self.watermark_us is None or first_us > self.watermark_us:
            return first_us
        passed = (self.watermark_us - first_us) // layout.slide_us + 1
        return first_us + passed * layout.slide_us

    def _due(self, watermark_us: int) -> list[_Fired]:
        """List the windows that fire now, ascending, with the panes they consist of."""
        if self._next_firing_us is None or watermark_us < self._next_firing_us:
            return []
        newest_us = watermark_us - self._layout.fires_us(0)
        labels = {
            label_us
            for pane_us in self._panes
            for label_us in self._open_labels(pane_us, newest_us)
        }
        return [_Fired(label_us, self._panes_of(label_us)) for label_us in sorted(labels)]

    def _open_labels(self, pane_us: int, newest_us: int | None = None) -> range:
        """Labels of the windows over the pane that have not fired, up to the newest one."""
        layout = self._layout
        first_us = self._firing_of(pane_us) - layout.fires_us(0)  # From a label until it fires.
        last_us = layout.last_label_us(pane_us)
        last_us = last_us if newest_us is None else min(last_us, newest_us)
        return range(first_us, last_us + 1, layout.slide_us)

    def _panes_of(self, label_us: int) -> tuple[PinnedPane, ...]:
        starts = self._layout.panes_of(label_us)
        return tuple(self._panes[start].pin() for start in starts if start in self._panes)

    def _drop_finished(self) -> None:
        """Let go of the panes that no window waits for, and look for the next firing."""
        newest_us = self.finished_us
        assert newest_us is not None
        self._panes = {start: pane for start, pane in self._panes.items() if start > newest_us}
        self._next_firing_us = min(map(self._firing_of, self._panes), default=None)
        self._gathered_bytes = sum(pane.gathered_bytes for pane in self._panes.values())

    def _merge_fired(self, fired: Iterable[_Fired]) -> Iterator[pa.Table]:
        """Merge many small windows in one pass, but no more than the memory takes well."""
        waiting: list[_Fired] = []
        waiting_rows = 0
        for window in fired:
            parts = max(window.row_count / FIRED_ROWS_MIN, window.size_bytes / TABLE_BYTES_MAX)
            if parts > 1:
                yield from self._merge_waiting(waiting)
                yield from self._merge_large(window, int(parts) + 1)
                waiting, waiting_rows = [], 0
                continue
            waiting.append(window)
            waiting_rows += window.row_count
            if waiting_rows >= FIRED_ROWS_MIN:
                yield from self._merge_waiting(waiting)
                waiting, waiting_rows = [], 0
        yield from self._merge_waiting(waiting)

    def _merge_changed(
        self, windows: Iterable[tuple[_Fired, Sequence[UInt64Array]]], changed: ChangedKeys
    ) -> Iterator[pa.Table]:
        for window, hashes in windows:
            of_window = np.concatenate(hashes)
            for merged in self._merge_fired([window]):
                # What numpy 2.0 chooses by itself fails with hashes that need 64 bits.
                is_changed = np.isin(changed.hashes_of(merged), of_window, kind="sort")
                yield merged.filter(pa.array(is_changed))

    def _merge_waiting(self, windows: Sequence[_Fired]) -> Iterator[pa.Table]:
        if windows:
            yield self._layout.merged([window.rows() for window in windows])

    def _merge_large(self, window: _Fired, parts: int) -> Iterator[pa.Table]:
        """One range of key groups after the other, or of keys that have places."""
        ground = self._ground
        if window.is_reduced:
            [rows] = window.rows().tables
            length = -(-rows.num_rows // parts)
            for start in range(0, rows.num_rows, length):
                yield self._layout.labelled(window.label_us, rows.slice(start, length))
            return
        for panes in by_key_groups(window.panes, ground.ranges_for(parts), ground):
            tables = [table for pane in panes for table in pane.tables]
            if any(table.num_rows for table in tables):
                yield self._layout.merged([WindowTables(window.label_us, tables)])


def split_by_window(rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """Yield (``window_start`` in microseconds, its rows in order without that column).

    Rows of different windows share no memory afterwards: a window that stays open long must not
    keep a large batch alive for a few of its rows.
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


def merge_stored(
    tables: Iterable[pa.Table], layout: StateLayout, finished_us: int | None
) -> pa.Table:
    """Put tables of several checkpoints together to one, without the panes that are finished.

    Shapes: all have ``layout.stored_schema``, and so has the result, sorted as theirs are.
    """
    rows = [unexpired("", table, finished_us) for table in tables]
    together = pa.concat_tables([empty_table(layout.stored_schema), *rows])
    keys = [KEY_GROUP, *layout.keys, WINDOW_START]
    return sorted_by_key_group(merge(together, keys, layout.accumulators).combine_chunks())


def rows_of_key_groups(stored: pa.Table, key_groups: range) -> pa.Table:
    """Select the rows of ``key_groups`` from the table of a checkpoint, as state again."""
    return owned_rows(stored, key_groups).drop_columns([KEY_GROUP])


def owned_rows(stored: pa.Table, key_groups: range) -> pa.Table:
    """Select the rows of ``key_groups`` from the table of a checkpoint.

    Usually these are all rows: then, and where they are neighbours, nothing is copied.
    """
    groups = stored.column(KEY_GROUP).to_numpy()
    inside = (groups >= key_groups.start) & (groups < key_groups.stop)
    rows = np.flatnonzero(inside)
    if len(rows) == len(groups):
        return stored
    if len(rows) and rows[-1] - rows[0] + 1 == len(rows):
        return stored.slice(rows[0], len(rows))
    return stored.take(pa.array(rows))
