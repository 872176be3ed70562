"""Jobs with process functions: wrong if a timer or a value is lost, repeated, or lives too long."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

import numpy as np
import pyarrow as pa

from laminar_core.operators.process.handles import Timers
from laminar_core.operators.process.keys import Keys
from laminar_core.operators.process.subtask import KeyedState
from laminar_core.operators.process.values import ValueState
from laminar_core.pipeline import Pipeline
from laminar_core.pipeline.stream import Stream
from laminar_core.testing.jobs import (
    DELAY,
    SECOND_US,
    WINDOW_US,
    BuildJob,
    Burden,
    Job,
    Row,
    doubled_windows,
    payments,
    rows_of,
    totals,
    windowed,
    with_ledgers,
)
from laminar_core.testing.memory_source import MemorySource

_TIME = pa.timestamp("us", tz="UTC")
_NEVER_US = 3 * SECOND_US
"""After the end of a window: a timer there is set, and deleted when the window ends."""


class WindowsByHand:
    """Windows, by a timer at the end of each, with the number of windows in a row that had rows.

    That number is a value whose time to live is longer than one window and shorter than two. What
    is open is a list, and is removed when it is empty.
    """

    state: Mapping[str, ValueState] = {
        "open": ValueState(
            pa.list_(pa.struct([("start", pa.int64()), ("n", pa.int64()), ("sum", pa.int64())]))
        ),
        "streak": ValueState(pa.int64(), ttl="15 seconds"),
    }
    schema: pa.Schema = pa.schema(
        [
            ("key", pa.string()),
            ("start", pa.int64()),
            ("count", pa.int64()),
            ("total", pa.int64()),
            ("streak", pa.int64()),
            ("ts", _TIME),
        ]
    )

    def process(self, rows: pa.RecordBatch, keys: Keys, state: KeyedState, timers: Timers) -> None:
        """Add the rows to what is open."""
        for key, mine in keys.each(rows):
            before: list[Row] = state["open"][key] or []
            found: dict[int, Row] = {one["start"]: one for one in before}
            for row in rows_of([pa.Table.from_batches([mine])]):
                time_us = int(row["ts"].timestamp() * SECOND_US)
                start = time_us - time_us % WINDOW_US
                one = found.setdefault(start, {"start": start, "n": 0, "sum": 0})
                one["n"] += 1
                one["sum"] += row["value"]
            state["open"][key] = list(found.values())
            for start in found:
                timers.set(key, start + WINDOW_US)
                timers.set(key, start + WINDOW_US + _NEVER_US)

    def on_timer(
        self, due: pa.RecordBatch, keys: Keys, state: KeyedState, timers: Timers
    ) -> Iterator[pa.RecordBatch]:
        """Emit the windows that end, and forget them."""
        del due
        timers.delete(keys, keys.times_us + _NEVER_US)
        streaks = state["streak"].get(keys).fill_null(0).to_numpy() + 1
        state["streak"].put(keys, streaks)
        ended: list[Row] = []
        for n, one_open in enumerate(state["open"].get(keys).to_pylist()):
            key, end_us = keys.take([n]), int(keys.times_us[n])
            (one,) = [w for w in one_open if w["start"] + WINDOW_US == end_us]
            state["open"][key] = [w for w in one_open if w is not one] or None
            (name,) = key.values
            said = {"key": name, "start": one["start"], "count": one["n"], "total": one["sum"]}
            ended.append({**said, "streak": int(streaks[n]), "ts": end_us - 1})
        yield pa.RecordBatch.from_pylist(ended, schema=self.schema)


class HoldByClock:
    """Holds ids until a short time has passed by the clock, and emits them then."""

    state: Mapping[str, ValueState] = {"held": ValueState(pa.list_(pa.int64()))}
    schema: pa.Schema = pa.schema([("key", pa.string()), ("id", pa.int64())])

    def process(self, rows: pa.RecordBatch, keys: Keys, state: KeyedState, timers: Timers) -> None:
        """Hold the rows."""
        for key, mine in keys.each(rows):
            state["held"][key] = [*(state["held"][key] or []), *mine.column("id").to_pylist()]
        timers.set_clock(keys, timers.now_us + _HELD_US)

    def on_clock_timer(
        self, due: pa.RecordBatch, keys: Keys, state: KeyedState, timers: Timers
    ) -> pa.RecordBatch:
        """Emit what is held."""
        del due, timers
        held: list[list[int] | None] = state["held"].get(keys).to_pylist()
        state["held"].put(keys, [None] * len(keys))
        lengths = [len(ids or []) for ids in held]
        names = keys.column("key").take(pa.array(np.repeat(np.arange(len(keys)), lengths)))
        ids = pa.array([one for ids in held for one in ids or []], pa.int64())
        return pa.record_batch([names, ids], schema=self.schema)


_HELD_US = 7_000
PACE = 60.0
"""Rows per second of the sources, so that many checkpoints lie between two timers."""


def process_job(parallelism: int) -> Job:
    """Return a job whose windows are a process function, and windows behind it."""
    del parallelism
    tables, burden = payments(), Burden()
    p = Pipeline("process")
    rows = p.source("in", MemorySource(tables), rows_per_second=PACE).watermark(
        "ts", max_delay=DELAY
    )
    rows = rows.rebalance().map(burden.carry, name="slow")
    ended = rows.key_by("key").process("by-hand", WindowsByHand())
    return with_ledgers(p, _checked(ended, rows_of(tables)), burden)


def clock_timers_job(parallelism: int) -> Job:
    """Return a job that holds rows for some time of the clock."""
    del parallelism
    tables, burden = payments(), Burden()
    p = Pipeline("clock-timers")
    rows = p.source("in", MemorySource(tables, gap_every=5), rows_per_second=PACE)
    rows = rows.map(burden.carry, name="slow")
    held = rows.key_by("key").process("hold", HoldByClock())
    expected = [{"key": row["key"], "id": row["id"]} for row in rows_of(tables)]
    return with_ledgers(p, {"out": (held.rebalance(), expected)}, burden)


def _checked(ended: Stream, rows: Sequence[Row]) -> dict[str, tuple[Stream, list[Row]]]:
    """Return the outputs: what the process emits, and how many of that are in longer windows."""
    narrow = totals(rows)
    found = streaks(narrow)
    again = windowed(ended.select("key", "ts", "total").map(_valued, name="valued"), "again", LONG)
    wide = doubled_windows(narrow)
    counts = Counter((w["key"], w["start"] - w["start"] % (2 * WINDOW_US)) for w in narrow)
    expected = [{**w, "count": counts[w["key"], w["start"]]} for w in wide]
    return {"out": (ended.select(*found[0]), found), "windows": (again, expected)}


LONG = "20 seconds"


def _valued(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.rename_columns(["key", "ts", "value"])


def streaks(windows: Sequence[Row]) -> list[Row]:
    """Add to each window the number of windows of its key in a row that end with it."""
    found: list[Row] = []
    ordered = sorted(windows, key=lambda window: (window["key"], window["start"]))
    for _, mine in groupby(ordered, key=lambda window: window["key"]):
        streak, expected_us = 0, None
        for window in mine:
            streak = streak + 1 if window["start"] == expected_us else 1
            expected_us = window["start"] + WINDOW_US
            found.append({**window, "streak": streak})
    return found


PROCESS_JOBS: dict[str, BuildJob] = {"process": process_job, "clock-timers": clock_timers_job}
