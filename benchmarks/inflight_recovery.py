"""Cost of in-flight rows in a recovery: one job restored from an aligned and an unaligned cut.

Coordinator, workers, sockets and files are real, the workers are threads of this process. In
Spark a recovery takes longer (``worker-recovery``), by the same amount in both cases.
"""

import tempfile
from concurrent.futures import Future
from contextlib import suppress
from threading import Lock
from time import perf_counter

import pyarrow as pa

from benchmarks.result import Result, median
from benchmarks.threads import ThreadCluster
from laminar_core.connectors.collect import CollectSink
from laminar_core.driver.events import CheckpointCompleted, JobEvent, JobListener, ignore
from laminar_core.driver.options import JobOptions
from laminar_core.driver.supervisor import Supervisor
from laminar_core.errors import JobFailedError
from laminar_core.host.clock import SystemClock
from laminar_core.pipeline import CheckpointConfig, Pipeline, UnalignedCheckpointConfig
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.testing.memory_source import MemorySource

WORKERS = 2
BATCH_ROWS = 500
ROWS = 100_000
SLOW_MS = 50.0
ROUNDS = 25
TARGET, DOCUMENT = 1.1, 1.2


class SlowMap:
    """An operator that needs ``batch_ms`` a batch, and signals when it has seen so many rows."""

    def __init__(self) -> None:
        self.batch_ms = 0.0
        self._clock = SystemClock()
        self._lock = Lock()
        self._left = 0
        self._seen: Future[float] = Future()

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch after the delay."""
        if self.batch_ms and batch.num_rows:
            self._clock.wait_ms(self.batch_ms)
        with self._lock:
            self._left -= batch.num_rows
            if self._left <= 0 and batch.num_rows and not self._seen.done():
                self._seen.set_result(perf_counter())
        return batch

    def after(self, rows: int) -> "Future[float]":
        """Return a future that completes when so many more rows have come."""
        with self._lock:
            self._left, self._seen = rows, Future()
            return self._seen


class Job:
    """A job whose queues are full at its checkpoints, and its recoveries from the newest one."""

    def __init__(self, store_uri: str, unaligned: UnalignedCheckpointConfig) -> None:
        self.slow = SlowMap()
        numbers = pa.table({"n": list(range(ROWS)), "note": ["x" * 60] * ROWS})
        p = Pipeline("recovery")
        rows = p.source("in", MemorySource([numbers] * WORKERS, BATCH_ROWS, bounded=False))
        rows.rebalance().map(self.slow, name="slow").sink("out", CollectSink())
        self.plan = p.plan()
        config = CheckpointConfig(store_uri, interval="1 second", unaligned=unaligned)
        self.options = JobOptions("benchmark", store_uri, WORKERS, config.coordinator_config())
        self.store = CheckpointStore.open(store_uri, self.options.job)

    def fill(self) -> int:
        """Run until a checkpoint is complete, then end at once; return its rows in flight."""
        self.slow.batch_ms = SLOW_MS
        complete: Future[float] = Future()

        def listen(event: JobEvent) -> None:
            if isinstance(event, CheckpointCompleted) and not complete.done():
                complete.set_result(perf_counter())

        self._run_until(complete, listen)
        (*_, newest) = self.store.manifests.ids()
        return sum(entry.row_count for entry in self.store.manifests.read(newest).inflight_data)

    def recover(self, rows: int) -> float:
        """Return the seconds from the start until the operator has processed so many rows."""
        self.slow.batch_ms = 0.0
        return self._run_until(self.slow.after(rows), ignore)

    def _run_until(self, seen: "Future[float]", listen: JobListener) -> float:
        supervisor = Supervisor(
            ThreadCluster(), self.plan, self.options, self.store, SystemClock(), listen
        )
        seen.add_done_callback(lambda _: supervisor.cancel())
        started = perf_counter()
        with suppress(JobFailedError):  # It was told to.
            supervisor.run()
        return seen.result() - started


def bench_unaligned_recovery_overhead() -> list[Result]:
    """Recovery until all rows in flight are processed, relative to the first row of one without.

    Medians of alternating rounds.
    """
    with tempfile.TemporaryDirectory(prefix="laminar-bench-") as root:
        aligned = Job(f"{root}/aligned", UnalignedCheckpointConfig(enabled=False))
        unaligned = Job(f"{root}/unaligned", UnalignedCheckpointConfig(force_unaligned=True))
        aligned.fill()
        rows = unaligned.fill()
        seconds = [(aligned.recover(1), unaligned.recover(rows)) for _ in range(ROUNDS)]
    without, with_rows = (median(column) for column in zip(*seconds, strict=True))
    name = "bench_unaligned_recovery_overhead"
    return [
        Result(name, with_rows / without, "x", "lower", TARGET),
        Result(f"{name}_document", with_rows / without, "x", "lower", DOCUMENT),
        Result(f"{name}_rows_in_flight", rows, "rows", "higher"),
        Result(f"{name}_without", 1e3 * without, "ms", "lower"),
    ]
