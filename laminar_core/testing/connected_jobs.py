"""A job with a process function of two inputs: wrong if one input's rows miss the other's state."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from laminar_core.aggregates.row_groups import Integers
from laminar_core.operators.base import Side
from laminar_core.operators.process.declared import State
from laminar_core.operators.process.handles import Timers
from laminar_core.operators.process.keys import Keys
from laminar_core.operators.process.lists import ListState
from laminar_core.operators.process.maps import MapState
from laminar_core.operators.process.subtask import KeyedState
from laminar_core.operators.process.values import ValueState
from laminar_core.pipeline import Pipeline
from laminar_core.testing.input_jobs import paired, read_refunds, refunds
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
    totals,
    windowed,
    with_ledgers,
)
from laminar_core.testing.memory_source import MemorySource
from laminar_core.testing.process_jobs import PACE, streaks

HELD_US = 7_000


class PairWindows:
    """Pairs payments (``id``, ``key``, ``ts``) with refunds (``refund``, ``shop``, ``at``).

    They are of one key and one window, and are emitted when it ends, with the number of windows of
    the key in a row that had rows of either. Payments are a list, and refunds a map. Each refund
    goes to the side output as well, some time of the clock after it has come.
    """

    state: Mapping[str, State] = {
        "payments": ListState(pa.struct([("start", pa.int64()), ("id", pa.int64())])),
        "refunds": MapState(pa.int64(), pa.int64()),
        "held": ListState(pa.int64()),
        "streak": ValueState(pa.int64(), ttl="15 seconds"),
    }
    schema: pa.Schema = pa.schema(
        [
            ("key", pa.string()),
            ("ts", pa.timestamp("us", tz="UTC")),
            ("id", pa.int64()),
            ("value", pa.int64()),
            ("streak", pa.int64()),
        ]
    )
    sides: Mapping[str, pa.Schema] = {
        "noted": pa.schema([("key", pa.string()), ("refund", pa.int64())])
    }

    def process_left(
        self, rows: pa.RecordBatch, keys: Keys, state: KeyedState, timers: Timers
    ) -> None:
        """Keep payments."""
        starts = _starts(rows, "ts")
        columns = [pa.array(starts), rows.column("id")]
        state["payments"].append(keys, pa.StructArray.from_arrays(columns, ["start", "id"]))
        _set_timers(keys, starts, timers)

    def process_right(
        self, rows: pa.RecordBatch, keys: Keys, state: KeyedState, timers: Timers
    ) -> None:
        """Keep refunds."""
        starts = _starts(rows, "at")
        state["refunds"].put(keys, rows.column("refund"), starts)
        state["held"].append(keys, rows.column("refund"))
        _set_timers(keys, starts, timers)
        timers.set_clock(keys, timers.now_us + HELD_US)

    def on_timer(
        self, due: pa.RecordBatch, keys: Keys, state: KeyedState, timers: Timers
    ) -> Iterator[pa.RecordBatch]:
        """Emit the pairs of the windows that end, and forget their rows."""
        del due, timers
        streaks = state["streak"].get(keys).fill_null(0).to_numpy() + 1
        state["streak"].put(keys, streaks)
        pairs: list[Row] = []
        for n, end_us in enumerate(keys.times_us.tolist()):
            key, start = keys.take([n]), end_us - WINDOW_US
            kept: list[Row] = state["payments"][key]
            ids = [row["id"] for row in kept if row["start"] == start]
            state["payments"][key] = [row for row in kept if row["start"] != start]
            others: dict[int, int] = state["refunds"][key]
            met = [refund for refund, of in others.items() if of == start]
            state["refunds"].remove(key, met)
            said = {"key": key.values[0], "ts": end_us - 1, "streak": int(streaks[n])}
            pairs += [{**said, "id": one, "value": refund} for one in ids for refund in met]
        yield pa.RecordBatch.from_pylist(pairs, schema=self.schema)

    def on_clock_timer(
        self, due: pa.RecordBatch, keys: Keys, state: KeyedState, timers: Timers
    ) -> Side:
        """Give back the refunds that are held."""
        del due, timers
        held = state["held"].get(keys)
        state["held"].clear(keys)
        names = keys.column("key").take(held.value_parent_indices())
        rows = pa.record_batch([names, held.flatten()], schema=self.sides["noted"])
        return Side("noted", rows)


def _starts(rows: pa.RecordBatch, time: str) -> Integers:
    times_us = rows.column(time).cast(pa.int64()).to_numpy()
    return times_us - times_us % WINDOW_US


def _set_timers(keys: Keys, starts: Integers, timers: Timers) -> None:
    for start in np.unique(starts).tolist():
        timers.set(keys.take(np.unique(keys.of_row[starts == start])), start + WINDOW_US)


def connected_job(parallelism: int) -> Job:
    """Return a job that pairs a slow stream with a fast one, and windows behind it."""
    del parallelism
    left, right, burden = payments(), refunds(), Burden()
    p = Pipeline("connected")
    slow = p.source("payments", MemorySource(left), rows_per_second=PACE / 2)
    slow = slow.watermark("ts", max_delay=DELAY).rebalance().map(burden.carry, name="slow")
    other = read_refunds(p, right).map(_plain_keys, name="plain")
    met = slow.key_by("key").connect(other.key_by("shop"))
    pairs = met.process("pair", PairWindows())
    expected = pairs_with_streaks(rows_of(left), rows_of(right))
    noted = [{"key": row["shop"], "refund": row["refund"]} for row in rows_of(right)]
    outputs = {
        "out": (pairs.rebalance(), expected),
        "windows": (windowed(pairs.select("key", "ts", "value")), totals(expected)),
        "noted": (pairs.side("noted"), noted),
    }
    return with_ledgers(p, outputs, burden)


def _plain_keys(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = {name: batch.column(name) for name in batch.schema.names}
    return pa.record_batch({**columns, "shop": columns["shop"].cast(pa.string())})


def pairs_with_streaks(left: Sequence[Row], right: Sequence[Row]) -> list[Row]:
    """Return all pairs of one key and one window, with the windows in a row that had rows."""
    rows = [{"key": row["key"], "ts": row["ts"], "value": 0} for row in left]
    rows += [{"key": row["shop"], "ts": row["at"], "value": 0} for row in right]
    ends = {(w["key"], w["start"] + WINDOW_US): w["streak"] for w in streaks(totals(rows))}

    def end_us(pair: Row) -> int:
        return round(pair["ts"].timestamp() * SECOND_US) + 1

    return [{**pair, "streak": ends[pair["key"], end_us(pair)]} for pair in paired(left, right)]


CONNECTED_JOBS: dict[str, BuildJob] = {"connected": connected_job}
