"""Checkpoints of a job in Spark with one operator that is too slow: aligned and unaligned."""

from queue import SimpleQueue

import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks import dataset
from benchmarks.result import Result, median
from laminar_core.connectors.collect import CollectSink
from laminar_core.connectors.datagen import DatagenSource, EventTime, Sequence, ZipfKey
from laminar_core.operators import agg, windows
from laminar_core.pipeline import (
    CheckpointConfig,
    Pipeline,
    RunConfig,
    UnalignedCheckpointConfig,
)
from laminar_core.runtime.clock import SystemClock
from laminar_core.runtime.events import CheckpointCompleted, JobEvent
from laminar_core.runtime.session import open_session

WORKERS = 2
SLOWNESS = (1, 10, 100)
ROW_US = 1.0
"""What the slow operator needs for a row at a slowness of 1."""
BATCH_ROWS = 8_192
CHECKPOINTS = 5
"""So many count, after a first one that found the queues half empty."""

UNALIGNED_MS = 1_000.0
"""Target: a fraction of a second, however deep the backpressure is."""


def checkpoints() -> list[Result]:
    """Duration of a checkpoint while one operator is 1, 10 and 100 times as slow."""
    spark = open_session(f"local[{WORKERS}]", "benchmark")
    try:
        took = {
            (mode, slowness): _median_ms(spark, mode, slowness)
            for slowness in SLOWNESS
            for mode in ("aligned", "unaligned")
        }
    finally:
        spark.stop()
    results = [
        Result(
            f"checkpoint_{mode}_slow_{slowness}x",
            duration_ms,
            "ms",
            "lower",
            UNALIGNED_MS if mode == "unaligned" else None,
        )
        for (mode, slowness), duration_ms in took.items()
    ]
    flat = took["unaligned", SLOWNESS[-1]] / took["unaligned", SLOWNESS[0]]
    return [*results, Result("unaligned_slow_100x_to_1x", flat, "ratio", "lower", 2)]


def slow_pipeline(row_us: float) -> Pipeline:
    """Endless rows, dealt out to a map that sleeps ``row_us`` a row, then windows per key."""

    def slow(batch: pa.RecordBatch) -> pa.RecordBatch:
        SystemClock().wait_ms(batch.num_rows * row_us / 1000)
        return batch

    fields = {
        "id": Sequence(),
        "key": ZipfKey(1_000, prefix="k-"),
        "ts": EventTime(1_700_000_000_000_000, step_us=1_000),
    }
    p = Pipeline("backpressure")
    rows = p.source("in", DatagenSource(fields, batch_rows=BATCH_ROWS)).watermark("ts")
    return (
        rows.rebalance()
        .map(slow, name="slow")
        .key_by("key")
        .window(windows.tumbling("1 hour"))
        .aggregate("totals", agg.count())
        .sink("out", CollectSink())
    )


def _median_ms(spark: SparkSession, mode: str, slowness: int) -> float:
    events: SimpleQueue[JobEvent] = SimpleQueue()
    unaligned = UnalignedCheckpointConfig(
        enabled=mode == "unaligned", force_unaligned=mode == "unaligned"
    )
    job = slow_pipeline(ROW_US * slowness).start(
        spark,
        checkpoint=CheckpointConfig(
            str(dataset.fresh("store")), interval="500 milliseconds", unaligned=unaligned
        ),
        run=RunConfig(workers=WORKERS),
        listener=events.put,
    )
    try:
        completed = (e for e in iter(events.get, None) if isinstance(e, CheckpointCompleted))
        durations = [next(completed).duration_ms for _ in range(CHECKPOINTS + 1)]
    finally:
        job.cancel()
    return median(durations[1:])
