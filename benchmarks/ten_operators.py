"""End to end: a checkpoint over ten operators without load, with everything real but Spark.

Coordinator, workers, sockets and files are those of a job; workers are threads of this process
instead of Spark tasks, so they share one interpreter lock.
"""

import os
import tempfile
from collections.abc import Collection
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

import pyarrow as pa

from benchmarks.result import Result, median
from laminar_core.connectors.collect import CollectSink
from laminar_core.operators import agg, windows
from laminar_core.pipeline import CheckpointConfig, Pipeline, UnalignedCheckpointConfig
from laminar_core.runtime.checkpointing import CoordinatorParts
from laminar_core.runtime.clock import SystemClock
from laminar_core.runtime.coordinator_thread import CoordinatorThread
from laminar_core.runtime.deployment import Deployment
from laminar_core.runtime.events import CheckpointCompleted, JobEvent, JobListener
from laminar_core.runtime.execution import Collected
from laminar_core.runtime.options import JobOptions
from laminar_core.runtime.plan import Plan
from laminar_core.runtime.supervisor import Supervisor
from laminar_core.runtime.transport import CoordinatorTransport, ZmqWorkerTransport
from laminar_core.runtime.worker import Worker
from laminar_core.state.manifest import Owner
from laminar_core.storage.checkpoint_store import CheckpointStore
from laminar_core.storage.owner import this_process
from laminar_core.testing.memory_source import MemorySource

WORKERS = 2
CHECKPOINTS = 40
TARGET_MS, DOCUMENT_MS = 60.0, 500.0
HOST = "127.0.0.1"


def bench_checkpoint_10_operators() -> list[Result]:
    """From the trigger to the durable manifest: ten operators in five vertices, two workers."""
    results: list[Result] = []
    for mode, unaligned in (
        ("aligned", UnalignedCheckpointConfig(enabled=False)),
        ("unaligned", UnalignedCheckpointConfig(force_unaligned=True)),
    ):
        duration_ms = median(_durations_ms(unaligned))
        name = f"bench_checkpoint_10_operators_{mode}"
        results += [
            Result(name, duration_ms, "ms", "lower", TARGET_MS),
            Result(f"{name}_ratio", DOCUMENT_MS / duration_ms, "x", "higher", 1.0),
        ]
    return results


def ten_operators() -> Plan:
    """Source, watermark, three exchanges, windowed aggregation, sink; rows come and then stop."""
    rows = pa.table(
        {
            "key": [f"k{n % 10}" for n in range(1_000)],
            "value": list(range(1_000)),
            "ts": pa.array(range(1_000), pa.timestamp("us", tz="UTC")),
        }
    )
    p = Pipeline("ten-operators")
    stream = p.source("in", MemorySource([rows, rows], batch_rows=100, bounded=False))
    stream = stream.watermark("ts").rebalance().map(_same).map(_same)
    stream = stream.rebalance().map(_same).select("key", "value", "ts")
    totals = (
        stream.key_by("key")
        .window(windows.tumbling("1 second"), time="ts")
        .aggregate("totals", agg.count(), agg.sum("value"))
    )
    totals.rebalance().map(_same).sink("out", CollectSink())
    plan = p.plan()
    assert len(plan.operator_ids()) == 10, plan.operator_ids()  # noqa: PLR2004 - the name says so
    return plan


def _same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def _durations_ms(unaligned: UnalignedCheckpointConfig) -> list[float]:
    with tempfile.TemporaryDirectory(prefix="laminar-bench-") as store_uri:
        config = CheckpointConfig(store=store_uri, interval="50 milliseconds", unaligned=unaligned)
        durations_ms: list[float] = []
        clock = SystemClock()
        options = JobOptions(
            job="benchmark",
            store_uri=store_uri,
            parallelism=WORKERS,
            checkpoint=config.coordinator_config(),
        )
        store = CheckpointStore.open(store_uri, options.job)
        enough: Future[None] = Future()

        def listen(event: JobEvent) -> None:
            if isinstance(event, CheckpointCompleted) and event.kind == "periodic":
                durations_ms.append(event.duration_ms)
                if len(durations_ms) == CHECKPOINTS:
                    enough.set_result(None)

        supervisor = Supervisor(ThreadCluster(), ten_operators(), options, store, clock, listen)
        enough.add_done_callback(lambda _: supervisor.stop())
        supervisor.run()
    return durations_ms[1:]


class ThreadCluster:
    """A ``Cluster`` whose workers are threads of this process."""

    def identify(self) -> Owner:
        """This process."""
        return this_process()

    def require_slots(self, parallelism: int) -> None:
        """Threads there are."""

    def start_coordinator(
        self, parts: CoordinatorParts, listener: JobListener
    ) -> CoordinatorThread:
        """As in a driver."""
        transport = CoordinatorTransport("ipc", HOST)
        return CoordinatorThread(parts, transport, SystemClock(), listener)

    def submit(self, deployment: Deployment) -> "ThreadStage":
        """Start the threads."""
        return ThreadStage(deployment)

    def wait(self, futures: Collection[Future[Any]], timeout_ms: float | None = None) -> None:
        """Block until one of them is done."""
        wait(futures, None if timeout_ms is None else timeout_ms / 1_000, FIRST_COMPLETED)


class ThreadStage:
    """The workers of one generation."""

    def __init__(self, deployment: Deployment) -> None:
        self.ended: Future[Collected] = Future()
        executor = ThreadPoolExecutor(deployment.parallelism + 1, "laminar-worker")
        workers = [
            executor.submit(_work, deployment, index) for index in range(deployment.parallelism)
        ]
        executor.submit(self._await, workers)
        executor.shutdown(wait=False)

    def interrupt(self) -> None:
        """Threads leave by themselves when their coordinator is gone."""

    def _await(self, workers: list["Future[None]"]) -> None:
        wait(workers)
        failed = [error for worker in workers if (error := worker.exception()) is not None]
        if failed:
            self.ended.set_exception(failed[0])
        else:
            self.ended.set_result({})


def _work(deployment: Deployment, index: int) -> None:
    """What a Spark task does."""
    transport = ZmqWorkerTransport(deployment.address, index, HOST)
    store = CheckpointStore.open(deployment.store_uri, deployment.job)
    with ThreadPoolExecutor(1, "laminar-snapshot") as executor:
        worker = Worker(deployment, index, transport, store, executor, SystemClock())
        try:
            worker.start()
            worker.register(os.getpid(), HOST)
            list(worker.run())
        finally:
            worker.close()
            transport.close()
