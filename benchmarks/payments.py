"""The payments job in Spark: how fast, what checkpoints cost, and Spark's own batch query."""

import math
from collections.abc import Callable, Sequence
from statistics import stdev
from time import perf_counter

from pyspark.sql import SparkSession, functions

from benchmarks import dataset
from benchmarks.result import Result
from laminar_core.jobs.payments import pipeline
from laminar_core.pipeline import CheckpointConfig, RunConfig
from laminar_core.spark.session import open_session
from laminar_core.units import Duration

WORKERS = 2
ROUNDS = 5
PAIRS = 25
"""Runs with checkpoints and without, in turns: one pair alone tells nothing about a few percent."""


def throughput() -> list[Result]:
    """Payments per second on two workers, with and without checkpoints, beside Spark batch."""
    path = str(dataset.payments(dataset.THROUGHPUT_ROWS))
    spark = open_session(f"local[{WORKERS}]", "benchmark")
    try:
        _seconds(spark, path, "1 second")  # Warm: the JVM, the workers, the page cache.
        _batch_seconds(spark, path)
        rounds = [
            (
                _seconds(spark, path, None),
                _seconds(spark, path, "1 second"),
                _batch_seconds(spark, path),
            )
            for _ in range(ROUNDS)
        ]
        pairs = [
            (_seconds(spark, path, None), _seconds(spark, path, "1 second")) for _ in range(PAIRS)
        ]
    finally:
        spark.stop()
    without, with_checkpoints, batch = ([r[n] for r in rounds] for n in range(3))
    lost = [100 * (1 - w / c) for w, c in pairs]
    rows, unit = dataset.THROUGHPUT_ROWS, "events/s"
    return [
        Result.of_rounds("payments", [rows / s for s in with_checkpoints], unit, "higher", 5e6),
        Result.of_rounds(
            "payments_without_checkpoints", [rows / s for s in without], unit, "higher"
        ),
        Result.of_rounds("payments_lost_to_checkpoints", lost, "percent", "lower", 3),
        Result("payments_lost_to_checkpoints_error", _error(lost), "percent", "lower"),
        Result.of_rounds("spark_batch", [rows / s for s in batch], unit, "higher"),
        Result.of_rounds(
            "payments_to_spark_batch",
            [b / c for _, c, b in rounds],
            "ratio",
            "higher",
        ),
    ]


def _error(values: Sequence[float]) -> float:
    """Return the standard error of the median: that of the mean times the root of half of pi."""
    return math.sqrt(math.pi / 2) * stdev(values) / math.sqrt(len(values))


def _seconds(spark: SparkSession, path: str, interval: Duration | None) -> float:
    """From the call to the committed result, in a warm session."""
    output, store = dataset.fresh("output"), dataset.fresh("store")
    checkpoint = CheckpointConfig(str(store), interval=interval)
    job = pipeline(path, str(output))
    run = RunConfig(workers=WORKERS)
    return _timed(lambda: job.run(spark, checkpoint=checkpoint, run=run, progress=False))


def _batch_seconds(spark: SparkSession, path: str) -> float:
    output = str(dataset.fresh("batch-output"))
    amount = functions.col("amount_cents")
    frame = (
        spark.read.parquet(path)
        .groupBy("merchant", functions.window("paid_at", "5 minutes").alias("window"))
        .agg(
            functions.count("*").alias("payments"),
            functions.sum(amount).alias("total_cents"),
            functions.min(amount).alias("min_cents"),
            functions.max(amount).alias("max_cents"),
            functions.avg(amount).alias("average_cents"),
        )
    )
    return _timed(lambda: frame.write.parquet(output))


def _timed(action: Callable[[], object]) -> float:
    started = perf_counter()
    action()
    return perf_counter() - started
