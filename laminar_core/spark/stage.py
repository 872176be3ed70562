"""Run the workers as one barrier stage of Spark, with the public DataFrame API alone.

Spark gang-schedules the tasks, places them, notices the death of a process and shows them in its
UI. Rows come back only at the end, one per batch that a sink collected, as Arrow IPC.
"""

# PySpark has no public name for its Java context.
# pyright: reportPrivateUsage=false

import os
import re
import signal
from collections.abc import Collection, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

import pyarrow as pa
from pyspark import BarrierTaskContext
from pyspark.sql import SparkSession

from laminar_core.driver.checkpointing import CoordinatorParts
from laminar_core.driver.coordinator_thread import CoordinatorThread
from laminar_core.driver.events import JobEvent, NotEncrypted
from laminar_core.driver.execution import Collected
from laminar_core.driver.listening import IsolatedListener
from laminar_core.errors import ErrorCode, JobFailedError, LaminarError
from laminar_core.host.clock import Clock, SystemClock
from laminar_core.link.messages import ToCoordinator, ToWorker
from laminar_core.link.reliable_delivery import ControlEnd
from laminar_core.link.transport import (
    CoordinatorTransport,
    TransportKind,
    ZmqWorkerTransport,
)
from laminar_core.records.manifest import Owner
from laminar_core.spark.conditions import (
    RELEVANT,
    SparkFacts,
    refuse_connect,
    refuse_unsuitable,
    require_encryption,
    unprotected,
)
from laminar_core.spark.gateway import answer_of, in_background, is_lost, lost_if_silent, spark_lost
from laminar_core.spark.sessions import Session
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.owner import this_process
from laminar_core.worker.deployment import Deployment
from laminar_core.worker.life import living
from laminar_core.worker.snapshots import background_threads
from laminar_core.worker.worker import Worker, failure

SLOTS_ANSWER_MAX_S = 10.0
"""A JVM that does not answer is found out by others."""

OUTPUT_DDL = "sink string, batch binary"
_OUTPUT_SCHEMA = pa.schema([("sink", pa.string()), ("batch", pa.binary())])


@dataclass(frozen=True)
class WorkerTask:
    """The function of each Spark task; Spark sends it to the executors."""

    deployment: Deployment

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run one worker until the generation ends."""
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
        store = self._store(index, transport)
        with background_threads() as threads:
            worker = Worker(self.deployment, index, transport, store, threads, SystemClock())
            try:
                worker.start(host)
                worker.register(os.getpid(), host)
                with living(worker.signs):
                    for sink, batch in worker.run():
                        yield _output(sink, batch)
            except Exception as error:
                worker.failed(error)
                raise
            finally:
                worker.close()

    def _store(self, index: int, transport: ZmqWorkerTransport) -> CheckpointStore:
        """Open the store, or tell the coordinator why this machine cannot."""
        try:
            return CheckpointStore.open(self.deployment.store_uri, self.deployment.job)
        except LaminarError as error:
            generation = self.deployment.generation
            control = ControlEnd[ToWorker, ToCoordinator](
                generation, transport.send_control, SystemClock()
            )
            control.send(failure(generation, index, error))
            raise


def _output(sink: str, batch: pa.RecordBatch) -> pa.RecordBatch:
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, batch.schema) as writer:
        writer.write_batch(batch)
    columns = [pa.array([sink]), pa.array([stream.getvalue().to_pybytes()], pa.binary())]
    return pa.RecordBatch.from_arrays(columns, schema=_OUTPUT_SCHEMA)


class SparkCluster:
    """Coordinators in this process, workers in Spark."""

    def __init__(
        self,
        session: Session,
        transport: TransportKind | Literal["auto"],
        clock: Clock,
        *,
        encryption_required: bool = False,
    ) -> None:
        self._session = session
        self._transport: TransportKind | Literal["auto"] = transport
        self._clock = clock
        self._encryption_required = encryption_required
        with lost_if_silent():
            self._facts = facts_of(session.spark)

    def identify(self) -> Owner:
        """Return the identity of this process."""
        return this_process()

    @property
    def can_be_renewed(self) -> bool:
        """Whether another JVM can replace a lost one."""
        return self._session.can_be_renewed

    def check(self, parallelism: int) -> tuple[JobEvent, ...]:
        """Verify conditions that Spark would report late or never.

        On a cluster slots may still come.
        """
        refuse_unsuitable(replace(self._facts, slots=self.slots), parallelism)
        if self._encryption_required:
            require_encryption(self._facts, self._transport)
        missing = () if self._transport == "tcp" else unprotected(self._facts)
        return (NotEncrypted(time_ms=self._clock.now_ms(), missing=missing),) if missing else ()

    @property
    def slots(self) -> int | None:
        """The number of tasks that Spark can run at once now; None if unknown."""
        return slots_of(self._session.spark)

    def start_coordinator(
        self, parts: CoordinatorParts, listener: IsolatedListener
    ) -> CoordinatorThread:
        """Bind its socket and start its thread; Spark is started anew if it is lost."""
        spark = self._session.live()
        kind = self._transport
        if kind == "auto":
            kind = "ipc" if self._facts.on_one_host else "curve"
        with lost_if_silent():
            host = str(spark.conf.get("spark.driver.host"))
        transport = CoordinatorTransport(kind, host, parts.identity.parallelism)
        return CoordinatorThread(parts, transport, self._clock, listener)

    def submit(self, deployment: Deployment) -> "SparkStage":
        """Run the workers as a stage of their own."""
        return SparkStage(self._session.spark, deployment)

    def wait(self, futures: Collection[Future[Any]], timeout_ms: float | None = None) -> None:
        """Wait until one of the futures is done, or the time is over."""
        timeout_s = None if timeout_ms is None else timeout_ms / 1000
        wait(futures, timeout_s, FIRST_COMPLETED)


def facts_of(spark: SparkSession) -> SparkFacts:
    """Read the setup of Spark.

    Raises:
        ConfigurationError: it is a session of Spark Connect.
    """
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        refuse_connect(SparkFacts("sc://"))
    settings = {name: spark.conf.get(name, None) for name in RELEVANT}
    known = {name: value for name, value in settings.items() if value is not None}
    return SparkFacts(known.get("spark.master", ""), known)


def slots_of(spark: SparkSession) -> int | None:
    """Return how many tasks Spark can run at once now; None if unknown.

    This is the number that Spark itself compares with the tasks of a barrier stage. The public
    interface (``defaultParallelism``) returns at least 2, and ignores ``spark.task.cpus``.
    """

    def slots() -> int:
        java: Any = spark.sparkContext._jsc  # noqa: SLF001 - Spark says it nowhere else
        context = java.sc()
        profile = context.resourceProfileManager().defaultResourceProfile()
        return int(context.maxNumConcurrentTasks(profile))

    return answer_of(slots, "laminar-slots", SLOTS_ANSWER_MAX_S)


class SparkStage:
    """The workers of one generation: a Spark job, submitted and awaited in a thread of its own."""

    def __init__(self, spark: SparkSession, deployment: Deployment) -> None:
        self._spark = spark
        self._tag = f"laminar-{deployment.job}-{deployment.generation}"
        executor = ThreadPoolExecutor(1, "laminar-stage")
        self.ended: Future[Collected] = executor.submit(self._run, deployment)
        executor.shutdown(wait=False)

    def interrupt(self) -> None:
        """Make Spark kill what is left of it."""
        in_background(self._interrupt, "laminar-interrupt")

    def _interrupt(self) -> None:
        with suppress(Exception):  # The session may be gone, and the stage with it.
            self._spark.interruptTag(self._tag)

    def _run(self, deployment: Deployment) -> Collected:
        try:
            self._spark.addTag(self._tag)
            rows = self._collect(deployment)
        except Exception as error:
            if is_lost(self._spark):
                raise spark_lost(error) from error
            raise JobFailedError(ErrorCode.WORKER_LOST, _why_lost(error)) from error
        finally:
            with suppress(Exception):  # The session may be gone; there is nothing left to tag.
                self._spark.removeTag(self._tag)
        collected: dict[str, list[pa.RecordBatch]] = {}
        for sink, data in zip(
            *(rows.column(name).to_pylist() for name in ("sink", "batch")), strict=True
        ):
            collected.setdefault(sink, []).extend(pa.ipc.open_stream(data))
        return {sink: pa.Table.from_batches(batches) for sink, batches in collected.items()}

    def _collect(self, deployment: Deployment) -> pa.Table:
        tasks = self._spark.range(0, deployment.parallelism, 1, deployment.parallelism)
        return tasks.mapInArrow(WorkerTask(deployment), OUTPUT_DDL, barrier=True).toArrow()


_INFORMATIVE = (
    re.compile("exited unexpectedly|ExecutorLostFailure"),
    re.compile(
        r"^(?!org\.|java\.|py4j\.|pyspark\.)[\w.]*(Error|Exception): "
    ),  # Python's own words.
    re.compile("^Caused by: "),
)


def _why_lost(error: Exception) -> str:
    """Return the most informative line of Spark's report; the rest is in Spark's own log."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    informative = [line for sign in _INFORMATIVE for line in lines if sign.search(line)]
    return f"a worker died: {(informative or lines or [type(error).__name__])[0][:300]}"
