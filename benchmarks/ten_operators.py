"""End to end: a checkpoint over ten operators without load, with everything real but Spark.

Coordinator, workers, sockets and files are a job's; workers are threads of this process instead of
Spark tasks, so they share one interpreter lock.
"""

import tempfile
from concurrent.futures import Future

import pyarrow as pa

from benchmarks.result import Result, median
from benchmarks.threads import ThreadCluster
from laminar_core.connectors.collect import CollectSink
from laminar_core.driver.events import CheckpointCompleted, JobEvent
from laminar_core.driver.options import JobOptions
from laminar_core.driver.supervisor import Supervisor
from laminar_core.host.clock import SystemClock
from laminar_core.operators import agg, windows
from laminar_core.pipeline import CheckpointConfig, Pipeline, UnalignedCheckpointConfig
from laminar_core.plan.plan import Plan
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.testing.memory_source import MemorySource

WORKERS = 2
CHECKPOINTS = 40
TARGET_MS, DOCUMENT_MS = 60.0, 500.0


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
