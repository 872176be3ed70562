"""The layout of a window aggregation's state: columns, windows, and keys."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from laminar_core.aggregates.accumulators import Accumulator, merge, merge_in_order
from laminar_core.codec.arrow import empty_table

WINDOW_START = "window_start"
KEY_GROUP = "key_group"
TIME_TYPE = pa.timestamp("us", tz="UTC")

ROWS_OF_A_WINDOW_MIN = 1_000
"""Windows with fewer rows on average are merged in one pass, because a call has its price."""


class WindowTables(NamedTuple):
    """The tables that together hold the rows of a window, which is known by its label."""

    label_us: int
    tables: Sequence[pa.Table]
    is_reduced: bool = False
    """Whether no key has two rows."""


Times = TypeVar("Times", int, npt.NDArray[np.int64])
"""One time, or an array of times, in microseconds."""


@dataclass(frozen=True, slots=True)
class StateLayout:
    """The columns of one window aggregation's state.

    ``schema``: the keys, ``window_start``, the accumulators. ``window_start`` (timestamp[us, UTC])
    is the start of the pane of a row.

    A window consists of neighbouring panes. It is known by its *label*, the start of one of them:
    the first one, and of a cumulative window the last one. So the last window that contains a pane
    of other windows has the start of that pane as its label.
    """

    keys: tuple[str, ...]
    accumulators: tuple[Accumulator, ...]
    schema: pa.Schema
    size_us: int
    slide_us: int
    lateness_us: int
    grows_from_us: int | None = None
    """Windows are cumulative, and begin at multiples of their size from here; None: all windows
    have the same size."""

    @property
    def pane_schema(self) -> pa.Schema:
        """The schema of tables in a pane, where the window is implied."""
        return self.schema.remove(len(self.keys))

    @property
    def stored_schema(self) -> pa.Schema:
        """The schema in a checkpoint.

        The key group is int32, because Spark has no unsigned integers.
        """
        return self.schema.insert(0, pa.field(KEY_GROUP, pa.int32()))

    def finished_us(self, watermark_us: int | None) -> int | None:
        """Start of the newest pane that no window waits for any more; None: all are open."""
        if watermark_us is None:
            return None
        start_us = watermark_us - self.size_us - self.lateness_us
        return self.last_label_us(self.start_us(start_us))

    def start_us(self, label: Times) -> Times:
        """Return the start of the window with this label."""
        if self.grows_from_us is None:
            return label
        return (label - self.grows_from_us) // self.size_us * self.size_us + self.grows_from_us

    def end_us(self, label: Times) -> Times:
        """Return the end of the window with this label."""
        return label + (self.size_us if self.grows_from_us is None else self.slide_us)

    def fires_us(self, label: Times) -> Times:
        """Return the watermark at which the window fires."""
        return self.end_us(label) + self.lateness_us

    def last_label_us(self, pane_us: Times) -> Times:
        """Return the label of the last window that contains the pane."""
        if self.grows_from_us is None:
            return pane_us
        return self.start_us(pane_us) + (self.size_us - self.slide_us)

    def panes_of(self, label_us: int) -> range:
        """Return the starts of the panes that the window consists of."""
        return range(self.start_us(label_us), self.end_us(label_us), self.slide_us)

    def merged_pane(self, tables: Iterable[pa.Table]) -> pa.Table:
        """Reduce the rows of one window to one per key."""
        rows = list(tables) or [empty_table(self.pane_schema)]
        return merge(pa.concat_tables(rows), self.keys, self.accumulators)

    def merged(self, windows: Sequence[WindowTables]) -> pa.Table:
        """Reduce the rows of several windows to one per window and key, in this order of windows.

        Shapes: returns ``schema``.
        """
        row_count = sum(table.num_rows for window in windows for table in window.tables)
        if len(windows) == 1 or row_count > ROWS_OF_A_WINDOW_MIN * len(windows):
            # A constant need not be hashed row by row.
            return pa.concat_tables([self._merged_window(window) for window in windows])
        labelled = [
            self.labelled(window.label_us, table) for window in windows for table in window.tables
        ]
        rows = pa.concat_tables([empty_table(self.schema), *labelled])
        return merge_in_order(rows, [*self.keys, WINDOW_START], self.accumulators)

    def _merged_window(self, window: WindowTables) -> pa.Table:
        merge = pa.concat_tables if window.is_reduced and window.tables else self.merged_pane
        return self.labelled(window.label_us, merge(window.tables))

    def labelled(self, start_us: int, table: pa.Table) -> pa.Table:
        """Add the column with this label behind the keys."""
        starts = pa.repeat(pa.scalar(start_us, TIME_TYPE), table.num_rows)
        return table.add_column(len(self.keys), self.schema.field(WINDOW_START), starts)


def window_starts_of(rows: pa.Table) -> npt.NDArray[np.int64]:
    """Return ``window_start`` of every row, in microseconds."""
    return rows.column(WINDOW_START).cast(pa.int64()).to_numpy()
