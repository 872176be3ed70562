"""Run the workers as one barrier stage of Spark, with its public API of RDDs.

Spark gang-schedules the tasks, places them, notices the death of a process and shows them in its
UI. Batches come back only at the end, those that a sink collected, as Arrow IPC. A DataFrame would
do the same, and start Spark's planner and compiler first (docs/adr/0124).
"""

# PySpark has no public name for its Java context.
# pyright: reportPrivateUsage=false

import signal
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import pyarrow as pa
from pyspark import BarrierTaskContext
from pyspark.serializers import CPickleSerializer
from pyspark.sql import SparkSession

from laminar_core.driver.checkpointing import CoordinatorParts
from laminar_core.driver.coordinator_thread import CoordinatorThread
from laminar_core.driver.events import JobEvent, NotEncrypted
from laminar_core.driver.execution import Collected
from laminar_core.driver.left_applications import ApplicationEnding
from laminar_core.driver.listening import IsolatedListener
from laminar_core.errors import ErrorCode, JobFailedError, LaminarError
from laminar_core.host.clock import Clock, SystemClock
from laminar_core.host.process_memory import keep_freed_memory, spare_what_is_loaded
from laminar_core.host.waiting import wait_for_first
from laminar_core.link.addresses import Listening, TransportKind, bare
from laminar_core.link.messages import ToCoordinator, ToWorker
from laminar_core.link.reliable_delivery import ControlEnd
from laminar_core.link.transport import CoordinatorTransport, ZmqWorkerTransport
from laminar_core.records.manifest import Owner
from laminar_core.records.spark_application import SparkApplication
from laminar_core.spark.applications import application_of, end_application, setting_of
from laminar_core.spark.conditions import (
    RELEVANT,
    refuse_connect,
    refuse_unreachable,
    refuse_unsuitable,
    require_encryption,
    unprotected,
)
from laminar_core.spark.facts import SparkFacts
from laminar_core.spark.failures import reason_of
from laminar_core.spark.gateway import answer_of, in_background, is_lost, lost_if_silent, spark_lost
from laminar_core.spark.memory import refuse_little_memory
from laminar_core.spark.sessions import Session
from laminar_core.spark.slot_wait import SlotWait
from laminar_core.spark.standalone import cores_line, has_forgotten
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.owner import this_process
from laminar_core.worker.deployment import Deployment
from laminar_core.worker.failures import failure
from laminar_core.worker.imports import import_problem, not_importable
from laminar_core.worker.running import run_worker

SLOTS_ANSWER_MAX_S = 10.0
"""A JVM that does not answer is found out by others."""


_PICKLES: Any = CPickleSerializer()
"""Spark's own, as the part goes the same way as the task that has it."""

Output = tuple[str, bytes]
"""The name of a sink, and one batch that it collected, as Arrow IPC."""


@dataclass(frozen=True)
class WorkerTask:
    """The function of all tasks of a stage; Spark sends it to each executor."""

    shared: Deployment
    """The deployment without the parts."""
    packed: tuple[bytes, ...]
    """Each worker's part of the checkpoint. The other workers do not unpack it."""

    @classmethod
    def of(cls, deployment: Deployment) -> "WorkerTask":
        """Return the function for all workers of a deployment."""
        parts = (_PICKLES.dumps(own.restored) for own in deployment.of_workers())
        packed = tuple(zlib.compress(part, level=1) for part in parts)
        return cls(replace(deployment, restored=None), packed)

    def deployment_of(self, worker: int) -> Deployment:
        """Return the deployment of one worker."""
        return replace(self.shared, restored=_PICKLES.loads(zlib.decompress(self.packed[worker])))

    def __call__(self, rows: Iterable[int]) -> Iterator[Output]:
        """Run one worker until the generation ends."""
        for _ in rows:
            pass  # One per task: the stage needs an input, the worker does not.
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's to act on.
        keep_freed_memory()
        spare_what_is_loaded()
        context = BarrierTaskContext.get()
        index = context.partitionId()
        deployment = self.deployment_of(index)
        host = bare(context.getTaskInfos()[index].address.rpartition(":")[0])
        transport = ZmqWorkerTransport(deployment.address, index, host)
        try:
            store = self._store(index, transport)
            for sink, batch in run_worker(deployment, index, host, transport, store):
                yield sink, _encoded(batch)
        finally:
            transport.close()

    def _store(self, index: int, transport: ZmqWorkerTransport) -> CheckpointStore:
        """Open the store, or tell the coordinator why this machine cannot."""
        try:
            return CheckpointStore.open(self.shared.store_uri, self.shared.job)
        except LaminarError as error:
            generation = self.shared.generation
            control = ControlEnd[ToWorker, ToCoordinator](
                generation, transport.send_control, SystemClock()
            )
            control.send(failure(generation, index, error))
            raise


def _encoded(batch: pa.RecordBatch) -> bytes:
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, batch.schema) as writer:
        writer.write_batch(batch)
    return stream.getvalue().to_pybytes()


class SparkCluster:
    """Coordinators in this process, workers in Spark."""

    def __init__(
        self,
        session: Session,
        transport: TransportKind | Literal["auto"],
        clock: Clock,
        *,
        encryption_required: bool = False,
        listening: Listening | None = None,
        state_memory_bytes: int = 0,
    ) -> None:
        self._session = session
        self._transport: TransportKind | Literal["auto"] = transport
        self._clock = clock
        self._encryption_required = encryption_required
        self._listening = listening or Listening()
        self._state_memory_bytes = state_memory_bytes
        self._newest_stage: SparkStage | None = None
        self._had_slots = False
        with lost_if_silent():
            self._facts, self._session_of_facts = facts_of(session.spark), session.spark

    def identify(self) -> Owner:
        """Return the identity of this process."""
        return this_process()

    def application(self) -> SparkApplication | None:
        """Return the application of the live session; None without a cluster, or if it is lost.

        A lost session is opened again now, so that the next claim names the new application.
        """
        with suppress(LaminarError):  # The start of the next generation reports it.
            return application_of(self._session.live(), self._facts.master)
        return None

    def end_application(self, application: SparkApplication) -> ApplicationEnding:
        """Ask the cluster manager of this session to end an application of an earlier driver."""
        spark, user = self._session.spark, self.identify().user
        return end_application(application, self.application(), partial(setting_of, spark), user)

    @property
    def can_be_renewed(self) -> bool:
        """Whether another JVM can replace a lost one."""
        return self._session.can_be_renewed

    def check(self, parallelism: int) -> tuple[JobEvent, ...]:
        """Verify conditions that Spark would report late or never.

        On a cluster slots may still come.
        """
        refuse_unsuitable(replace(self._facts, slots=self.slots), parallelism)
        refuse_little_memory(self._facts, self._state_memory_bytes)
        if not self._facts.on_one_host and self._transport != "ipc":
            refuse_unreachable(self._facts, self._listening)
        if self._encryption_required:
            require_encryption(self._facts, self._transport)
        missing = () if self._transport == "tcp" else unprotected(self._facts)
        return (NotEncrypted(time_ms=self._clock.now_ms(), missing=missing),) if missing else ()

    @property
    def slots(self) -> int | None:
        """The number of tasks that Spark can run at once now; None if unknown."""
        return slots_of(self._session.spark)

    @property
    def slot_holders(self) -> str:
        """Who holds the cores of a standalone cluster; empty if unknown."""
        return cores_line(self._facts, self._application_id() or "")

    def _application_id(self) -> str | None:
        spark = self._session.spark
        return answer_of(lambda: spark.sparkContext.applicationId, "laminar-id", SLOTS_ANSWER_MAX_S)

    def start_coordinator(
        self, parts: CoordinatorParts, listener: IsolatedListener
    ) -> CoordinatorThread:
        """Bind its socket and start its thread; Spark is started anew if it is lost."""
        if self._is_forgotten():
            self._session.renew()
            self._newest_stage, self._had_slots = None, False
        if (spark := self._session.live()) is not self._session_of_facts:
            with lost_if_silent():
                self._facts, self._session_of_facts = facts_of(spark), spark
        kind = self._transport
        if kind == "auto":
            kind = "ipc" if self._facts.on_one_host else "curve"
        host = self._facts.settings["spark.driver.host"]
        bind_address = self._facts.settings.get("spark.driver.bindAddress")
        transport = CoordinatorTransport(
            kind,
            bare(host),
            parts.identity.parallelism,
            self._listening.on_driver(host, bind_address),
            self._listening,
        )
        return CoordinatorThread(parts, transport, self._clock, listener)

    def submit(self, deployment: Deployment) -> "SparkStage":
        """Run the workers as a stage of their own."""
        self._newest_stage = SparkStage(self._session.spark, deployment)
        return self._newest_stage

    def _is_forgotten(self) -> bool:
        """Return whether the master no longer knows this application.

        A standalone master without recovery that is started again makes its workers end the
        executors of applications from before, and Spark does not register them with it. The master
        says so on its page. If that cannot be reached: such an application had its slots, and has
        fewer for the whole time of a start. If others have them, it cannot use those that it holds
        either.
        """
        if self._newest_stage is None or not self._facts.master.startswith("spark://"):
            return False
        own_id = self._application_id()
        if own_id is not None and has_forgotten(self._facts, own_id):
            return True
        slots = self._newest_stage.slots
        self._had_slots = self._had_slots or slots.most >= slots.needed
        return self._had_slots and slots.newest is not None and slots.newest < slots.needed

    def wait(self, futures: Collection[Future[Any]], timeout_ms: float | None = None) -> None:
        """Wait until one of the futures is done, or the time is over."""
        wait_for_first(futures, timeout_ms)


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
        self.slots = SlotWait(lambda: slots_of(spark), deployment.parallelism)
        executor = ThreadPoolExecutor(1, "laminar-stage")
        self.ended: Future[Collected] = executor.submit(self._run, deployment)
        executor.shutdown(wait=False)

    def interrupt(self) -> None:
        """Make Spark kill what is left of it; a stage that waits for slots is not submitted."""
        self.slots.cancel()
        in_background(self._interrupt, "laminar-interrupt")

    def _interrupt(self) -> None:
        with suppress(Exception):  # The session may be gone, and the stage with it.
            self._spark.sparkContext.cancelJobsWithTag(self._tag)

    def _run(self, deployment: Deployment) -> Collected:
        if not self.slots.wait():
            reason = f"Spark has {self.slots.newest} task slots for {self.slots.needed} workers"
            raise JobFailedError(ErrorCode.NOT_ENOUGH_SLOTS, reason)
        try:
            self._spark.sparkContext.addJobTag(self._tag)  # Of this thread, which ends with it.
            outputs = run_tasks(self._spark, deployment.parallelism, WorkerTask.of(deployment))
        except Exception as error:
            if is_lost(self._spark):
                raise spark_lost(error) from error
            if (problem := import_problem(str(error))) is not None:
                raise not_importable(problem) from error
            raise JobFailedError(
                ErrorCode.WORKER_LOST, f"a worker died: {reason_of(error)}"
            ) from error
        collected: dict[str, list[pa.RecordBatch]] = {}
        for sink, data in outputs:
            collected.setdefault(sink, []).extend(pa.ipc.open_stream(data))
        return {sink: pa.Table.from_batches(batches) for sink, batches in collected.items()}


def run_tasks(
    spark: SparkSession, count: int, task: Callable[[Iterable[int]], Iterable[Output]]
) -> list[Output]:
    """Run a barrier stage of so many tasks, all at the same time, and return what they yield."""
    tasks = spark.sparkContext.parallelize(range(count), count)
    return tasks.barrier().mapPartitions(task).collect()
