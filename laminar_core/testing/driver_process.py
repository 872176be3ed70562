"""A driver in a simulation: it replaces Spark and threads for the supervisor."""

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from itertools import islice
from typing import Any

from laminar_core.driver.checkpointing import Background, CoordinatorParts
from laminar_core.driver.coordination import Coordinator
from laminar_core.driver.events import JobEvent
from laminar_core.driver.left_applications import ApplicationEnding
from laminar_core.driver.listening import IsolatedListener
from laminar_core.errors import ErrorCode
from laminar_core.link.transport import CoordinatorAddress
from laminar_core.records.manifest import Owner
from laminar_core.records.spark_application import SparkApplication
from laminar_core.testing.executor import SimulatedExecutor
from laminar_core.testing.network import Network, SimulatedCoordinatorLink, worker_endpoint
from laminar_core.testing.worker_process import OpenStore, SimulatedStage, WorkerProcess
from laminar_core.testing.world import Process, ProcessKilledError, World
from laminar_core.worker.deployment import Deployment


class SimulatedCoordinator(Process):
    """A coordinator with its turns, and its background threads."""

    def __init__(
        self,
        world: World,
        network: Network,
        name: str,
        parts: CoordinatorParts,
        notify: IsolatedListener,
    ) -> None:
        super().__init__(world, f"{name}-g{parts.identity.generation}")
        self._clock = world.clock_of(name)
        self.address = CoordinatorAddress("ipc", f"sim://{self.name}")
        self._link = SimulatedCoordinatorLink(network, self.address.endpoint, self)
        self._executors = [
            SimulatedExecutor(world, f"{self.name}-{what}")
            for what in ("store", "commits", "deletions", "control", "copies", "scrub", "discovery")
        ]
        self.coordinator = Coordinator(
            parts, self._link, Background(*self._executors), self._clock, notify
        )
        self._network = network
        world.add(self)
        self.wake()

    def turn(self) -> float:
        """Run one turn of the coordinator."""
        try:
            self.coordinator.turn()
        except Exception as error:  # noqa: BLE001 - it ends the generation, and is reported
            self.coordinator.fail(ErrorCode.ILLEGAL_EVENT, f"the coordinator failed: {error!r}")
            self.world.remove(self)
        return self._clock.to_world_ms(max(self.coordinator.wait_ms(), 0.0))

    def hold(self, *, held: bool = True) -> None:
        """Put it to sleep, with its threads, or let go of it."""
        for process in (self, *self._executors):
            process.held = held

    def close(self, reason: str) -> None:
        """Close it like the thread in a driver."""
        store, commits, deletions, control, copies, scrub, discovery = self._executors
        self.coordinator.abandon(reason)
        commits.shutdown(cancel_futures=True)
        deletions.shutdown(cancel_futures=True)
        copies.shutdown(cancel_futures=True)
        scrub.shutdown(cancel_futures=True)
        discovery.shutdown(cancel_futures=True)
        control.shutdown()
        store.shutdown()
        self._remove()

    def kill(self) -> None:
        """Remove it, because its driver was killed."""
        self._network.lose(self.address.endpoint)
        for executor in self._executors:
            executor.kill()
        self._remove()

    def _remove(self) -> None:
        self._link.close()
        self.world.remove(self)


class SimulatedDriver:
    """A ``Cluster`` and a ``Clock`` for one supervisor. Its waits are what lets others run."""

    def __init__(
        self,
        world: World,
        network: Network,
        number: int,
        open_store: OpenStore,
    ) -> None:
        self.name = f"driver-{number}"
        self.killed = False
        self.held = False
        """Asleep: also its main thread does not go on."""
        self.slots: int | None = None
        """Number of workers that can run; None: any number."""
        self.applications: set[str] | None = None
        """Names of drivers whose application is not ended; None: without a cluster manager."""
        self.slot_holders = ""
        self.paces: Mapping[int, float] = {}
        """Slow-down factor of workers, by index."""
        self.coordinators: list[SimulatedCoordinator] = []
        self.stages: list[SimulatedStage] = []
        self._world = world
        self._clock = world.clock_of(self.name)
        self._network = network
        self._number = number
        self._claims = 0
        self._open_store = open_store

    def kill(self) -> None:
        """Kill the driver: its coordinators vanish; its workers do not know yet."""
        self.killed = True
        self._world.note(self.name, "is killed")
        for coordinator in self.coordinators:
            coordinator.kill()

    def hold(self, *, held: bool = True) -> None:
        """Put it, its coordinators and its workers to sleep, or let go of them."""
        self.hold_itself(held=held)
        for stage in self.stages:
            for worker in stage.workers:
                worker.hold(held=held)

    def hold_itself(self, *, held: bool = True) -> None:
        """Put the driver's own process to sleep, or let go of it; workers are awake."""
        self._world.note(self.name, "falls asleep" if held else "wakes up")
        self.held = held
        for coordinator in self.coordinators:
            coordinator.hold(held=held)

    def break_link(self, sender: int, receiver: int) -> int | None:
        """Break a connection between two workers of the newest generation.

        Returns the number of lost frames; None if the receiver does not exist.
        """
        if not self.coordinators:
            return None
        here = self.coordinators[-1].address.endpoint
        return self._network.break_connection(
            worker_endpoint(here, sender), worker_endpoint(here, receiver)
        )

    def silence_link(self, sender: int, receiver: int, lasts_ms: float) -> None:
        """Let nothing of one worker of the newest generation arrive at another for so long."""
        if self.coordinators:
            here = self.coordinators[-1].address.endpoint
            self._network.silence(
                worker_endpoint(here, sender), worker_endpoint(here, receiver), lasts_ms
            )

    # --- the cluster ----------------------------------------------------------------------------

    def identify(self) -> Owner:
        """Return the identity of a process on a machine of its own."""
        self._claims += 1
        return Owner(
            host_id=self.name,
            boot_id="simulated",
            pid=self._number,
            pid_start_time=0,
            claim_number=self._claims,
            user="simulation",
        )

    def application(self) -> SparkApplication | None:
        """Return the application of this driver, which outlives it."""
        if self.applications is None:
            return None
        self.applications.add(self.name)
        return SparkApplication(application_id=self.name, master="simulated")

    def end_application(self, application: SparkApplication) -> ApplicationEnding:
        """Forget an application."""
        if self.applications is None or application.application_id not in self.applications:
            return ApplicationEnding("gone")
        self.applications.remove(application.application_id)
        return ApplicationEnding("ended")

    can_be_renewed = True

    def check(self, parallelism: int) -> tuple[JobEvent, ...]:
        """Accept any number of workers."""
        del parallelism
        return ()

    def start_coordinator(
        self, parts: CoordinatorParts, listener: IsolatedListener
    ) -> SimulatedCoordinator:
        """Add a coordinator to the world."""
        self._live()
        started = SimulatedCoordinator(self._world, self._network, self.name, parts, listener)
        self.coordinators.append(started)
        return started

    def submit(self, deployment: Deployment) -> SimulatedStage:
        """Add the workers to the world."""
        self._live()
        room = deployment.parallelism if self.slots is None else self.slots
        workers = [
            WorkerProcess(self._world, self._network, own, index, self._open_store)
            for index, own in enumerate(islice(deployment.of_workers(), room))
        ]
        for worker in workers:
            worker.pace = self.paces.get(worker.index, 1.0)
        self.stages.append(SimulatedStage(self._world, workers))
        return self.stages[-1]

    def wait(self, futures: Collection[Future[Any]], timeout_ms: float | None = None) -> None:
        """Run other processes until a future is done, or the time is over."""
        self._run_until(lambda: any(future.done() for future in futures), timeout_ms)

    # --- the clock ------------------------------------------------------------------------------

    def now_ms(self) -> int:
        """Return its machine's wall clock."""
        return self._clock.now_ms()

    def monotonic_ms(self) -> float:
        """Return its machine's monotonic clock."""
        return self._clock.monotonic_ms()

    def wait_ms(self, duration_ms: float) -> None:
        """Run other processes for this long."""
        self._run_until(lambda: False, duration_ms)

    def _run_until(self, done: Callable[[], bool], timeout_ms: float | None) -> None:
        self._live()
        world_ms = None if timeout_ms is None else self._clock.to_world_ms(timeout_ms)
        self._world.run_until(lambda: self.killed or (not self.held and done()), world_ms)
        self._world.run_until(lambda: self.killed or not self.held)
        self._live()

    def _live(self) -> None:
        if self.killed:
            raise ProcessKilledError(self.name)
