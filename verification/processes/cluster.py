"""The workers of a job as processes of this machine, without Spark.

Coordinator, sockets, worker loop and store are those of a job in Spark. A worker starts in a
fraction of a second, so that a campaign can kill many of them.
"""

import multiprocessing
import os
import signal
from collections.abc import Collection
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.connection import wait as wait_for_ends
from multiprocessing.context import ForkServerProcess
from typing import Any

import psutil

from laminar_core.driver.checkpointing import CoordinatorParts
from laminar_core.driver.coordinator_thread import CoordinatorThread
from laminar_core.driver.events import JobEvent
from laminar_core.driver.execution import Collected
from laminar_core.driver.left_applications import ApplicationEnding
from laminar_core.driver.listening import IsolatedListener
from laminar_core.errors import ErrorCode, JobFailedError
from laminar_core.host.clock import SystemClock
from laminar_core.host.waiting import wait_for_first
from laminar_core.link.transport import CoordinatorTransport, ZmqWorkerTransport
from laminar_core.records.manifest import Owner
from laminar_core.records.spark_application import SparkApplication
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.owner import this_process
from laminar_core.worker.deployment import Deployment
from laminar_core.worker.life import living
from laminar_core.worker.snapshots import background_threads
from laminar_core.worker.worker import Worker

_HOST = "127.0.0.1"
_FAILED_CODE = 1


def run_worker(deployment: Deployment, index: int) -> None:
    """Run one worker until its generation ends; its sinks collect no rows."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # It is the driver's to act on.
    transport = ZmqWorkerTransport(deployment.address, index, _HOST)
    store = CheckpointStore.open(deployment.store_uri, deployment.job)
    try:
        with background_threads() as threads:
            worker = Worker(deployment, index, transport, store, threads, SystemClock())
            try:
                worker.start(_HOST)
                worker.register(os.getpid(), _HOST)
                with living(worker.signs):
                    for _ in worker.run():
                        pass
            except Exception as error:  # noqa: BLE001 - the coordinator reports it
                worker.failed(error)
                raise SystemExit(_FAILED_CODE) from None
            finally:
                worker.close()
    finally:
        transport.close()


class ProcessStage:
    """The workers of one generation: if one of them dies, the others are killed.

    A worker that is stopped (SIGSTOP) is not killed. It stands for one on a machine that the driver
    cannot reach, and may continue later.
    """

    def __init__(self, deployment: Deployment) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__, "laminar_core.connectors.kafka.reader"])
        self._workers: list[ForkServerProcess] = []
        for index, own in enumerate(deployment.of_workers()):
            worker = context.Process(target=run_worker, args=(own, index))
            worker.start()
            self._workers.append(worker)
        executor = ThreadPoolExecutor(1, "stage")
        self.ended: Future[Collected] = executor.submit(self._watch)
        executor.shutdown(wait=False)

    def interrupt(self) -> None:
        """Kill what is left of them."""
        for worker in self._workers:
            if worker.is_alive() and not _is_stopped(worker.pid):
                worker.kill()

    def _watch(self) -> Collected:
        left = {worker.sentinel: worker for worker in self._workers}
        while left:
            for sentinel in wait_for_ends(list(left)):
                worker = left.pop(int(sentinel))  # pyright: ignore[reportArgumentType] - a number
                worker.join()
                if worker.exitcode:
                    self.interrupt()
                    why = f"a worker died with exit code {worker.exitcode}"
                    raise JobFailedError(ErrorCode.WORKER_LOST, why)
        return {}


class ProcessCluster:
    """Coordinators in this process, and workers in processes of their own."""

    can_be_renewed = False
    slots = None
    slot_holders = ""

    def identify(self) -> Owner:
        """Return the identity of this process."""
        return this_process()

    def application(self) -> None:
        """Return None: no cluster manager keeps anything for it."""

    def end_application(self, application: SparkApplication) -> ApplicationEnding:
        """Return that it is gone: there is no cluster manager."""
        del application
        return ApplicationEnding("gone")

    def check(self, parallelism: int) -> tuple[JobEvent, ...]:
        """Accept any number of workers."""
        del parallelism
        return ()

    def start_coordinator(
        self, parts: CoordinatorParts, listener: IsolatedListener
    ) -> CoordinatorThread:
        """Bind its socket and start its thread."""
        transport = CoordinatorTransport("ipc", _HOST, parts.identity.parallelism)
        return CoordinatorThread(parts, transport, SystemClock(), listener)

    def submit(self, deployment: Deployment) -> ProcessStage:
        """Start one process for each worker."""
        return ProcessStage(deployment)

    def wait(self, futures: Collection[Future[Any]], timeout_ms: float | None = None) -> None:
        """Wait until one of the futures is done, or the time is over."""
        wait_for_first(futures, timeout_ms)


def _is_stopped(pid: int | None) -> bool:
    try:
        return pid is not None and psutil.Process(pid).status() == psutil.STATUS_STOPPED
    except psutil.NoSuchProcess:
        return False
