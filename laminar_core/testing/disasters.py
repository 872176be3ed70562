"""Brings a simulated job to its end, whatever was planned to happen to it on the way.

What can happen: ``disaster_kinds``. ``hits`` counts what came to pass; the moment that dice picked
may lie behind the end of the job.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from laminar_core.driver.options import JobResult
from laminar_core.errors import (
    ConfigurationError,
    CorruptCheckpointError,
    ErrorCode,
    FencedError,
    JobFailedError,
    LaminarError,
    StorageUnavailable,
)
from laminar_core.testing.jobs import Job
from laminar_core.testing.observed_store import StoreCall
from laminar_core.testing.places import Place
from laminar_core.testing.simulation import Simulation
from laminar_core.testing.world import ProcessKilledError

TURNS_PER_WORKER = 150
"""About as many turns as an undisturbed run takes."""

DRIVERS_MAX = 30
"""A job that needs more drivers than this does not get anywhere."""

_LOST_STORE = (
    ErrorCode.RESTARTS_EXHAUSTED,
    ErrorCode.STORE_GONE,
    ErrorCode.STORE_REPLACED,
    ErrorCode.STORE_NOT_SHARED,
)
"""Why a driver may end that does not find its store."""

_RECOVERABLE = ("failed", "refused")
"""Ends after which the recovery, or the person who was refused, starts the job again."""


class Disasters:
    """Plans disasters for one job, and runs it through them."""

    def __init__(
        self, simulation: Simulation, job: Job, dice: Random, store_dice: Random | None = None
    ) -> None:
        self.simulation = simulation
        self.job = job
        self.dice = dice
        self.store_dice = store_dice or dice
        """For disasters of the store as a whole: the others do not depend on them."""
        self.hits: Counter[str] = Counter()
        self.result: JobResult | None = None
        """How the job ended; whichever driver brought it to an end."""
        self.last_hit_ms = simulation.world.now_ms
        """When the last disaster began, or the last one that lasts was over."""
        self.damaged_keys: set[str] = set()
        """Stored objects that were damaged on purpose."""
        self.next_run: dict[str, Any] = {}
        """Fields of ``JobOptions`` for the next driver."""
        self.store_back_ms: float | None = None
        """When the store was back for the last time before the job ended."""
        self.running: list[str] = []
        """Drivers that have not ended, in the order in which they began."""
        self.places: list[Place] = []
        """What was in place of the store."""
        self.ends_while_lost: list[str] = []
        """What the records of generations say whose driver ended because it lost the store, if that
        is no reason to start the job again."""
        self.may_lose_store = False
        """It is planned that the store as a whole goes away."""
        self._losses = 0
        self._delays: list[tuple[str, float, float]] = []
        self._allow_fresh = False

    @property
    def world_ms(self) -> float:
        """The world's time."""
        return self.simulation.world.now_ms

    # --- the run --------------------------------------------------------------------------------

    def run(self) -> JobResult:
        """Drivers until one of them brings the job to an end.

        Raises:
            AssertionError: too many of them did not.
        """
        for _ in range(DRIVERS_MAX):
            self.run_one()
            if self.result is not None:
                return self.result
        raise AssertionError(f"{DRIVERS_MAX} drivers did not bring the job to an end")

    def run_one(self) -> None:
        """One driver, or the next one if it is killed; it may find that the job is not its own."""
        options, self.next_run = self._options_now(), {}
        before = -1 if self.simulation.store_is_lost else self._losses
        self.running.append(f"driver-{len(self.simulation.drivers) + 1}")
        try:
            result = self.simulation.run(allow_fresh=self._allow_fresh, **options)
            if result.outcome == "finished":
                self.result = result
        except (FencedError, ProcessKilledError, StorageUnavailable) as error:
            self.simulation.world.note("job", f"a driver is over: {type(error).__name__} {error}")
        except JobFailedError as error:
            if error.code is not ErrorCode.CANCELLED and not self._lost_store(error, before):
                raise
        except (ConfigurationError, CorruptCheckpointError) as error:
            self.simulation.world.note("job", f"a driver is refused: {error}")
            if error.code is ErrorCode.NO_RESTORABLE_CHECKPOINT and self.hits["corruption"]:
                self._allow_fresh = True  # As a person would decide who was told.
            elif (
                error.code is not ErrorCode.JOB_OWNED
                and not (self.may_lose_store and error.code is ErrorCode.UNEXPECTED_GENERATION)
                and not self._was_deleted(options)
                and not self._lost_store(error, before)
            ):
                raise
        finally:
            self.running.pop()
        if self.result is None and self.simulation.store_is_lost:
            self.simulation.world.run_until(lambda: not self.simulation.store_is_lost)

    def lose_store(self, place: Place, worker: int | None, lasts_ms: float) -> None:
        """Let everybody, or the host of one worker, see ``place`` instead of the store."""
        simulation = self.simulation

        def heal() -> None:
            if worker is None:
                simulation.mount()
            else:
                simulation.mount_worker(worker)
            if self.result is None:
                self.store_back_ms = self.world_ms
            simulation.world.note("FAULT", "the store is back")

        self._losses += 1
        self.places.append(place)
        if worker is None:
            simulation.unmount(place)
        else:
            simulation.unmount_worker(worker, place)
        simulation.world.later(lasts_ms, heal)

    def _options_now(self) -> dict[str, Any]:
        """Whoever starts a job that may lose its store names what it goes on from, as the recovery.

        It is not started while a store is there that has the job's name: nobody could tell.
        """
        simulation, options = self.simulation, dict(self.next_run)
        if simulation.has_namesake:
            simulation.world.run_until(lambda: not simulation.has_namesake)
        if self.may_lose_store and (newest := simulation.store.last_generation()):
            options["expected_generation"] = newest
        return options

    def _lost_store(self, error: LaminarError, losses_before: int) -> bool:
        """Whether a driver may have ended so because it lost the store; notes how it was left."""
        if self._losses == losses_before or error.code not in _LOST_STORE:
            return False
        self.simulation.world.note("job", f"a driver has lost its store: {error.code} {error}")
        own = (
            generation
            for generation in self.simulation.store.generations()
            if generation.claim is not None and generation.claim.owner.host_id == self.running[-1]
        )
        for end in (generation.end for generation in own):
            if end is not None and end.outcome not in _RECOVERABLE:
                self.ends_while_lost.append(f"generation {end.generation} {end.outcome}")
        return True

    def _was_deleted(self, options: Mapping[str, Any]) -> bool:
        """Whether what somebody asked for may have been deleted before it could be restored."""
        return "restore_id" in options and bool(self.hits["retention"])

    def let_zombies_speak(self) -> None:
        """Until the last of them has noticed that nobody answers."""
        world = self.simulation.world
        world.run_until(lambda: world.deserted, 60_000)

    # --- moments --------------------------------------------------------------------------------

    def hit(self, kind: str, what: str, lasts_ms: float = 0.0) -> bool:
        """Count it, if the job has not ended before."""
        if self.result is not None:
            return False
        self.hits[kind] += 1
        self.last_hit_ms = max(self.last_hit_ms, self.world_ms + lasts_ms)
        self.simulation.world.note("FAULT", f"{kind}: {what}")
        return True

    def turns_of_a_run(self) -> int:
        """About as many turns as an undisturbed run takes."""
        return TURNS_PER_WORKER * (1 + self.simulation.options.parallelism)

    def at_some_turn(self, action: Callable[[], None]) -> None:
        """Do it just before some turn."""
        self.simulation.world.at_turn(self.dice.randrange(1, self.turns_of_a_run()), action)

    def at_some_call(
        self,
        calls: int,
        matches: Callable[[StoreCall], bool],
        action: Callable[[StoreCall], None],
        dice: Random | None = None,
    ) -> None:
        """Do it in one of the next ``calls`` calls of the store that match."""
        chosen, count = (dice or self.dice).randrange(1, calls), 0

        def observe(call: StoreCall) -> None:
            nonlocal count
            count += matches(call)
            if count == chosen and matches(call) and self.result is None:
                count += 1
                action(call)

        self.simulation.observers.append(observe)

    def fail_calls(self, kind: str, moment: str) -> None:
        """Some calls of the store raise, before or after they have happened."""
        fail = self.failure(kind)

        def observe(call: StoreCall) -> None:
            if call.moment == moment:
                fail(f"{call.verb} of {call.key}, called by {call.process}")

        self.simulation.observers.append(observe)

    def failure(self, kind: str) -> Callable[[str], None]:
        """Make something that raises now and then, told what it is about."""
        left, chance = self.dice.randrange(1, 12), self.dice.choice((0.01, 0.05, 0.2))

        def fail(what: str) -> None:
            nonlocal left
            if left > 0 and self.dice.random() < chance and self.hit(kind, what):
                left -= 1
                raise StorageUnavailable(ErrorCode.STORE_IO, f"it did not answer: {what}")

        return fail

    def kill_caller(self, call: StoreCall) -> None:
        """SIGKILL for whoever makes this call."""
        for driver in self.simulation.drivers:
            if call.process == driver.name:
                driver.kill()
            for stage in driver.stages:
                for worker in stage.workers:
                    if worker.name == call.process:
                        worker.kill()

    def delay(self, where: str, extra_ms: float, until_ms: float) -> None:
        """Let messages from and to such endpoints take up to ``extra_ms`` longer."""
        self._delays.append((where, extra_ms, until_ms))
        self.simulation.network.extra_ms = self._extra_ms

    def _extra_ms(self, sender: str, endpoint: str) -> float:
        return sum(
            extra_ms * self.dice.random()
            for where, extra_ms, until_ms in self._delays
            if self.world_ms < until_ms and (where in sender or where in endpoint)
        )
