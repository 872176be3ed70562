"""Enumerate every store operation of an act: crash exactly there, and inspect the result.

Chance finds what is likely; a crash between two particular writes is not. Here nothing is drawn:

    for point in crash_points(apply_plan, disk):
        left = disk.copy()
        crash_at(point, apply_plan, left)
        apply_plan(left)  # The next process.
        verify(left)

``simulated_crash`` does the same to a whole job: the process that makes the call dies there, or
the call fails, or its answer is lost, and other drivers bring the job to its end.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from laminar_core.errors import ErrorCode, StorageUnavailable
from laminar_core.objectstore.opening import ObjectStore
from laminar_core.testing.disk import SimulatedDisk
from laminar_core.testing.jobs import Job
from laminar_core.testing.observed_store import ObservedStore, StoreCall
from laminar_core.testing.simulation import Simulation
from laminar_core.testing.world import ProcessKilledError

Act = Callable[[ObjectStore], object]
"""An interruptible act: it does all its work through the given store."""

Effect = Literal["crash", "fail"]
"""``crash`` kills the process there; ``fail`` raises, and the process continues."""

SINK = "sink"
"""The process that a sink's operations are counted under; the newest driver makes them."""

WRITES = ("put", "put_if_absent", "delete")
"""Between the two moments of one that only reads nothing changes, so its end is no point."""


@dataclass(frozen=True, slots=True)
class CrashPoint:
    """One moment of one operation. ``number`` counts moments from 1."""

    number: int
    operation: str
    """Description for display, the same in every run that is equal up to here."""
    moment: Literal["before", "after"]
    effect: Effect

    def __str__(self) -> str:
        lost = "its answer is lost" if self.moment == "after" else "it fails"
        what = {"crash": f"crash {self.moment} it", "fail": lost}[self.effect]
        return f"{self.number} ({self.operation}): {what}"


class Tripwire:
    """Counts moments and strikes at one of them.

    Use it as an observer of a store, or call ``reach``.
    """

    def __init__(
        self, point: CrashPoint | None = None, strike: Callable[[str], None] | None = None
    ) -> None:
        self.reached: list[tuple[str, Literal["before", "after"]]] = []
        """The moments passed so far: operation and moment."""
        self.struck = False
        self._point = point
        self._strike = strike

    def reach(self, process: str, operation: str, moment: Literal["before", "after"]) -> None:
        """Pass one moment of one operation.

        Raises:
            ProcessKilledError: this is where the process ends.
            StorageUnavailable: this is what fails.
        """
        self.reached.append((operation, moment))
        point = self._point
        if point is None or len(self.reached) != point.number:
            return
        said = (point.operation, point.moment)
        assert said == (operation, moment), f"{point} is now {operation}: the run is another one"
        self.struck = True
        if point.effect == "fail":
            raise StorageUnavailable(ErrorCode.STORE_IO, f"it did not answer: {operation}")
        if self._strike is not None:
            self._strike(process)
        raise ProcessKilledError(process)

    def points(self) -> list[CrashPoint]:
        """Return a crash and a failure at every moment passed."""
        effects: tuple[Effect, ...] = ("crash", "fail")
        return [
            CrashPoint(number, operation, moment, effect)
            for number, (operation, moment) in enumerate(self.reached, 1)
            for effect in effects
        ]


# --- an act of one process ------------------------------------------------------------------------


def crash_points(
    act: Act, disk: SimulatedDisk, effects: Sequence[Effect] = ("crash",)
) -> list[CrashPoint]:
    """Run ``act`` on a copy of ``disk``; return every moment at which it may be interrupted."""
    wire = Tripwire()
    act(_observed(disk.copy(), wire))
    return [point for point in wire.points() if point.effect in effects]


def crash_at(point: CrashPoint, act: Act, disk: SimulatedDisk) -> None:
    """Run ``act`` on ``disk`` up to the point, and catch the exception raised there."""
    wire = Tripwire(point)
    try:
        act(_observed(disk, wire))
    except (ProcessKilledError, StorageUnavailable):
        assert wire.struck, f"{point} was not what ended it"
        return
    assert wire.struck, f"{point} was never reached"


def _observed(disk: SimulatedDisk, wire: Tripwire) -> ObservedStore:
    def observe(call: StoreCall) -> None:
        if _matters(call):
            wire.reach("it", _operation(call), call.moment)

    return ObservedStore(disk, "it", observe)


def _matters(call: StoreCall) -> bool:
    return call.moment == "before" or call.verb in WRITES


def _operation(call: StoreCall) -> str:
    return f"{call.verb} {call.key}"


# --- a job ----------------------------------------------------------------------------------------

Build = Callable[[], tuple[Job, Simulation]]
"""Makes a job that is about to run, or to go on; two calls make two that are equal."""


@dataclass(frozen=True, slots=True)
class CrashedJob:
    """A job that was interrupted once and came to its end all the same."""

    point: CrashPoint
    job: Job
    simulation: Simulation


def _as_it_is(simulation: Simulation) -> None:
    del simulation


def simulated_points(
    build: Build, matches: Callable[[StoreCall], bool], effects: Sequence[Effect]
) -> list[CrashPoint]:
    """Run the job undisturbed; return where it may be interrupted: matching calls, and sinks'."""
    wire = Tripwire()
    job, simulation = build()
    _watch(job, simulation, matches, wire)
    simulation.run()
    return [point for point in wire.points() if point.effect in effects]


def simulated_crash(
    build: Build,
    matches: Callable[[StoreCall], bool],
    point: CrashPoint,
    fall_back: Callable[[Simulation], None] = _as_it_is,
) -> CrashedJob:
    """Run the job up to the point; later drivers bring it to its end.

    ``fall_back`` may change what the next driver finds, or is asked for.

    Raises:
        AssertionError: the point was not reached, or too many drivers were killed.
        LaminarError: a driver was refused, or failed and was not the one that was interrupted.
    """
    job, simulation = build()
    wire = Tripwire(point, lambda process: _kill(simulation, process))
    _watch(job, simulation, matches, wire)
    try:
        simulation.run()
    except (StorageUnavailable, ProcessKilledError):  # Also one that cannot even claim the job.
        fall_back(simulation)
        simulation.run_to_end()
    assert wire.struck, f"{point} was never reached"
    return CrashedJob(point, job, simulation)


def by_drivers(call: StoreCall) -> bool:
    """Return whether a driver makes the call: claims, choices, publications, commits, deletions."""
    return call.process.startswith("driver-") and not call.key.endswith(".heartbeat.json")


def _watch(
    job: Job, simulation: Simulation, matches: Callable[[StoreCall], bool], wire: Tripwire
) -> None:
    def observe(call: StoreCall) -> None:
        if matches(call) and _matters(call):
            wire.reach(call.process, f"{call.process}: {_operation(call)}", call.moment)

    def observe_sink(name: str) -> Callable[[str, Literal["before", "after"]], None]:
        def reach(verb: str, moment: Literal["before", "after"]) -> None:
            if verb != "stage":
                wire.reach(SINK, f"{SINK} {name}: {verb}", moment)

        return reach

    simulation.observers.append(observe)
    for name, ledger in job.ledgers.items():
        ledger.observe = observe_sink(name)


def _kill(simulation: Simulation, process: str) -> None:
    for driver in simulation.drivers:
        for stage in driver.stages:
            for worker in stage.workers:
                if worker.name == process:
                    worker.kill()
        if process == driver.name:
            driver.kill()
    if process == SINK:
        simulation.kill_driver()
