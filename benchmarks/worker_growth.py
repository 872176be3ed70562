"""How the checkpoints of a job in Spark grow with the number of its workers.

``aligned``: the input is paced, so that the job is not behind. ``unaligned``: behind an operator
that is too slow, with rows in flight from every worker to every other one. All numbers of workers
take turns in one session, so that their ratio means something on a busy machine.
"""

from collections.abc import Collection, Iterator, Mapping
from collections.abc import Sequence as Series
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from queue import SimpleQueue

from pyspark.sql import SparkSession

from benchmarks.backpressure import STORE, next_event, slow_pipeline, start
from benchmarks.result import Result
from laminar_core.driver.events import CheckpointCompleted, JobEvent
from laminar_core.errors import JobFailedError
from laminar_core.pipeline import Pipeline
from laminar_core.protocol.types import CheckpointId
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.records.paths import JobPaths
from laminar_core.spark.session import open_session
from laminar_core.store.checkpoint_store import CheckpointStore

WORKERS = (2, 4, 8, 16)
MODES = ("aligned", "unaligned")
INTERVAL = "1 second"
ROWS_PER_SECOND, PACED_BATCH_ROWS = 12_000, 512
"""The pace of an aligned job: so few batches that 16 workers keep up on two cores.

Each worker has one between two checkpoints, so its state changes.
"""
SLOW_US, BATCH_ROWS = 20_000.0, 64
"""The time per row of the slow operator: so few rows that two cores are not full behind it.

Batches are small, because the bytes in flight grow with the square.
"""
CHECKPOINTS = 3
_ROUNDS = 3
_WARM_UP = 2
"""Checkpoints of each job that are not measured: queues are filling up."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One checkpoint."""

    duration_ms: float
    """Time from the trigger to the durable manifest."""
    start_delay_ms: float
    """Time until the first barrier had reached every subtask."""
    async_ms: float
    """Time that the slowest subtask took for writing its state."""
    puts: int
    """Objects that were written for it, each with one request."""
    inflight_files: int
    queues: int
    """Queues in which something was in flight; one file each would be as many requests."""
    inflight_bytes: int


def workers() -> list[Result]:
    """Checkpoints of a job in Spark with 2, 4, 8 and 16 workers: aligned, and behind a slow map."""
    measured: dict[tuple[str, int], list[Measured]] = {}
    spark = open_session(f"local[{max(WORKERS)}]", "benchmark")
    try:
        for _ in range(_ROUNDS):
            for mode in MODES:
                for count in WORKERS:
                    measured.setdefault((mode, count), []).extend(_checkpoints(spark, mode, count))
    finally:
        spark.stop()
    return list(results_of(measured))


def results_of(measured: Mapping[tuple[str, int], Series[Measured]]) -> Iterator[Result]:
    """Return the figures of all checkpoints, by mode and number of workers."""
    for (mode, count), found in measured.items():
        figures = {
            "": ("ms", [each.duration_ms for each in found]),
            "_start_delay": ("ms", [each.start_delay_ms for each in found]),
            "_async": ("ms", [each.async_ms for each in found]),
            "_puts": ("requests", [each.puts for each in found]),
        }
        if mode == "unaligned":
            figures |= {
                "_inflight_files": ("requests", [each.inflight_files for each in found]),
                "_queues": ("requests", [each.queues for each in found]),
                "_inflight_bytes": ("bytes", [each.inflight_bytes for each in found]),
            }
        for word, (unit, values) in figures.items():
            yield Result.of_rounds(f"workers_{mode}_{count}{word}", values, unit, "lower")


def puts_of(
    paths: JobPaths, keys: Collection[str], before: CheckpointManifest, manifest: CheckpointManifest
) -> int:
    """Return how many of the objects at ``keys`` were written for a checkpoint.

    These are the driver's records, and the files that the checkpoint ``before`` did not have.
    """
    number = manifest.checkpoint_id
    records = {
        paths.trigger(number),
        paths.manifest(number),
        paths.commit(number),
        paths.outcome(number),
    }
    known = {file.path for file in before.files()}
    files = {paths.absolute(file.path) for file in manifest.files() if file.path not in known}
    return len((records | files).intersection(keys))


def pipeline_of(mode: str, count: int) -> Pipeline:
    """Return a job with as many splits as workers."""
    if mode == "aligned":
        rows, pace = PACED_BATCH_ROWS, ROWS_PER_SECOND
        return slow_pipeline(0, batch_rows=rows, splits=count, rows_per_second=pace)
    return slow_pipeline(SLOW_US, batch_rows=BATCH_ROWS, splits=count)


def _checkpoints(spark: SparkSession, mode: str, count: int) -> list[Measured]:
    events: SimpleQueue[JobEvent] = SimpleQueue()
    job = start(spark, pipeline_of(mode, count), mode, count, events, INTERVAL)
    try:
        # One more than is measured, so that the output of all others is committed.
        completed = [
            next_event(events, CheckpointCompleted) for _ in range(_WARM_UP + CHECKPOINTS + 1)
        ]
    finally:
        job.cancel()
        with suppress(JobFailedError):  # It was cancelled.
            job.result()
    return _with_requests(job.status().job, completed[_WARM_UP - 1 : -1])


def _with_requests(job: str, completed: Series[CheckpointCompleted]) -> list[Measured]:
    """Read what was written for all of these checkpoints but the first."""
    store = CheckpointStore.open(str(STORE), job)
    keys = set(store.objects.list(f"{job}/"))
    manifests = [store.manifests.read(CheckpointId(event.checkpoint_id)) for event in completed]
    return [
        Measured(
            duration_ms=event.duration_ms,
            start_delay_ms=event.start_delay_ms,
            async_ms=event.async_ms,
            puts=puts_of(store.paths, keys, before, manifest),
            inflight_files=len(manifest.inflight_files),
            queues=len(manifest.inflight_data),
            inflight_bytes=event.inflight_bytes,
        )
        for event, (before, manifest) in zip(completed[1:], pairwise(manifests), strict=True)
    ]
