"""What can go wrong with a simulated job, at moments that a seed picks."""

import os
from random import Random

from laminar_core.checkpoint.coordinator_config import CoordinatorConfig
from laminar_core.errors import ConfigurationError, ErrorCode, FencedError, StorageUnavailable
from laminar_core.runtime.options import JobResult
from laminar_core.testing.observed_store import StoreCall
from laminar_core.testing.simulation import Simulation
from tests.runtime.simulated_jobs import JOBS, Job

SEEDS = int(os.environ.get("LAMINAR_SEEDS", "105"))
"""Runs per kind of disaster; more of them for a soak test."""

NAMES = list(JOBS)
TURNS = 500
"""About as many turns as an undisturbed run takes."""


class Chaos:
    """A job, its simulation, and dice of its own."""

    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        self.parallelism = 1 + (seed // len(NAMES)) % 3
        self.job: Job = JOBS[NAMES[seed % len(NAMES)]](self.parallelism)
        checkpoint = CoordinatorConfig(
            interval_ms=self.dice.choice((10, 30, 100)),
            max_concurrent=self.dice.choice((1, 1, 3)),
            tolerable_failures=None,
        )
        self.simulation = Simulation(
            self.job.plan, parallelism=self.parallelism, seed=seed, checkpoint=checkpoint
        )
        self.hits = 0
        """How often something went wrong."""

    # --- disasters ------------------------------------------------------------------------------

    def kill_worker_at_turn(self) -> None:
        index = self.dice.randrange(self.parallelism)
        self._at_turn(lambda: self.simulation.kill_worker(index))

    def kill_driver_at_turn(self) -> None:
        self._at_turn(self.simulation.kill_driver)

    def kill_at_store_call(self, calls: int = 150) -> None:
        """Whoever makes that call dies of it: before it is made, or when it has been."""
        chosen = self.dice.randrange(1, calls)
        self._at_store_call(chosen, self._kill_caller)

    def take_over_at_turn(self) -> None:
        self._at_turn(self._take_over)

    def take_over_at_store_call(self, calls: int = 120) -> None:
        chosen = self.dice.randrange(1, calls)
        self._at_store_call(chosen, lambda _: self._take_over())

    def store_fails(self) -> None:
        """Some calls of the store and of the sinks fail, others happen and lose their answer."""
        left, chance = self.dice.randrange(1, 12), self.dice.choice((0.01, 0.05, 0.2))

        def fail(what: object) -> None:
            if self.hits < left and self.dice.random() < chance:
                self.hits += 1
                raise StorageUnavailable(ErrorCode.STORE_IO, f"it did not answer: {what}")

        self.simulation.observers.append(fail)
        for ledger in self.job.ledgers.values():
            ledger.observe = lambda verb, moment: None if verb == "stage" else fail((verb, moment))

    def _at_turn(self, action) -> None:
        def hit() -> None:
            self.hits += 1
            action()

        self.simulation.world.at_turn(self.dice.randrange(1, TURNS), hit)

    def _at_store_call(self, chosen: int, action) -> None:
        count = 0

        def observe(call: StoreCall) -> None:
            nonlocal count
            count += 1
            if count == chosen:
                self.hits += 1
                action(call)

        self.simulation.observers.append(observe)

    def _kill_caller(self, call: StoreCall) -> None:
        if call.process.startswith("driver"):
            self.simulation.kill_driver()
        else:
            self.simulation.kill_worker(int(call.process[-1]))

    def _take_over(self) -> None:
        """Everything of the newest driver falls asleep; another one runs the job meanwhile.

        The sleepers wake up when that one is done, or while it is at work.
        """
        sleeping = self.simulation.drivers[-1]
        sleeping.hold()
        if self.dice.random() < 0.6:
            wakes = self.simulation.world.turns + self.dice.randrange(100, 600)
            self.simulation.world.at_turn(wakes, lambda: sleeping.hold(held=False))
        self.run_one()
        sleeping.hold(held=False)

    # --- runs -----------------------------------------------------------------------------------

    def run_one(self) -> JobResult | None:
        """One driver; None if another one owns the job."""
        try:
            return self.simulation.run_to_end()
        except FencedError:
            return None
        except ConfigurationError as error:
            if error.code is not ErrorCode.JOB_OWNED:
                raise
            return None

    def run(self) -> JobResult | None:
        """Drivers until one of them comes to an end."""
        for _ in range(10):
            try:
                return self.run_one()
            except StorageUnavailable:
                continue  # It could not even claim the job.
        raise AssertionError("no driver came to an end")

    def let_zombies_speak(self) -> None:
        """Until the last of them has noticed that nobody answers."""
        self.simulation.world.run_until(lambda: False, 20_000)
