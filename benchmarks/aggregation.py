"""Cost of aggregates relative to the cheapest, and of writing and reading their state.

Every figure that matters is a ratio of two medians of one run, so that a busy machine spoils both.
"""

import hashlib
import math
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.result import Result, median_seconds
from laminar_core.aggregates.accumulators import Aggregate, accumulate, accumulators_of, merge
from laminar_core.codec.arrow import encode_table
from laminar_core.operators import agg
from laminar_core.operators.queries import AggregateQuery
from laminar_core.operators.stream_executor import StreamExecutor
from laminar_core.state.keyed_rows import KeyedRows, RowLayout

ROWS = 131_072
GROUPS = 1_000
STATE_KEYS = 200_000
BATCH_KEYS = 20_000


class _SumOfLogs:
    """A user's aggregate: one call of numpy per group."""

    name, state_type, result_type = "sum_of_logs", pa.float64(), pa.float64()

    def init(self) -> float:
        return 0.0

    def accumulate(self, state: float, values: pa.Array) -> float:
        return state + float(np.log(values.to_numpy()).sum())

    def merge(self, left: float, right: float) -> float:
        return left + right

    def finish(self, state: float) -> float:
        return math.exp(state)


_FUNCTIONS: dict[str, Aggregate] = {
    "min": agg.min("v"),
    "avg": agg.avg("v"),
    "variance": agg.var_samp("v"),
    "first": agg.first("v", by="t"),
    "count_distinct": agg.count_distinct("v"),
    "approx_count_distinct": agg.approx_count_distinct("v"),
    "percentile": agg.percentile("v", 0.5),
    "approx_percentile": agg.approx_percentile("v", 0.5),
    "user": agg.user(_SumOfLogs(), "v"),
}


def bench_accumulators() -> list[Result]:
    """Rows into state, and two states into one: each function, as a multiple of count and sum."""
    rows = _rows()
    base = _seconds(rows, agg.sum("v"))
    results = [Result("accumulate_count_and_sum", ROWS / base[0], "rows/s", "higher")]
    for name, aggregate in _FUNCTIONS.items():
        update, merging = _seconds(rows, aggregate)
        results.append(Result(f"accumulate_{name}", update / base[0], "x sum", "lower"))
        results.append(Result(f"merge_{name}", merging / update, "x its update", "lower"))
    return results


def _seconds(rows: pa.Table, aggregate: Aggregate) -> tuple[float, float]:
    needed = accumulators_of([aggregate])
    keys = {"k": rows.column("k")}
    update = median_seconds(lambda: accumulate(keys, rows, needed), 7)
    state = accumulate(keys, rows, needed)
    twice = pa.concat_tables([state, state])
    return update, median_seconds(lambda: merge(twice, ["k"], needed), 7)


def bench_running_totals() -> list[Result]:
    """Batches into running totals, against merging the batch alone, as windows do it."""
    needed = accumulators_of([agg.sum("v"), agg.max("v")])
    random = np.random.default_rng(7)
    everything = _partial(np.arange(STATE_KEYS), needed)
    totals = KeyedRows(RowLayout(("k",), needed, everything.schema))
    totals.update(everything)
    keys = np.unique(random.integers(0, STATE_KEYS, BATCH_KEYS))
    batch = _partial(keys, needed)
    update = median_seconds(lambda: totals.update(batch), 15)
    alone = median_seconds(lambda: merge(batch, ["k"], needed), 15)
    pause = median_seconds(totals.pin, 15)
    return [
        Result("running_update", len(keys) / update, "keys/s", "higher"),
        Result("running_update_ratio", update / alone, "x merge", "lower"),
        Result("running_pin_200k_keys", 1e3 * pause, "ms", "lower"),
    ]


def bench_executor_state() -> list[Result]:
    """checkpoint_state and restore_state, against encoding the same table and its digest alone."""
    schema = pa.schema([("k", pa.string()), ("v", pa.float64()), ("t", pa.int64())])
    query = AggregateQuery("q", ("k",), (agg.avg("v"), agg.stddev_samp("v"), agg.last("v", by="t")))
    executor = StreamExecutor([query], schema)
    [batch] = _table(np.arange(STATE_KEYS)).combine_chunks().to_batches()
    executor.process(batch)
    state = executor.checkpoint_state()
    assert state is not None
    write = median_seconds(executor.checkpoint_state, 5)
    pin = median_seconds(executor.pin_state, 15)

    def restore() -> None:
        StreamExecutor([query], schema).restore_state(state)

    read = median_seconds(restore, 5)
    needed = accumulators_of(query.aggregates)
    table = accumulate({"k": pa.chunked_array([batch["k"]])}, pa.table(batch), needed)
    bare = median_seconds(lambda: hashlib.sha256(encode_table(table)), 5)
    size = len(state) / 1e6
    return [
        Result("checkpoint_state_pause", 1e3 * pin, "ms", "lower", 50),
        Result("checkpoint_state", size / write, "MB/s", "higher"),
        Result("checkpoint_state_groups", STATE_KEYS / write, "groups/s", "higher"),
        Result("checkpoint_state_ratio", write / bare, "x encoding", "lower"),
        Result("restore_state", size / read, "MB/s", "higher"),
        Result("restore_state_groups", STATE_KEYS / read, "groups/s", "higher"),
    ]


ALL = (bench_accumulators, bench_running_totals, bench_executor_state)


def _rows() -> pa.Table:
    random = np.random.default_rng(7)
    return _table(random.integers(0, GROUPS, ROWS))


def _table(keys: np.ndarray) -> pa.Table:
    random = np.random.default_rng(7)
    return pa.table(
        {
            "k": pa.array([f"merchant-{key:07d}" for key in keys]),
            "v": random.integers(1, 1_000, len(keys)).astype(np.float64),
            "t": random.integers(0, 10**9, len(keys)),
        }
    )


def _partial(keys: np.ndarray, needed: tuple[Any, ...]) -> pa.Table:
    table = _table(keys)
    return accumulate({"k": table.column("k")}, table, needed)
