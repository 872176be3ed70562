"""Event time in a join: what is late, also after a restore with other workers."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from laminar_core.operators.base import JsonObject, Snapshot, SubtaskContext
from laminar_core.operators.joins.side import EventRows
from laminar_core.operators.keyed import (
    key_group_properties,
    number,
    owned_key_groups,
    restored_key_groups,
)
from laminar_core.operators.progress import Progress, least_watermark_us, progress_properties
from laminar_core.protocol.types import WATERMARK_MIN_US


class JoinProgress:
    """The watermark of a join, of all its inputs together, and the late rows it has dropped.

    ``lag_us``: how far the time columns may lag behind the watermark of the stream.
    The watermark here is less by that.
    """

    def __init__(self, context: SubtaskContext, lag_us: int) -> None:
        self.watermark_us: int | None = None
        self.late_row_count = 0
        self.expired_row_count = 0
        """Number of rows given up so far though a later row could have met them."""
        self._context = context
        self._lag_us = lag_us
        self._ahead: Progress | None = None
        """After a restore with other workers, until the watermark has caught up."""

    def in_time(self, events: EventRows, keys: Sequence[str]) -> EventRows:
        """Return the rows that are not late; the others are counted."""
        return self.parted(events, keys)[0]

    def parted(self, events: EventRows, keys: Sequence[str]) -> tuple[EventRows, pa.Table]:
        """Return the rows that are not late, and those that are, which are counted."""
        late = self.are_late(events, keys)
        if not late.any():
            return events, events.rows.slice(0, 0)
        self.late_row_count += int(np.count_nonzero(late))
        return events.select(~late), events.rows.filter(pa.array(late))

    def are_late(self, events: EventRows, keys: Sequence[str]) -> np.ndarray:
        """Return which rows are late."""
        late = np.zeros(len(events.times_us), np.bool_)
        if self.watermark_us is not None:
            late |= events.times_us < self.watermark_us
        if self._ahead is not None:
            late |= self._ahead.is_late(events.rows, keys, events.times_us)
        return late

    def of_times(self, watermark_us: int) -> int:
        """Return what a watermark of the stream means for the time columns."""
        return max(watermark_us - self._lag_us, WATERMARK_MIN_US)

    def advance(self, watermark_us: int) -> int | None:
        """Advance to a watermark of the stream; return the newest time that has passed.

        None: time has not advanced.
        """
        reached_us = self.of_times(watermark_us)
        if self.watermark_us is not None and reached_us <= self.watermark_us:
            return None
        self.watermark_us = reached_us
        if self._ahead is not None and not self._ahead.is_ahead_of(reached_us):
            self._ahead = None
        return self.passed_us

    @property
    def passed_us(self) -> int | None:
        """The newest time that has passed, so that its rows are late; None: there is none."""
        reached_us = self.watermark_us
        return None if reached_us in (None, WATERMARK_MIN_US) else reached_us - 1

    def properties(self) -> JsonObject:
        """Return what ``restore`` reads, for a snapshot."""
        expired = {"expired_row_count": self.expired_row_count} if self.expired_row_count else {}
        return {
            **key_group_properties(self._context),
            **progress_properties(self.watermark_us, self._ahead),
            "late_row_count": self.late_row_count,
            **expired,
        }

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        """Continue from the least watermark; what was further keeps what it had reached.

        A count of rows goes to the subtask that owns the first key group of the old one.
        """
        ranges = restored_key_groups(snapshots, self._context)
        owned = owned_key_groups(self._context)
        self.watermark_us = least_watermark_us(snapshots)
        self._ahead = Progress.restored(snapshots, ranges, owned, self._context.max_parallelism)
        for snapshot, groups in zip(snapshots, ranges, strict=True):
            if groups.start in owned:
                self.late_row_count += number(snapshot.properties["late_row_count"])
                self.expired_row_count += number(snapshot.properties.get("expired_row_count", 0))
