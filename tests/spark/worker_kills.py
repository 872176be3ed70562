"""Runs a pipeline in Spark, and kills workers of it after checkpoints."""

import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue

from pyspark.sql import SparkSession

from laminar_core.driver.events import CheckpointCompleted, JobEvent, WorkersRunning
from laminar_core.driver.options import JobResult
from laminar_core.driver.restart import FixedDelay
from laminar_core.pipeline import CheckpointConfig, Pipeline, RunConfig

Counts = Callable[[CheckpointCompleted], bool]


def every_one(event: CheckpointCompleted) -> bool:
    del event
    return True


def unaligned(event: CheckpointCompleted) -> bool:
    """A checkpoint in which barriers overtook on every channel."""
    return event.mode == "unaligned"


def often(folder: Path) -> CheckpointConfig:
    """Ten unaligned checkpoints a second, in ``folder / "store"``."""
    store = str(folder / "store")
    return CheckpointConfig(store, interval="100 milliseconds", alignment="unaligned")


def result_after_kills(
    pipeline: Pipeline,
    spark: SparkSession,
    checkpoint: CheckpointConfig,
    *,
    checkpoints: int,
    counts: Counts = every_one,
    kills: int = 1,
) -> JobResult:
    """Run with two workers, and kill one of them, always the same ones, as often as ``kills`` says.

    It dies once so many ``checkpoints`` of its generation are complete that ``counts`` is true of.
    """
    moments = random.Random(3)
    events: SimpleQueue[JobEvent] = SimpleQueue()
    running = pipeline.start(
        spark,
        checkpoint=checkpoint,
        run=RunConfig(workers=2, restart=FixedDelay(attempts=100)),
        listener=events.put,
    )
    pids: tuple[int, ...] = ()
    completed = killed = 0
    while killed < kills:
        event = events.get(timeout=60)
        if isinstance(event, WorkersRunning):
            pids, completed = event.pids, 0
        elif isinstance(event, CheckpointCompleted) and counts(event):
            completed += 1
            if completed == checkpoints:
                os.kill(moments.choice(pids), signal.SIGKILL)
                killed += 1
    return running.result(timeout_s=120)
