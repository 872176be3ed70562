"""Watch the splits that a reader reads side by side: which are idle, blocked or done."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from laminar_core.connectors.base import SourceReader, SplitStatus
from laminar_core.host.clock import Clock
from laminar_core.protocol.split_drift import held_splits
from laminar_core.protocol.split_watermarks import SplitWatermarks
from laminar_core.records.source_numbers import SourceNumbers, longest

LOOK_INTERVAL_MS = 200
"""Time between two looks."""


class SplitWatch:
    """The splits of one subtask of a source, with their event time."""

    def __init__(
        self,
        reader: SourceReader,
        clock: Clock,
        idle_timeout_ms: float | None,
        max_drift_us: int | None = None,
    ) -> None:
        self.watermarks = SplitWatermarks()
        self._reader = reader
        self._clock = clock
        self._idle_timeout_ms = idle_timeout_ms
        self._last_rows_ms: dict[int, float] = {}
        """Per split that is not done: when it last had rows, or could not have any."""
        self._max_drift_us = max_drift_us
        self._held: frozenset[int] = frozenset()
        self.target_us: int | None = None
        """Event time of the slowest split of the job, as the coordinator said last."""
        self._next_look_ms = 0.0
        self._statuses: dict[int, SplitStatus] = {}
        """The states that the reader returned at the last look."""
        self.add(reader.position())

    def add(self, splits: pa.Table) -> None:
        """Count the event time of these splits from now on."""
        for split_id, newest_us, done in _rows(splits, "split_id", "newest_us", "done"):
            if not done:
                self._last_rows_ms[split_id] = self._clock.monotonic_ms()
                self.watermarks.added(split_id, newest_us)

    def had_rows(self, split_id: int) -> None:
        """Note that rows of this split were read."""
        self._last_rows_ms[split_id] = self._clock.monotonic_ms()

    @property
    def slowest_us(self) -> int | None:
        """Event time of the slowest split here; None if there is none, or drift is not limited."""
        return None if self._max_drift_us is None else self.watermarks.slowest_us

    def steer(self) -> None:
        """Hold the splits that are too far ahead, and let go of the others; before each poll."""
        if self._max_drift_us is None:
            return
        slowest_us = (self.watermarks.slowest_us, self.target_us)
        held = held_splits(self.watermarks.newest_us(), slowest_us, self._max_drift_us)
        if held != self._held:
            self._reader.hold(held)
            self._held = held
        now_ms = self._clock.monotonic_ms()
        for split_id in held:  # Rows that wait here must not become late: held is not idle.
            self._last_rows_ms[split_id] = now_ms

    def look(self) -> bool:
        """Look at the splits if it is time to; return whether event time rose."""
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._next_look_ms:
            return False
        self._next_look_ms = now_ms + LOOK_INTERVAL_MS
        before_us = self.watermarks.least_us
        empty: set[int] = set()
        position = self._reader.position()
        for split_id, done, rows_read in _rows(position, "split_id", "done", "rows_read"):
            if done and self._last_rows_ms.pop(split_id, None) is not None:
                self.watermarks.done(split_id)
            if not rows_read:
                empty.add(split_id)
        self._statuses = known = {each.split_id: each for each in self._reader.status()}
        for split_id, last_ms in tuple(self._last_rows_ms.items()):
            status = known.get(split_id)
            if status is not None and (status.blocked or not status.caught_up):
                self._last_rows_ms[split_id] = now_ms
                turn = self.watermarks.blocked if status.blocked else self.watermarks.active
                turn(split_id)
            elif self._idle_timeout_ms is not None:
                if now_ms - last_ms >= self._idle_timeout_ms:
                    self.watermarks.idle(split_id)
            elif status is not None and split_id in empty:
                # It never had a row: without this, a partition that is not used would stop event
                # time for ever. Its first row makes it count.
                self.watermarks.idle(split_id)
        return self.watermarks.least_us != before_us

    def numbers(self, letters: int) -> SourceNumbers:
        """Return the numbers of the splits at the last look; ``letters`` is passed on."""
        unknown = SplitStatus(-1)
        open_splits = [self._statuses.get(split_id, unknown) for split_id in self._last_rows_ms]
        known = [each.lag_rows for each in open_splits if each.lag_rows is not None]
        queued = [each.queued_bytes for each in open_splits if each.queued_bytes is not None]
        return SourceNumbers(
            splits=len(self._last_rows_ms),
            splits_idle=self.watermarks.idle_count,
            splits_blocked=sum(bool(each.blocked) for each in self._statuses.values()),
            lag_rows=sum(known) if len(known) == len(open_splits) else None,
            lag_seconds=longest(each.lag_seconds for each in open_splits) if open_splits else 0.0,
            fetch_queue_bytes=sum(queued) if queued and len(queued) == len(open_splits) else None,
            letters=letters,
        )

    def with_event_times(self, position: pa.Table) -> pa.Table:
        """Return the position with the newest event time of each split, as far as it is known."""
        newest = self.watermarks.newest_us()
        times = [newest.get(n, old) for n, old in _rows(position, "split_id", "newest_us")]
        at = position.schema.get_field_index("newest_us")
        return position.set_column(at, "newest_us", pa.array(times, pa.int64()))


def _rows(splits: pa.Table, *columns: str) -> Iterator[tuple[Any, ...]]:
    return zip(*(splits.column(name).to_pylist() for name in columns), strict=True)
