"""A job whose windows are lists and maps: wrong if an entry is lost, repeated, or out of order."""

from collections.abc import Iterator, Mapping
from itertools import groupby

import numpy as np
import pyarrow as pa

from laminar_core.operators.base import Side
from laminar_core.operators.process.declared import State
from laminar_core.operators.process.handles import Timers
from laminar_core.operators.process.keys import Keys
from laminar_core.operators.process.lists import ListState
from laminar_core.operators.process.maps import MapState
from laminar_core.operators.process.subtask import KeyedState
from laminar_core.pipeline import Pipeline
from laminar_core.testing.jobs import (
    DELAY,
    SECOND_US,
    WINDOW_US,
    BuildJob,
    Burden,
    Job,
    Row,
    payments,
    rows_of,
    with_ledgers,
)
from laminar_core.testing.memory_source import MemorySource
from laminar_core.testing.process_jobs import PACE

LARGE = 2
"""Windows with so many rows go to a side output as well."""


class WindowsInLists:
    """Keeps the ids of a key in a list, and the sum of each of its windows in a map."""

    state: Mapping[str, State] = {
        "rows": ListState(pa.struct([("start", pa.int64()), ("id", pa.int64())])),
        "sums": MapState(pa.int64(), pa.int64(), ttl="1 minute"),
    }
    schema: pa.Schema = pa.schema(
        [("key", pa.string()), ("start", pa.int64()), ("ids", pa.int64()), ("total", pa.int64())]
    )
    sides: Mapping[str, pa.Schema] = {"large": schema}

    def process(self, rows: pa.RecordBatch, keys: Keys, state: KeyedState, timers: Timers) -> None:
        """Add the rows."""
        times_us = rows.column("ts").cast(pa.int64()).to_numpy()
        starts = times_us - times_us % WINDOW_US
        given = pa.StructArray.from_arrays([pa.array(starts), rows.column("id")], ["start", "id"])
        state["rows"].append(keys, given)
        for key, mine in keys.each(rows):
            for start, value in _starts_and_values(mine):
                (before,) = state["sums"].get(key, [start]).to_pylist()
                state["sums"].put(key, [start], [(before or 0) + value])
                timers.set(key, start + WINDOW_US)

    def on_timer(
        self, due: pa.RecordBatch, keys: Keys, state: KeyedState, timers: Timers
    ) -> Iterator[pa.RecordBatch | Side]:
        """Emit the windows that end, and forget them."""
        del due, timers
        starts = pa.array(keys.times_us - WINDOW_US)
        totals = state["sums"].get(keys, starts)
        state["sums"].remove(keys, starts)
        held: list[list[Row]] = state["rows"].get(keys).to_pylist()
        ended = [
            [row["id"] for row in rows if row["start"] == start]
            for rows, start in zip(held, starts.to_pylist(), strict=True)
        ]
        state["rows"].put(
            keys,
            [
                [row for row in rows if row["start"] != start]
                for rows, start in zip(held, starts.to_pylist(), strict=True)
            ],
        )
        columns = [keys.column("key"), starts, pa.array([sum(ids) for ids in ended]), totals]
        emitted = pa.record_batch(columns, schema=self.schema)
        yield emitted
        is_large = np.array([len(ids) for ids in ended]) >= LARGE
        yield Side("large", emitted.filter(pa.array(is_large)))


def _starts_and_values(rows: pa.RecordBatch) -> Iterator[tuple[int, int]]:
    for row in rows_of([pa.Table.from_batches([rows])]):
        time_us = int(row["ts"].timestamp() * SECOND_US)
        yield time_us - time_us % WINDOW_US, row["value"]


def kept_state_job(parallelism: int) -> Job:
    """Return a job with lists, maps and a side output."""
    del parallelism
    tables, burden = payments(), Burden()
    p = Pipeline("kept-state")
    source = p.source("in", MemorySource(tables), rows_per_second=PACE)
    rows = source.watermark("ts", max_delay=DELAY).rebalance().map(burden.carry, name="slow")
    ended = rows.key_by("key").process("in-lists", WindowsInLists())
    expected = list(windows_with_ids(rows_of(tables)))
    large = [row for row, count in expected if count >= LARGE]
    outputs = {
        "out": (ended.rebalance(), [row for row, _ in expected]),
        "large": (ended.side("large").rebalance(), large),
    }
    return with_ledgers(p, outputs, burden)


def windows_with_ids(rows: list[Row]) -> Iterator[tuple[Row, int]]:
    """Yield each window of a key, with the sum of its ids, and its number of rows."""

    def place(row: Row) -> tuple[str, int]:
        time_us = int(row["ts"].timestamp() * SECOND_US)
        return row["key"], time_us - time_us % WINDOW_US

    for (key, start), mine in groupby(sorted(rows, key=place), key=place):
        found = list(mine)
        ids, total = sum(row["id"] for row in found), sum(row["value"] for row in found)
        yield {"key": key, "start": start, "ids": ids, "total": total}, len(found)


KEPT_STATE_JOBS: dict[str, BuildJob] = {"kept-state": kept_state_job}
