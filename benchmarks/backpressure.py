"""Checkpoints of a job in Spark with one operator that is too slow: aligned and unaligned."""

import os
import signal
from queue import SimpleQueue
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks import dataset
from benchmarks.result import Result, median
from laminar_core.connectors.collect import CollectSink
from laminar_core.connectors.datagen import DatagenSource, EventTime, Sequence, ZipfKey
from laminar_core.driver.events import (
    CheckpointCompleted,
    DataFlowing,
    JobEvent,
    WorkersRunning,
)
from laminar_core.driver.restart import FixedDelay
from laminar_core.host.clock import SystemClock
from laminar_core.operators import agg, windows
from laminar_core.pipeline import (
    CheckpointConfig,
    Pipeline,
    RunConfig,
    UnalignedCheckpointConfig,
)
from laminar_core.pipeline.job import StreamingJob
from laminar_core.spark.session import open_session

WORKERS = 2
SLOWNESS = (1, 10, 100)
ROW_US = 1.0
"""Time of the slow operator per row at a slowness of 1."""
BATCH_ROWS = 8_192
SPLITS = 8
INTERVAL = "500 milliseconds"
STORE = dataset.ROOT / "store"
CHECKPOINTS = 5
"""Number of measured checkpoints, after a first one with half-empty queues."""
UNALIGNED_CHECKPOINTS = 30
"""Number of those that overtake: they are short, and the longest of them counts."""

RECOVERIES = 7
RECOVERY_SLOWNESS = 10
CLOCK = SystemClock()
E = TypeVar("E", WorkersRunning, CheckpointCompleted, DataFlowing)

UNALIGNED_MS = 1_000.0
"""Target: a fraction of a second, however deep the backpressure is."""


def checkpoints() -> list[Result]:
    """Duration of a checkpoint while one operator is 1, 10 and 100 times as slow."""
    spark = open_session(f"local[{WORKERS}]", "benchmark")
    try:
        took = {
            (mode, slowness): _durations_ms(spark, mode, slowness)
            for slowness in SLOWNESS
            for mode in ("aligned", "unaligned")
        }
    finally:
        spark.stop()
    results = [
        Result.of_rounds(
            f"checkpoint_{mode}_slow_{slowness}x",
            durations_ms,
            "ms",
            "lower",
            UNALIGNED_MS if mode == "unaligned" else None,
        )
        for (mode, slowness), durations_ms in took.items()
    ]
    flat = median(took["unaligned", SLOWNESS[-1]]) / median(took["unaligned", SLOWNESS[0]])
    return [*results, Result("unaligned_slow_100x_to_1x", flat, "ratio", "lower", 2)]


def recovery() -> list[Result]:
    """From SIGKILL of a worker until rows are processed again, with rows in flight and without."""
    spark = open_session(f"local[{WORKERS}]", "benchmark")
    try:
        rounds = [
            (_recovery_s(spark, "aligned"), _recovery_s(spark, "unaligned"))
            for _ in range(RECOVERIES)
        ]
    finally:
        spark.stop()
    aligned, unaligned = ([r[n] for r in rounds] for n in range(2))
    return [
        Result.of_rounds("recovery_without_inflight", aligned, "s", "lower"),
        Result.of_rounds("recovery_with_inflight", unaligned, "s", "lower"),
        Result.of_rounds(
            "recovery_with_inflight_to_without",
            [with_it / without for without, with_it in rounds],
            "ratio",
            "lower",
            1.1,
        ),
    ]


def _recovery_s(spark: SparkSession, mode: str) -> float:
    """Kill a worker after a checkpoint; in unaligned mode it holds full queues."""
    events: SimpleQueue[JobEvent] = SimpleQueue()
    job = start(spark, slow_pipeline(ROW_US * RECOVERY_SLOWNESS), mode, WORKERS, events)
    try:
        pids = next_event(events, WorkersRunning).pids
        for _ in range(CHECKPOINTS):
            next_event(events, CheckpointCompleted)
        killed_ms = CLOCK.now_ms()
        os.kill(pids[0], signal.SIGKILL)
        flowing = next_event(events, DataFlowing)
    finally:
        job.cancel()
    return (flowing.time_ms - killed_ms) / 1000


def next_event(events: "SimpleQueue[JobEvent]", kind: type[E]) -> E:
    """Wait for the next event of this kind; others are left out."""
    return next(e for e in iter(events.get, None) if isinstance(e, kind))


def slow_pipeline(
    row_us: float,
    *,
    batch_rows: int = BATCH_ROWS,
    splits: int = SPLITS,
    rows_per_second: float | None = None,
) -> Pipeline:
    """Endless rows, dealt out to a map that sleeps ``row_us`` a row, then windows per key."""

    def slow(batch: pa.RecordBatch) -> pa.RecordBatch:
        CLOCK.wait_ms(batch.num_rows * row_us / 1000)
        return batch

    fields = {
        "id": Sequence(),
        "key": ZipfKey(1_000, prefix="k-"),
        "ts": EventTime(1_700_000_000_000_000, step_us=1_000),
    }
    p = Pipeline("backpressure")
    source = DatagenSource(fields, batch_rows=batch_rows, splits=splits)
    rows = p.source("in", source, rows_per_second=rows_per_second)
    return (
        rows.watermark("ts")
        .rebalance()
        .map(slow, name="slow")
        .key_by("key")
        .window(windows.tumbling("1 hour"))
        .aggregate("totals", agg.count())
        .sink("out", CollectSink())
    )


def _durations_ms(spark: SparkSession, mode: str, slowness: int) -> list[float]:
    events: SimpleQueue[JobEvent] = SimpleQueue()
    count = UNALIGNED_CHECKPOINTS if mode == "unaligned" else CHECKPOINTS
    job = start(spark, slow_pipeline(ROW_US * slowness), mode, WORKERS, events)
    try:
        completed = [next_event(events, CheckpointCompleted) for _ in range(count + 1)]
    finally:
        job.cancel()
    return [event.duration_ms for event in completed[1:]]


def start(
    spark: SparkSession,
    pipeline: Pipeline,
    mode: str,
    workers: int,
    events: "SimpleQueue[JobEvent]",
    interval: str = INTERVAL,
) -> StreamingJob:
    """Start a job in a new store, with checkpoints that are aligned or unaligned."""
    unaligned = UnalignedCheckpointConfig(
        enabled=mode == "unaligned", force_unaligned=mode == "unaligned"
    )
    return pipeline.start(
        spark,
        checkpoint=CheckpointConfig(
            str(dataset.fresh(STORE.name)), interval=interval, unaligned=unaligned
        ),
        run=RunConfig(workers=workers, restart=FixedDelay(attempts=1000)),
        listener=events.put,
    )
