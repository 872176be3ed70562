"""A cluster in this process: it replaces Spark, with a thread for each worker.

Coordinator, sockets, files and the worker's loop are real. The workers share one interpreter lock.
"""

import os
from collections.abc import Callable, Collection
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

from laminar_core.driver.checkpointing import CoordinatorParts
from laminar_core.driver.coordinator_thread import CoordinatorThread
from laminar_core.driver.events import JobEvent
from laminar_core.driver.execution import Collected
from laminar_core.driver.left_applications import ApplicationEnding
from laminar_core.driver.listening import IsolatedListener
from laminar_core.host.clock import SystemClock
from laminar_core.link.addresses import TransportKind
from laminar_core.link.transport import CoordinatorTransport, ZmqWorkerTransport
from laminar_core.link.unix_sockets import NearEndpoint
from laminar_core.records.manifest import Owner
from laminar_core.records.spark_application import SparkApplication
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.owner import this_process
from laminar_core.worker.deployment import Deployment
from laminar_core.worker.snapshots import background_threads
from laminar_core.worker.worker import Worker

HOST = "127.0.0.1"


Announce = Callable[[int, str], str]
"""Returns the address of a worker, given its index and where it listens."""


AnnounceNear = Callable[[int, NearEndpoint | None], NearEndpoint | None]
"""Returns where a worker takes frames of its host, given its index and where it listens."""


def _as_it_is(worker: int, endpoint: str) -> str:
    del worker
    return endpoint


def _far_apart(worker: int, near: NearEndpoint | None) -> None:
    del worker, near


class ThreadCluster:
    """A ``Cluster`` whose workers are threads of this process.

    They stand for workers of several hosts, unless ``announce_near`` says otherwise.
    """

    def __init__(
        self,
        kind: TransportKind = "ipc",
        announce: Announce = _as_it_is,
        announce_near: AnnounceNear = _far_apart,
    ) -> None:
        self._kind: TransportKind = kind
        self._announce = announce
        self._announce_near = announce_near

    def identify(self) -> Owner:
        """Return the identity of this process."""
        return this_process()

    def application(self) -> None:
        """Return None: no cluster manager keeps anything for it."""

    def end_application(self, application: SparkApplication) -> ApplicationEnding:
        """Return that it is gone: there is no cluster manager."""
        del application
        return ApplicationEnding("gone")

    can_be_renewed = False

    slots = None
    slot_holders = ""

    def check(self, parallelism: int) -> tuple[JobEvent, ...]:
        """Accept any number of workers."""
        del parallelism
        return ()

    def start_coordinator(
        self, parts: CoordinatorParts, listener: IsolatedListener
    ) -> CoordinatorThread:
        """Start a coordinator as in a driver."""
        transport = CoordinatorTransport(self._kind, HOST, parts.identity.parallelism)
        return CoordinatorThread(parts, transport, SystemClock(), listener)

    def submit(self, deployment: Deployment) -> "ThreadStage":
        """Start the threads."""
        return ThreadStage(deployment, self._announce, self._announce_near)

    def wait(self, futures: Collection[Future[Any]], timeout_ms: float | None = None) -> None:
        """Wait until one of the futures is done."""
        wait(futures, None if timeout_ms is None else timeout_ms / 1_000, FIRST_COMPLETED)


class ThreadStage:
    """The workers of one generation."""

    def __init__(
        self, deployment: Deployment, announce: Announce, announce_near: AnnounceNear
    ) -> None:
        self.ended: Future[Collected] = Future()
        executor = ThreadPoolExecutor(deployment.parallelism + 1, "laminar-worker")
        workers = [
            executor.submit(_work, deployment, index, announce, announce_near)
            for index in range(deployment.parallelism)
        ]
        executor.submit(self._await, workers)
        executor.shutdown(wait=False)

    def interrupt(self) -> None:
        """Do nothing: threads exit by themselves when their coordinator is gone."""

    def _await(self, workers: list["Future[None]"]) -> None:
        wait(workers)
        failed = [error for worker in workers if (error := worker.exception()) is not None]
        if failed:
            self.ended.set_exception(failed[0])
        else:
            self.ended.set_result({})


def _work(
    deployment: Deployment, index: int, announce: Announce, announce_near: AnnounceNear
) -> None:
    """Run one worker, like a Spark task."""
    transport = ZmqWorkerTransport(deployment.address, index, HOST)
    transport.endpoint = announce(index, transport.endpoint)
    transport.near = announce_near(index, transport.near)
    store = CheckpointStore.open(deployment.store_uri, deployment.job)
    with background_threads() as threads:
        worker = Worker(deployment, index, transport, store, threads, SystemClock())
        try:
            worker.start(HOST)
            worker.register(os.getpid(), HOST)
            list(worker.run())
        except Exception as error:
            worker.failed(error)
            raise
        finally:
            worker.close()
            transport.close()
