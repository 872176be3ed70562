"""The layout of a window aggregation's state: columns, windows, and keys."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from laminar_core.aggregates.accumulators import Accumulator, merge, merge_in_order

WINDOW_START = "window_start"
KEY_GROUP = "key_group"
TIME_TYPE = pa.timestamp("us", tz="UTC")

WindowTables = tuple[int, Sequence[pa.Table]]
"""Start of a window in microseconds, and the tables that together hold its rows."""


@dataclass(frozen=True, slots=True)
class StateLayout:
    """The columns of one window aggregation's state.

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
        return None if watermark_us is None else watermark_us - self.size_us - self.lateness_us

    def merged_pane(self, tables: Iterable[pa.Table]) -> pa.Table:
        """Reduce the rows of one window to one per key."""
        rows = list(tables) or [self.pane_schema.empty_table()]
        return merge(pa.concat_tables(rows), self.keys, self.accumulators)

    def merged(self, windows: Sequence[WindowTables]) -> pa.Table:
        """Reduce the rows of several windows to one per window and key, in this order of windows.

        Shapes: returns ``schema``.
        """
        if len(windows) == 1:  # Most often: a constant need not be hashed row by row.
            start_us, tables = windows[0]
            return self._labelled(start_us, self.merged_pane(tables))
        labelled = [self._labelled(start, table) for start, tables in windows for table in tables]
        rows = pa.concat_tables([self.schema.empty_table(), *labelled])
        return merge_in_order(rows, [*self.keys, WINDOW_START], self.accumulators)

    def _labelled(self, start_us: int, table: pa.Table) -> pa.Table:
        starts = pa.repeat(pa.scalar(start_us, TIME_TYPE), table.num_rows)
        return table.add_column(len(self.keys), self.schema.field(WINDOW_START), starts)


def window_starts_of(rows: pa.Table) -> npt.NDArray[np.int64]:
    """Return ``window_start`` of every row, in microseconds."""
    return rows.column(WINDOW_START).cast(pa.int64()).to_numpy()
