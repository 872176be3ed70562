"""A whole job in one thread: real supervisor, coordinator and workers, simulated environment.

    ledger = Ledger()
    p = Pipeline("words")
    p.source("in", MemorySource([table])).map(double).sink("out", LedgerSink(ledger))
    simulation = Simulation(p.plan(), parallelism=2, seed=7)
    simulation.world.at_turn(150, lambda: simulation.kill_worker(0))
    simulation.run_to_end()
    assert ledger.rows() == [...]

Equal seeds give equal runs, to the last turn.
"""

from collections.abc import Callable
from dataclasses import replace

from laminar_core.driver.events import JobEvent
from laminar_core.driver.options import JobOptions, JobResult
from laminar_core.driver.restart import FixedDelay
from laminar_core.driver.supervisor import Supervisor
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.objectstore.opening import ObjectStore
from laminar_core.plan.plan import Plan
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.testing.driver_process import SimulatedDriver
from laminar_core.testing.network import Network
from laminar_core.testing.observed_store import ObservedStore, StoreCall
from laminar_core.testing.places import Place, directory
from laminar_core.testing.worker_process import WorkerProcess
from laminar_core.testing.world import TURNS_MAX, ProcessKilledError, World

JOB = "simulated"


class Simulation:
    """One job, its store, and its drivers, one after the other or concurrently.

    A simulation that continues with the ``objects`` of another one numbers its drivers from
    ``first_driver`` on, because all drivers of a job must differ.
    """

    def __init__(  # noqa: PLR0913 - a configuration, by keyword
        self,
        plan: Plan,
        *,
        parallelism: int = 2,
        seed: int = 0,
        checkpoint: CoordinatorConfig | None = None,
        objects: ObjectStore | None = None,
        reorders: int = 0,
        turns_max: int = TURNS_MAX,
        first_driver: int = 1,
        job: str = JOB,
    ) -> None:
        self.plan = plan
        self.world = World(seed, turns_max)
        self.network = Network(self.world, reorders)
        """``reorders``: how many frames of data a later one may overtake on its way."""
        self.objects = objects or MemoryObjectStore()
        self.store = CheckpointStore(self.objects, job)
        """Everybody's checkpoints, seen from outside: its calls are not observed."""
        self.options = JobOptions(
            job=job,
            store_uri="memory://",
            parallelism=parallelism,
            checkpoint=checkpoint or CoordinatorConfig(interval_ms=40),
            restart=FixedDelay(attempts=20, pause_ms=10),
        )
        self.events: list[JobEvent] = []
        self._awaited: dict[tuple[type[JobEvent], int], list[Callable[[], None]]] = {}
        self.drivers: list[SimulatedDriver] = []
        self.supervisors: list[Supervisor] = []
        self._first_driver = first_driver
        self.slots: int | None = None
        """Number of workers that a new driver can run; None: any number."""
        self.applications: set[str] | None = None
        """Drivers whose application the cluster manager still has; None: there is no manager."""
        self.paces: dict[int, float] = {}
        """Slow-down factor of workers, by index."""
        self._place: Place | None = None
        """The replacement that all processes see instead of the store."""
        self._places: dict[str, Place] = {}
        """The replacements that single hosts see."""
        self._views: dict[str, list[ObservedStore]] = {}
        """The stores opened by processes, by host."""
        self.observers: list[Callable[[StoreCall], None]] = []
        """Called for every store call by a process of the job; see ``StoreCall``."""

    # --- the job --------------------------------------------------------------------------------

    def run(self, **changes: object) -> JobResult:
        """Run one driver until the job has ended; ``changes`` are fields of ``JobOptions``.

        Raises:
            LaminarError: see ``Supervisor.run``.
            ProcessKilledError: the driver was killed.
        """
        number = self._first_driver + len(self.drivers)
        driver = SimulatedDriver(self.world, self.network, number, self._open_store)
        driver.slots, driver.paces = self.slots, self.paces
        driver.applications = self.applications
        self.drivers.append(driver)
        supervisor = Supervisor(
            driver,
            self.plan,
            replace(self.options, **changes),
            self._open_store(driver.name, lambda: not driver.killed),
            driver,
            self._notify,
        )
        self.supervisors.append(supervisor)
        return supervisor.run()

    def run_to_end(self, drivers_max: int = 10) -> JobResult:
        """Run the job; a driver that is killed is followed by another one."""
        for _ in range(drivers_max):
            try:
                return self.run()
            except ProcessKilledError:
                continue
        raise AssertionError(f"{drivers_max} drivers were killed")

    def close(self) -> None:
        """Kill the workers that still run, such as those of a driver that sleeps."""
        for process in self.world.processes:
            if isinstance(process, WorkerProcess):
                process.kill()

    def _open_store(self, process: str, lives: Callable[[], bool]) -> CheckpointStore:
        def observe(call: StoreCall) -> None:
            for observer in self.observers:
                observer(call)
            if not lives():
                raise ProcessKilledError(process)

        host = process.partition("-worker-")[2]
        view = ObservedStore(self.objects, process, observe)
        self._show(host, view, seen=False)
        self._views.setdefault(host, []).append(view)
        return CheckpointStore(view, self.store.job)

    def _notify(self, event: JobEvent) -> None:
        self.events.append(event)
        self.world.note("job", describe(event))
        kind = type(event)
        count = sum(isinstance(e, kind) for e in self.events)
        for action in self._awaited.pop((kind, count), ()):
            self.world.later(0, action)

    # --- what happens to it ---------------------------------------------------------------------

    def kill_worker(self, index: int) -> None:
        """Kill this worker of the newest stage, if it lives."""
        stages = self.drivers[-1].stages if self.drivers else []
        if stages and index < len(stages[-1].workers):
            stages[-1].workers[index].kill()

    def break_link(self, sender: int, receiver: int) -> int | None:
        """Break the connection between two workers, and reconnect.

        Returns the number of lost frames; None if the receiver does not exist.
        """
        return self.drivers[-1].break_link(sender, receiver) if self.drivers else None

    def silence_link(self, sender: int, receiver: int, lasts_ms: float) -> None:
        """Let nothing of one worker arrive at another for so long, without a notice to either."""
        if self.drivers:
            self.drivers[-1].silence_link(sender, receiver, lasts_ms)

    @property
    def store_is_lost(self) -> bool:
        """Whether any process sees a replacement of the job's store."""
        return self._place is not None or bool(self._places)

    @property
    def has_namesake(self) -> bool:
        """Whether the replacement is a store with a job of this name."""
        return self._place is not None and self._place.has_the_job

    def unmount(self, instead: Place) -> None:
        """Show a replacement of the store to all processes from now on."""
        self._place = instead
        self._show_all(instead)

    def mount(self) -> None:
        """Show the job's store to all processes again."""
        self._place = None
        self._show_all()

    def unmount_worker(self, index: int, instead: Place | ObjectStore | None = None) -> None:
        """Show the host of this worker another store from now on, by default an empty one."""
        if not isinstance(instead, Place):
            instead = directory(instead or MemoryObjectStore())
        self._places[str(index)] = instead
        self._show_all(instead)

    def mount_worker(self, index: int) -> None:
        """Show the job's store to the host of this worker again."""
        self._places.pop(str(index), None)
        self._show_all()

    def _show_all(self, new: Place | None = None) -> None:
        if new is not None:
            new.since_stretch = self.world.stretches
        for host, views in self._views.items():
            for view in views:
                self._show(host, view, seen=True)

    def _show(self, host: str, view: ObservedStore, *, seen: bool) -> None:
        place = self._place or self._places.get(host)
        if place is not view.place:
            view.place = place
            view.inner = self.objects if place is None else place.open(seen=seen)

    def kill_driver(self) -> None:
        """Kill the newest driver."""
        if self.drivers:
            self.drivers[-1].kill()

    def when(self, kind: type[JobEvent], action: Callable[[], None], number: int = 1) -> None:
        """Call ``action`` in the turn after the n-th event of this kind."""
        self._awaited.setdefault((kind, number), []).append(action)

    def stop(self) -> None:
        """Stop the newest driver with a last checkpoint."""
        self.supervisors[-1].stop()

    def cancel(self) -> None:
        """End the newest driver at once."""
        self.supervisors[-1].cancel()


def describe(event: JobEvent) -> str:
    """Return the event as one line, without its time."""
    said = event.model_dump(mode="json", exclude={"event", "time_ms"})
    facts = ", ".join(f"{name} {_short(value)}" for name, value in said.items() if value)
    return f"{event.event}: {facts}"


def _short(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
