"""A source's reader with the runtime's additions: pacing, counts, and an idle timeout."""

from collections.abc import Sequence

import pyarrow as pa

from laminar_core.connectors.base import SourceReader
from laminar_core.host.clock import Clock
from laminar_core.operators.base import PendingSnapshot, Snapshot
from laminar_core.protocol.types import CheckpointId
from laminar_core.state.splits import rows_read


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
        self.rows_before = rows_read(reader.position())
        self.rows_since_start = 0
        self._clock = clock
        self._rows_per_second = rows_per_second
        self._idle_timeout_ms = idle_timeout_ms
        self._started_ms: float | None = None
        self._last_row_ms = clock.monotonic_ms()
        self._idle = False

    def poll(self, rows_max: int) -> pa.RecordBatch | None:
        """Return the next rows, at most ``rows_max``.

        None if there are none, or it is too early.
        """
        if self.wait_ms() > 0:
            # Held back is not idle: rows that wait here must not become late.
            self._last_row_ms = self._clock.monotonic_ms()
            return None
        batch = self.reader.poll(rows_max)
        if batch is None:
            return None
        self.rows_since_start += batch.rows.num_rows
        self._last_row_ms = self._clock.monotonic_ms()
        self._idle = False
        return batch.rows

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
        return self.reader.finished

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
        return lambda: Snapshot(tables=(position,))

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        """Do nothing: a reader is opened at its position."""
        assert not snapshots
