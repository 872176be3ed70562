"""A source's reader with the runtime's additions: pacing, counts, and an idle timeout."""

from collections.abc import Sequence

import pyarrow as pa

from laminar_core.connectors.base import SourceBatch, SourceReader
from laminar_core.connectors.formats.bad_rows import BadRowPolicy
from laminar_core.host.clock import Clock
from laminar_core.operators.base import JsonObject, PendingSnapshot, Snapshot
from laminar_core.protocol.split_watermarks import SplitWatermarks
from laminar_core.protocol.types import CheckpointId
from laminar_core.records.source_numbers import SourceNumbers
from laminar_core.state.splits import rows_left, rows_read
from laminar_core.worker.bad_rows import BadRowGate
from laminar_core.worker.gathering import gathered
from laminar_core.worker.split_watch import SplitWatch


class PacedSource:
    """Reads no faster than ``rows_per_second`` (of this subtask), measured from the start."""

    def __init__(
        self,
        reader: SourceReader,
        clock: Clock,
        rows_per_second: float | None,
        idle_timeout_ms: float | None,
        gate: BadRowGate | None = None,
        *,
        grows: bool = False,
    ) -> None:
        self.reader = reader
        position = reader.position()
        self.gate = gate or BadRowGate("source", BadRowPolicy(), reader.position)
        self.rows_before = rows_read(position)
        self.grows = grows
        """Whether more splits may be added; until then it has not finished."""
        self.gathers = False
        """Whether the rows of several polls become one batch, if they are few."""
        self.properties: JsonObject = {}
        """Facts about how the source reads, recorded in every checkpoint."""
        self.splits_added = 0
        self._rows_to_read = _known_rows(position)
        self.watch: SplitWatch | None = None
        """Its splits, if they are read side by side."""
        self.rows_since_start = 0
        self._clock = clock
        self._rows_per_second = rows_per_second
        self._idle_timeout_ms = idle_timeout_ms
        self._started_ms: float | None = None
        self._last_row_ms = clock.monotonic_ms()
        self._idle = False

    def poll(self, rows_max: int) -> SourceBatch | None:
        """Return the next rows, at most ``rows_max``, with the letters for the side output.

        None if there are none, or it is too early.

        Raises:
            DataError: the job must stop because of a bad row.
        """
        return gathered(self._poll, rows_max, self._clock) if self.gathers else self._poll(rows_max)

    def _poll(self, rows_max: int) -> SourceBatch | None:
        if self.wait_ms() > 0:
            # Held back is not idle: rows that wait here must not become late.
            self._last_row_ms = self._clock.monotonic_ms()
            return None
        if self.watch is not None:
            self.watch.steer()
        if self._rows_per_second is not None:  # A large batch would be followed by a long pause.
            rows_max = int(max(min(rows_max, self._rows_per_second), 1))
        batch = self.reader.poll(rows_max)
        if batch is None:
            return None
        letters = 0 if batch.letters is None else batch.letters.num_rows
        self.rows_since_start += batch.rows.num_rows + letters
        self._last_row_ms = self._clock.monotonic_ms()
        self._idle = False
        if batch.split_id is not None and self.watch is not None:
            self.watch.had_rows(batch.split_id)
        return self.gate.judged(batch)

    def add(self, splits: pa.Table | None, *, complete: bool) -> None:
        """Read these splits, too; ``complete``: no more will be added."""
        if splits is not None:
            self.reader.add(splits)
            self.splits_added += splits.num_rows
            self._rows_to_read += _known_rows(splits)
            if self.watch is not None:
                self.watch.add(splits)
        self.grows = self.grows and not complete

    def watch_splits(self, max_drift_us: int | None = None) -> SplitWatermarks:
        """Watch the splits one by one from now on, because they are read side by side.

        Splits that are more than ``max_drift_us`` ahead of the slowest are not read.
        """
        self.watch = SplitWatch(self.reader, self._clock, self._idle_timeout_ms, max_drift_us)
        return self.watch.watermarks

    @property
    def slowest_us(self) -> int | None:
        """Event time of the slowest split that is to be read; None if drift is not limited.

        A finished reader does not count.
        """
        if self.watch is None or self.reader.finished:
            return None
        return self.watch.slowest_us

    def follow(self, target_us: int | None) -> None:
        """Hold splits that are too far ahead of this event time, the slowest of the job."""
        if self.watch is not None:
            self.watch.target_us = target_us

    def event_time_rose(self) -> bool:
        """Look at the splits; return whether event time rose although no rows came."""
        return self.watch is not None and self.watch.look()

    @property
    def rows_unread(self) -> int:
        """Rows that are left to read in splits whose length is known."""
        return max(self._rows_to_read - self.rows_since_start, 0)

    @property
    def numbers(self) -> SourceNumbers:
        """The numbers of this subtask; of its splits, if they are read side by side."""
        letters = self.gate.totals.letters
        return SourceNumbers(letters=letters) if self.watch is None else self.watch.numbers(letters)

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
        """Whether all rows have been read, and no splits will be added."""
        return not self.grows and self.reader.finished

    def became_idle(self) -> bool:
        """Return True once when no row has come for the idle timeout.

        Splits that are read side by side must all be idle. Without a timeout they are if they
        are known to be empty, or if there are none.
        """
        if self._idle or (self._idle_timeout_ms is None and self.watch is None):
            return False
        if self.watch is not None and self.watch.watermarks.is_held:
            return False
        if self._idle_timeout_ms is None:
            self._idle = True
            return True
        self._idle = self._clock.monotonic_ms() - self._last_row_ms >= self._idle_timeout_ms
        return self._idle

    def snapshot(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        """Pin the current position, and the number of bad rows so far."""
        del checkpoint_id
        position = self.reader.position()
        properties: JsonObject = {**self.properties, **self.gate.totals.as_properties()}
        if self.watch is not None:
            position = self.watch.with_event_times(position)
        return lambda: Snapshot.of([position], properties)

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        """Do nothing: a reader is opened at its position."""
        assert not snapshots


def _known_rows(splits: pa.Table) -> int:
    return sum(rows or 0 for rows in rows_left(splits))
