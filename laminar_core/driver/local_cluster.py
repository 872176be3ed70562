"""Workers in threads of this process: for a short look at a pipeline, without Spark.

All workers share one interpreter, so this is no way to run a job. A thread cannot be killed: what a
user's function does in it ends when the function returns.
"""

import threading
from collections.abc import Collection, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import pyarrow as pa

from laminar_core.driver.checkpointing import CoordinatorParts
from laminar_core.driver.coordinator_thread import CoordinatorThread
from laminar_core.driver.events import JobEvent
from laminar_core.driver.execution import Collected
from laminar_core.driver.left_applications import ApplicationEnding
from laminar_core.driver.listening import IsolatedListener
from laminar_core.host.clock import Clock
from laminar_core.host.waiting import wait_for_first
from laminar_core.link.transport import CoordinatorTransport, ZmqWorkerTransport
from laminar_core.records.manifest import Owner
from laminar_core.records.spark_application import SparkApplication
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.owner import this_process
from laminar_core.worker.deployment import Deployment
from laminar_core.worker.running import run_worker

_HOST = "localhost"


class LocalCluster:
    """A cluster that is this process; ``store`` may be one in its memory."""

    can_be_renewed = False
    slots = None
    """Any number of workers can run."""
    slot_holders = ""

    def __init__(self, store: CheckpointStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def identify(self) -> Owner:
        """Return the identity of this process."""
        return this_process()

    def application(self) -> None:
        """Return None: no cluster manager keeps anything for it."""

    def end_application(self, application: SparkApplication) -> ApplicationEnding:
        """Return that it is gone: there is no cluster manager."""
        del application
        return ApplicationEnding("gone")

    def check(self, parallelism: int) -> Sequence[JobEvent]:
        """Accept any number of workers."""
        del parallelism
        return ()

    def start_coordinator(
        self, parts: CoordinatorParts, listener: IsolatedListener
    ) -> CoordinatorThread:
        """Bind its socket and start its thread."""
        transport = CoordinatorTransport("ipc", _HOST, parts.identity.parallelism)
        return CoordinatorThread(parts, transport, self._clock, listener)

    def submit(self, deployment: Deployment) -> "LocalStage":
        """Start the workers."""
        return LocalStage(deployment, self._store)

    def wait(self, futures: Collection[Future[Any]], timeout_ms: float | None = None) -> None:
        """Wait until one of the futures is done, or the time is over."""
        wait_for_first(futures, timeout_ms)


class LocalStage:
    """The workers of one generation, each in a thread that does not keep the process alive."""

    def __init__(self, deployment: Deployment, store: CheckpointStore) -> None:
        self.ended: Future[Collected] = Future()
        self._store = store
        self._lock = threading.Lock()
        self._collected: dict[str, list[pa.RecordBatch]] = {}
        self._left = deployment.parallelism
        for index, own in enumerate(deployment.of_workers()):
            name = f"laminar-worker-{index}"
            threading.Thread(target=self._run, args=(own, index), name=name, daemon=True).start()

    def interrupt(self) -> None:
        """Do nothing: a worker leaves when it hears of the end, and a thread cannot be killed."""

    def _run(self, deployment: Deployment, index: int) -> None:
        try:
            collected = self._work(deployment, index)
        except BaseException as error:  # noqa: BLE001 - whoever asks the future gets it
            with suppress(Exception):  # Another worker was the first.
                self.ended.set_exception(error)
            return
        with self._lock:
            for sink, batch in collected:
                self._collected.setdefault(sink, []).append(batch)
            self._left -= 1
            if not self._left and not self.ended.done():
                tables = {s: pa.Table.from_batches(b) for s, b in self._collected.items()}
                self.ended.set_result(tables)

    def _work(self, deployment: Deployment, index: int) -> list[tuple[str, pa.RecordBatch]]:
        transport = ZmqWorkerTransport(deployment.address, index, _HOST)
        try:
            return list(run_worker(deployment, index, _HOST, transport, self._store))
        finally:
            transport.close()
