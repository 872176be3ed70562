"""Loops in a simulated cluster: exact whatever dies, ended when nothing is left in them.

Every job's answer is computed row by row, in plain Python; see ``loop_jobs``.
"""

import os
from functools import partial
from random import Random

import pytest

from laminar_core.checkpoint.coordinator_config import CoordinatorConfig
from laminar_core.runtime.events import CheckpointCompleted
from laminar_core.testing.simulation import Simulation
from tests.runtime.loop_jobs import LOOP_JOBS
from tests.runtime.simulated_jobs import Job

SEEDS = int(os.environ.get("LAMINAR_SEEDS", "105"))
"""Runs per kind of disaster; more of them for a soak test."""

NAMES = list(LOOP_JOBS)
TURNS = 700

ALIGNED, TIMED, UNALIGNED = None, 2, 0
"""Alignment timeouts."""


def checkpoints(dice: Random) -> CoordinatorConfig:
    timeout_ms = dice.choice((ALIGNED, TIMED, UNALIGNED))
    return CoordinatorConfig(
        interval_ms=dice.choice((5, 10, 30)),
        max_concurrent=dice.choice((1, 3)) if timeout_ms is ALIGNED else 1,
        tolerable_failures=None,
        alignment_timeout_ms=timeout_ms,
    )


def simulate(seed: int) -> tuple[Job, Simulation, Random]:
    dice = Random(seed)
    job = LOOP_JOBS[NAMES[seed % len(NAMES)]]()
    parallelism = 1 + (seed // len(NAMES)) % 3
    simulation = Simulation(
        job.plan, parallelism=parallelism, seed=seed, checkpoint=checkpoints(dice)
    )
    return job, simulation, dice


@pytest.mark.parametrize("seed", range(3 * len(NAMES)))
def test_an_undisturbed_loop_is_exact_and_ends(seed: int) -> None:
    job, simulation, _ = simulate(seed)
    result = simulation.run()
    assert (result.outcome, result.generations) == ("finished", 1)
    job.check()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_workers_and_drivers_may_be_killed_at_any_turn(seed: int) -> None:
    job, simulation, dice = simulate(seed)
    for _ in range(dice.randint(1, 4)):
        kill = dice.choice(
            (simulation.kill_driver, partial(simulation.kill_worker, dice.randrange(3)))
        )
        simulation.world.at_turn(dice.randrange(1, TURNS), kill)
    assert simulation.run_to_end().outcome == "finished"
    job.check()


@pytest.mark.parametrize("seed", range(SEEDS // 3))
def test_a_worker_may_be_killed_right_after_a_checkpoint_with_a_log(seed: int) -> None:
    """The log of the way back is replayed before anything else."""
    job, simulation, dice = simulate(seed)
    for number in (1, 2, 4, 7):
        simulation.when(
            CheckpointCompleted, partial(simulation.kill_worker, dice.randrange(3)), number
        )
    assert simulation.run_to_end().outcome == "finished"
    job.check()
