"""Event time per key group, when subtasks with different progress are restored into one.

At an unaligned cut, or beside idle sources, one subtask may have come further in event time than
another. After a restore with another parallelism a subtask can own keys of both. It continues from
the minimum of their watermarks, or timely rows would be late. But what the one that was ahead has
emitted must not be emitted again, and its late rows must stay late: state that they would have met
may be pruned (PROTOCOL sections 9 and 10: store per key group, combine by minimum). So until the
watermark has caught up, such key groups have an event time of their own.

An operator that acts on event time keeps its watermark in the snapshot property ``watermark_us``,
its key groups in ``key_groups``, and ``Progress.properties`` in ``FIRED_AHEAD``, while there is
any.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from laminar_core.codec.key_groups import key_groups_of
from laminar_core.operators.base import JsonObject, JsonValue, Snapshot

WATERMARK = "watermark_us"
"""Name of the snapshot property that holds a subtask's watermark; null: unknown."""

FIRED_AHEAD = "fired_ahead"
"""Name of the snapshot property that holds the progress; it was first about windows that fired."""

TimesUs = npt.NDArray[np.int64]
_NOTHING = np.iinfo(np.int64).min


class Progress:
    """The event time that each key group of a subtask had reached before the restore."""

    def __init__(self, max_parallelism: int) -> None:
        self._reached_us = np.full(max_parallelism, _NOTHING, dtype=np.int64)

    @classmethod
    def restored(
        cls, snapshots: Sequence[Snapshot], ranges: Sequence[range], owned: range, key_groups: int
    ) -> "Progress | None":
        """Return what was ahead of the least watermark of these snapshots; None: nothing was.

        ``ranges``: the key groups of each snapshot; ``key_groups``: the number of all.
        """
        progress = cls(key_groups).restore(snapshots, ranges, owned)
        watermark_us = least_watermark_us(snapshots)
        return progress if progress.is_ahead_of(watermark_us) else None

    def restore(
        self, snapshots: Sequence[Snapshot], ranges: Sequence[range], owned: range
    ) -> "Progress":
        """Take the progress of old subtasks, and of what was ahead in them, as far as owned."""
        for snapshot, groups in zip(snapshots, ranges, strict=True):
            ahead = snapshot.properties.get(FIRED_AHEAD)
            runs: list[JsonValue] = ahead if isinstance(ahead, list) else []
            whole = [groups.start, groups.stop, snapshot.properties[WATERMARK]]
            for run in [whole, *runs]:
                self._add(run, owned)
        return self

    def is_ahead_of(self, watermark_us: int | None) -> bool:
        """Return whether a key group has come further than this watermark.

        Once it has not, the watermark alone decides, and the operator can drop this object.
        """
        return int(self._reached_us.max()) > (_NOTHING if watermark_us is None else watermark_us)

    def is_late(
        self, rows: pa.Table, keys: Sequence[str], times_us: TimesUs
    ) -> npt.NDArray[np.bool_]:
        """Return, per row, whether its time was past in the subtask that its key comes from.

        ``keys``: the columns that rows were exchanged by. A row at the watermark is in time. Rows
        behind the operator's present watermark are its own affair.
        """
        batches = rows.select(list(keys)).combine_chunks().to_batches()
        groups = [key_groups_of(batch, keys, len(self._reached_us)) for batch in batches]
        return times_us < self._reached_us[np.concatenate([np.empty(0, np.uint16), *groups])]

    def properties(self) -> list[JsonValue]:
        """Return runs for a snapshot: [first key group, end (exclusive), watermark], ascending."""
        bounds = (np.flatnonzero(np.diff(self._reached_us)) + 1).tolist()
        runs = zip([0, *bounds], [*bounds, len(self._reached_us)], strict=True)
        return [
            [start, stop, int(self._reached_us[start])]
            for start, stop in runs
            if self._reached_us[start] != _NOTHING
        ]

    def _add(self, run: JsonValue, owned: range) -> None:
        assert isinstance(run, list), run
        start, stop, watermark_us = run
        assert isinstance(start, int), run
        assert isinstance(stop, int), run
        if isinstance(watermark_us, int):
            mine = self._reached_us[max(start, owned.start) : min(stop, owned.stop)]
            np.maximum(mine, watermark_us, out=mine)


def least_watermark_us(snapshots: Sequence[Snapshot]) -> int | None:
    """Return the watermark to continue from: unknown as long as one of them is."""
    times_us = [snapshot.properties[WATERMARK] for snapshot in snapshots]
    known = [time_us for time_us in times_us if isinstance(time_us, int)]
    return min(known, default=None) if len(known) == len(times_us) else None


def progress_properties(watermark_us: int | None, progress: Progress | None) -> JsonObject:
    """Return the properties that ``Progress.restored`` and ``least_watermark_us`` read."""
    properties: JsonObject = {WATERMARK: watermark_us}
    if progress is not None:
        properties[FIRED_AHEAD] = progress.properties()
    return properties
