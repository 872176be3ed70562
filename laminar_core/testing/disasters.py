"""Brings a simulated job to its end, whatever was planned to happen to it on the way.

What can happen: ``disaster_kinds``. ``hits`` counts what came to pass; the moment that dice picked
may lie behind the end of the job.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from laminar_core.errors import (
    ConfigurationError,
    CorruptCheckpointError,
    ErrorCode,
    FencedError,
    JobFailedError,
    StorageUnavailable,
)
from laminar_core.runtime.options import JobResult
from laminar_core.testing.jobs import Job
from laminar_core.testing.observed_store import StoreCall
from laminar_core.testing.simulation import Simulation
from laminar_core.testing.world import ProcessKilledError

TURNS_PER_WORKER = 150
"""About as many turns as an undisturbed run takes."""

DRIVERS_MAX = 30
"""A job that needs more drivers than this does not get anywhere."""


class Disasters:
    """Plans disasters for one job, and runs it through them."""

    def __init__(self, simulation: Simulation, job: Job, dice: Random) -> None:
        self.simulation = simulation
        self.job = job
        self.dice = dice
        self.hits: Counter[str] = Counter()
        self.result: JobResult | None = None
        """How the job ended; whichever driver brought it to an end."""
        self.last_hit_ms = simulation.world.now_ms
        """When the last disaster began, or the last one that lasts was over."""
        self.damaged_keys: set[str] = set()
        """Stored objects that were damaged on purpose."""
        self.next_run: dict[str, Any] = {}
        """Fields of ``JobOptions`` for the next driver."""
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
        options, self.next_run = self.next_run, {}
        try:
            result = self.simulation.run(allow_fresh=self._allow_fresh, **options)
            if result.outcome == "finished":
                self.result = result
        except (FencedError, ProcessKilledError, StorageUnavailable) as error:
            self.simulation.world.note("job", f"a driver is over: {type(error).__name__} {error}")
        except JobFailedError as error:
            if error.code is not ErrorCode.CANCELLED:
                raise
        except (ConfigurationError, CorruptCheckpointError) as error:
            self.simulation.world.note("job", f"a driver is refused: {error}")
            if error.code is ErrorCode.NO_RESTORABLE_CHECKPOINT and self.hits["corruption"]:
                self._allow_fresh = True  # As a person would decide who was told.
            elif error.code is not ErrorCode.JOB_OWNED and not self._was_deleted(options):
                raise

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

    def at_some_turn(self, action: Callable[[], None]) -> None:
        """Do it just before some turn."""
        turns = TURNS_PER_WORKER * (1 + self.simulation.options.parallelism)
        self.simulation.world.at_turn(self.dice.randrange(1, turns), action)

    def at_some_call(
        self,
        calls: int,
        matches: Callable[[StoreCall], bool],
        action: Callable[[StoreCall], None],
    ) -> None:
        """Do it in one of the next ``calls`` calls of the store that match."""
        chosen, count = self.dice.randrange(1, calls), 0

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
