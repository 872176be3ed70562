"""Fired windows per key group, when subtasks with different progress are restored into one.

At an unaligned cut, or beside idle sources, one subtask may have fired windows that another has
not. After a restore with another parallelism a subtask can own keys of both. It continues from the
minimum of their watermarks, or timely rows would be late; but results already emitted for the keys
that were ahead must not be emitted again (PROTOCOL sections 9 and 10: store per key group, combine
by minimum). So until the watermark has caught up, their windows stay silent, and rows only for such
windows are late, as they would have been.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow.compute import call_function

from laminar_core.aggregates.accumulators import ROW_COUNT
from laminar_core.codec.key_groups import key_groups_of
from laminar_core.operators.base import JsonValue, Snapshot
from laminar_core.state.window_layout import window_starts_of

FIRED_AHEAD = "fired_ahead"
"""Name of the snapshot property that holds the progress of ``FiredAhead``."""

_NOTHING = np.iinfo(np.int64).min


class FiredAhead:
    """The progress of firing of each key group of a subtask.

    ``keys``: columns of the state; ``open_us``: from the start of a window until it fires.
    """

    def __init__(self, keys: tuple[str, ...], open_us: int, max_parallelism: int) -> None:
        self._keys = keys
        self._open_us = open_us
        self._fired_us = np.full(max_parallelism, _NOTHING, dtype=np.int64)

    def restore(
        self, snapshots: Sequence[Snapshot], ranges: Sequence[range], owned: range
    ) -> "FiredAhead":
        """Take the progress of old subtasks, and of what was ahead in them, as far as owned."""
        for snapshot, groups in zip(snapshots, ranges, strict=True):
            ahead = snapshot.properties.get(FIRED_AHEAD)
            runs: list[JsonValue] = ahead if isinstance(ahead, list) else []
            whole = [groups.start, groups.stop, snapshot.properties["watermark_us"]]
            for run in [whole, *runs]:
                self._add(run, owned)
        return self

    def is_ahead_of(self, watermark_us: int | None) -> bool:
        """Return whether a key group has fired windows beyond this watermark."""
        return int(self._fired_us.max()) > (_NOTHING if watermark_us is None else watermark_us)

    def in_time(self, rows: pa.Table) -> tuple[pa.Table, int]:
        """Return the rows that an open window contains, and the number of late input rows."""
        unfired = self._unfired(rows)
        if unfired.all():
            return rows, 0
        late = rows.column(ROW_COUNT.name).filter(pa.array(~unfired))
        return rows.filter(pa.array(unfired)), call_function("sum", [late]).as_py()

    def not_again(self, fired: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Yield the firing windows without the rows that were emitted before."""
        return (merged.filter(pa.array(self._unfired(merged))) for merged in fired)

    def properties(self) -> list[JsonValue]:
        """Return runs for a snapshot: [first key group, end (exclusive), watermark], ascending."""
        bounds = (np.flatnonzero(np.diff(self._fired_us)) + 1).tolist()
        runs = zip([0, *bounds], [*bounds, len(self._fired_us)], strict=True)
        return [
            [start, stop, int(self._fired_us[start])]
            for start, stop in runs
            if self._fired_us[start] != _NOTHING
        ]

    def _unfired(self, rows: pa.Table) -> npt.NDArray[np.bool_]:
        batches = rows.combine_chunks().to_batches()
        groups = [key_groups_of(batch, self._keys, len(self._fired_us)) for batch in batches]
        fired_us = self._fired_us[np.concatenate([np.empty(0, np.uint16), *groups])]
        return window_starts_of(rows) + self._open_us > fired_us

    def _add(self, run: JsonValue, owned: range) -> None:
        assert isinstance(run, list), run
        start, stop, watermark_us = run
        assert isinstance(start, int), run
        assert isinstance(stop, int), run
        if isinstance(watermark_us, int):
            mine = self._fired_us[max(start, owned.start) : min(stop, owned.stop)]
            np.maximum(mine, watermark_us, out=mine)
