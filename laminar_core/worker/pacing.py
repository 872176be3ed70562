"""A source's reader with the runtime's additions: pacing, counts, and an idle timeout."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from laminar_core.connectors.base import SourceReader
from laminar_core.host.clock import Clock
from laminar_core.operators.base import PendingSnapshot, Snapshot
from laminar_core.protocol.types import CheckpointId


def rows_before(splits: pa.Table) -> int:
    """Return the number of rows before these positions, over all splits."""
    return int(splits.column("next_row").to_numpy().sum())


def rows_in_all(splits: pa.Table) -> int | None:
    """Return the rows of all splits together, or None if one is unbounded."""
    counts = splits.column("row_count")
    return None if counts.null_count else int(counts.to_numpy().sum())


def has_rows_left(splits: pa.Table) -> list[bool]:
    """Return for each split whether rows are left; an unbounded one always has some."""
    next_rows, counts = (splits.column(c).to_pylist() for c in ("next_row", "row_count"))
    return [n is None or at < n for at, n in zip(next_rows, counts, strict=True)]


def in_reading_order(splits: pa.Table) -> pa.Table:
    """Return the splits in the order of discovery, if the source numbers them."""
    return splits.sort_by("split_id") if "split_id" in splits.column_names else splits


class _Rest:
    """The rest of a batch that is taken in slices."""

    def __init__(self, rows: pa.RecordBatch, before: pa.Table) -> None:
        self.rows = rows
        self._taken = 0
        self._before = before

    def take(self, rows_max: int | None) -> pa.RecordBatch:
        """The next rows, at most so many."""
        part = self.rows.slice(0, rows_max)
        self.rows = self.rows.slice(part.num_rows)
        self._taken += part.num_rows
        return part

    def position(self, after: pa.Table) -> pa.Table:
        """Behind what was taken, in the one split that the batch is of."""
        next_row = self._before.column("next_row").to_numpy().copy()
        next_row[_moved(self._before, after)] += self._taken
        index = after.schema.get_field_index("next_row")
        return after.set_column(index, after.schema.field(index), pa.array(next_row))


def _moved(before: pa.Table, after: pa.Table) -> np.ndarray:
    """Return the indexes of the splits whose position differs."""
    rows_then, rows_now = (t.column("next_row").to_numpy() for t in (before, after))
    return np.flatnonzero(rows_then != rows_now)


class PacedSource:
    """Reads no faster than ``rows_per_second`` (of this subtask), measured from the start."""

    def __init__(
        self,
        reader: SourceReader,
        clock: Clock,
        rows_per_second: float | None,
        idle_timeout_ms: float | None,
    ) -> None:
        self.reader = reader
        self.rows_before = rows_before(reader.position())
        self.rows_since_start = 0
        self._clock = clock
        self._rows_per_second = rows_per_second
        self._idle_timeout_ms = idle_timeout_ms
        self._started_ms: float | None = None
        self._last_row_ms = clock.monotonic_ms()
        self._idle = False
        self._rest: _Rest | None = None

    def poll(self, rows_max: int | None = None) -> pa.RecordBatch | None:
        """Return the next batch, or up to ``rows_max`` rows.

        None if there is none, or it is too early.
        """
        if self.wait_ms() > 0:
            # Held back is not idle: rows that wait here must not become late.
            self._last_row_ms = self._clock.monotonic_ms()
            return None
        batch = self._next(rows_max)
        if batch is None:
            return None
        self.rows_since_start += batch.num_rows
        self._last_row_ms = self._clock.monotonic_ms()
        self._idle = False
        return batch

    def _next(self, rows_max: int | None) -> pa.RecordBatch | None:
        if self._rest is None and rows_max is None:
            return self.reader.poll()
        if self._rest is None:
            before = self.reader.position()
            batch = self.reader.poll()
            if batch is None or len(_moved(before, self.reader.position())) != 1:
                return batch  # Rows of several splits side by side: no slice has a position.
            self._rest = _Rest(batch, before)
        part = self._rest.take(rows_max)
        if not self._rest.rows.num_rows:
            self._rest = None
        return part

    def wait_ms(self) -> float:
        """Return the time until the pace allows another batch; 0 if it does now."""
        if self._rows_per_second is None:
            return 0.0
        now_ms = self._clock.monotonic_ms()
        if self._started_ms is None:
            self._started_ms = now_ms
        due_ms = self._started_ms + 1000 * self.rows_since_start / self._rows_per_second
        return max(due_ms - now_ms, 0.0)

    @property
    def finished(self) -> bool:
        """Whether all rows have been read."""
        return self._rest is None and self.reader.finished

    def became_idle(self) -> bool:
        """Return True once when no row has come for the idle timeout."""
        if self._idle or self._idle_timeout_ms is None:
            return False
        self._idle = self._clock.monotonic_ms() - self._last_row_ms >= self._idle_timeout_ms
        return self._idle

    def snapshot(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        """Pin the current position."""
        del checkpoint_id
        position = self.reader.position()
        if self._rest is not None:
            position = self._rest.position(position)
        return lambda: Snapshot(tables=(position,))

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        """Do nothing: a reader is opened at its position."""
        assert not snapshots
