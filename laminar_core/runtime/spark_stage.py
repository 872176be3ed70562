"""Workers as one barrier stage of Spark: the public DataFrame API, nothing else.

Spark gang-schedules the tasks, places them, notices the death of a process and shows them in its
UI. Rows come back only at the end, one per batch that a sink collected, as Arrow IPC.
"""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
from pyspark import BarrierTaskContext
from pyspark.sql import SparkSession

from laminar_core.runtime.clock import SystemClock
from laminar_core.runtime.deployment import Deployment
from laminar_core.runtime.transport import ZmqWorkerTransport
from laminar_core.runtime.worker import Worker
from laminar_core.storage.checkpoint_store import CheckpointStore

OUTPUT_DDL = "sink string, batch binary"
_OUTPUT_SCHEMA = pa.schema([("sink", pa.string()), ("batch", pa.binary())])


@dataclass(frozen=True)
class WorkerTask:
    """What runs in each Spark task; Spark carries it there."""

    deployment: Deployment

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Be one worker until the generation ends."""
        for _ in batches:
            pass  # One empty row per task: the stage needs an input, the worker does not.
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's to act on.
        context = BarrierTaskContext.get()
        index = context.partitionId()
        host = context.getTaskInfos()[index].address.rpartition(":")[0]
        transport = ZmqWorkerTransport(self.deployment.address, index, host)
        try:
            yield from self._work(index, host, transport)
        finally:
            transport.close()

    def _work(
        self, index: int, host: str, transport: ZmqWorkerTransport
    ) -> Iterator[pa.RecordBatch]:
        store = CheckpointStore.open(self.deployment.store_uri, self.deployment.job)
        with ThreadPoolExecutor(1, "laminar-snapshot") as executor:
            worker = Worker(self.deployment, index, transport, store, executor, SystemClock())
            try:
                worker.start()
                worker.register(os.getpid(), host)
                for sink, batch in worker.run():
                    yield _output(sink, batch)
            except Exception as error:
                worker.failed(error)
                raise
            finally:
                worker.close()


def _output(sink: str, batch: pa.RecordBatch) -> pa.RecordBatch:
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, batch.schema) as writer:
        writer.write_batch(batch)
    columns = [pa.array([sink]), pa.array([stream.getvalue().to_pybytes()], pa.binary())]
    return pa.RecordBatch.from_arrays(columns, schema=_OUTPUT_SCHEMA)


def run_stage(spark: SparkSession, deployment: Deployment, tag: str) -> dict[str, pa.Table]:
    """Run one generation's workers; return what each sink collected.

    Blocks until the last worker has exited. ``tag`` names the stage for ``interrupt_stage``.
    """
    parallelism = deployment.parallelism
    spark.addTag(tag)
    try:
        tasks = spark.range(0, parallelism, 1, parallelism)
        stage = tasks.mapInArrow(WorkerTask(deployment), OUTPUT_DDL, barrier=True)
        rows = stage.toArrow()
    finally:
        with suppress(Exception):  # The session may be gone; there is nothing left to tag.
            spark.removeTag(tag)
    collected: dict[str, list[pa.RecordBatch]] = {}
    for sink, data in zip(
        *(rows.column(name).to_pylist() for name in ("sink", "batch")), strict=True
    ):
        collected.setdefault(sink, []).extend(pa.ipc.open_stream(data))
    return {sink: pa.Table.from_batches(batches) for sink, batches in collected.items()}


def interrupt_stage(spark: SparkSession, tag: str) -> None:
    """Make Spark kill what is left of a stage."""
    with suppress(Exception):  # The session may be gone, and the stage with it.
        spark.interruptTag(tag)
