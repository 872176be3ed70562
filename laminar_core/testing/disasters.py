"""Run a simulated job to its end through all scheduled disasters.

``disaster_kinds`` has the kinds. ``hits`` counts those that took place: a random moment may be
after the end of the job.
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
"""Causes for which a driver that lost its store may end."""

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
        """Random numbers for disasters of the whole store, so that the others do not depend on
        them.
        """
        self.hits: Counter[str] = Counter()
        self.result: JobResult | None = None
        """How the job ended, whichever driver ended it."""
        self.last_hit_ms = simulation.world.now_ms
        """When the last disaster began, or a lasting one was over."""
        self.damaged_keys: set[str] = set()
        """Stored objects that were damaged on purpose."""
        self.next_run: dict[str, Any] = {}
        """Fields of ``JobOptions`` for the next driver."""
        self.store_back_ms: float | None = None
        """When the store last came back before the job ended."""
        self.running: list[str] = []
        """Drivers that have not ended, in the order in which they began."""
        self.places: list[Place] = []
        """The replacements shown instead of the store."""
        self.ends_while_lost: list[str] = []
        """Recorded outcomes of generations that ended because of a lost store, if they do not lead
        to a restart.
        """
        self.may_lose_store = False
        """Whether the whole store is scheduled to disappear."""
        self.silent_ms = 0.0
        """How long a connection between two workers was silent at most."""
        self._losses = 0
        self._delays: list[tuple[str, float, float]] = []
        self._allow_fresh = False

    @property
    def world_ms(self) -> float:
        """The world's time."""
        return self.simulation.world.now_ms

    # --- the run --------------------------------------------------------------------------------

    def run(self) -> JobResult:
        """Run drivers until one of them ends the job.

        Raises:
            AssertionError: too many of them did not.
        """
        for _ in range(DRIVERS_MAX):
            self.run_one()
            if self.result is not None:
                return self.result
        raise AssertionError(f"{DRIVERS_MAX} drivers did not bring the job to an end")

    def run_one(self) -> None:
        """Run one driver, or the next one if it is killed; it may find the job owned by another."""
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
        """Show ``place`` instead of the store to all processes, or to the host of one worker."""
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
        """Return the options of the next driver; it names its predecessor if the store may be lost.

        It is not started while another store has a job of the same name, because no process could
        tell the difference.
        """
        simulation, options = self.simulation, dict(self.next_run)
        if simulation.has_namesake:
            simulation.world.run_until(lambda: not simulation.has_namesake)
        if self.may_lose_store and (newest := simulation.store.claims.last()):
            options["expected_generation"] = newest
        return options

    def _lost_store(self, error: LaminarError, losses_before: int) -> bool:
        """Whether a driver may have ended so because it lost the store; notes how it was left."""
        if self._losses == losses_before or error.code not in _LOST_STORE:
            return False
        self.simulation.world.note("job", f"a driver has lost its store: {error.code} {error}")
        own = (
            generation
            for generation in self.simulation.store.generations.summaries()
            if generation.claim is not None and generation.claim.owner.host_id == self.running[-1]
        )
        for end in (generation.end for generation in own):
            if end is not None and end.outcome not in _RECOVERABLE:
                self.ends_while_lost.append(f"generation {end.generation} {end.outcome}")
        return True

    def _was_deleted(self, options: Mapping[str, Any]) -> bool:
        """Return whether the requested checkpoint may have been deleted before its restore."""
        return "restore_id" in options and bool(self.hits["retention"])

    def let_zombies_speak(self) -> None:
        """Run until the last suspended process has noticed that it was replaced."""
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
        """Return roughly the number of turns of an undisturbed run."""
        return TURNS_PER_WORKER * (1 + self.simulation.options.parallelism)

    def at_some_turn(self, action: Callable[[], None]) -> None:
        """Run the action just before a random turn."""
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
        """Let some calls of the store fail, before or after they have taken effect."""
        fail = self.failure(kind)

        def observe(call: StoreCall) -> None:
            if call.moment == moment:
                fail(f"{call.verb} of {call.key}, called by {call.process}")

        self.simulation.observers.append(observe)

    def failure(self, kind: str) -> Callable[[str], None]:
        """Return a function that raises at random; its argument describes the call."""
        left, chance = self.dice.randrange(1, 12), self.dice.choice((0.01, 0.05, 0.2))

        def fail(what: str) -> None:
            nonlocal left
            if left > 0 and self.dice.random() < chance and self.hit(kind, what):
                left -= 1
                raise StorageUnavailable(ErrorCode.STORE_IO, f"it did not answer: {what}")

        return fail

    def kill_caller(self, call: StoreCall) -> None:
        """Kill the process that makes this call."""
        for driver in self.simulation.drivers:
            if call.process == driver.name:
                driver.kill()
            for stage in driver.stages:
                for worker in stage.workers:
                    if worker.name == call.process:
                        worker.kill()

    def delay(self, where: str, extra_ms: float, until_ms: float) -> None:
        """Delay messages from and to matching endpoints by up to ``extra_ms``."""
        self._delays.append((where, extra_ms, until_ms))
        self.simulation.network.extra_ms = self._extra_ms

    def _extra_ms(self, sender: str, endpoint: str) -> float:
        return sum(
            extra_ms * self.dice.random()
            for where, extra_ms, until_ms in self._delays
            if self.world_ms < until_ms and (where in sender or where in endpoint)
        )
