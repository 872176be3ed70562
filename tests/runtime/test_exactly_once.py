"""Whatever dies, sleeps or errs, the committed output is that of a sequential program.

Every seed is a job, a parallelism, an order of events and a series of disasters. That a run comes
to an end at all is asserted by the simulation: it gives up on one that does not.
"""

import pytest

from tests.runtime.chaos import NAMES, SEEDS, Chaos


@pytest.mark.parametrize("seed", range(3 * len(NAMES)))
def test_an_undisturbed_job_is_exact(seed: int) -> None:
    chaos = Chaos(seed)
    result = chaos.run()
    assert (result.outcome, result.generations, result.rows_late) == ("finished", 1, 0)
    chaos.job.check()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_workers_and_drivers_may_be_killed_at_any_turn(seed: int) -> None:
    chaos = Chaos(seed)
    for _ in range(chaos.dice.randint(1, 3)):
        kind = chaos.dice.choice([chaos.kill_worker_at_turn, chaos.kill_driver_at_turn])
        kind()
    assert chaos.run().outcome == "finished"
    chaos.job.check()


@pytest.mark.parametrize("seed", range(SEEDS // 5))
def test_workers_and_drivers_may_be_killed_in_any_call_of_the_store(seed: int) -> None:
    chaos = Chaos(seed)
    for _ in range(chaos.dice.randint(1, 3)):
        chaos.kill_at_store_call()
    assert chaos.run().outcome == "finished"
    chaos.job.check()


@pytest.mark.parametrize("seed", range(SEEDS // 5))
def test_the_store_and_the_sinks_may_fail_and_lose_answers(seed: int) -> None:
    chaos = Chaos(seed)
    chaos.store_fails()
    assert chaos.run().outcome == "finished"
    chaos.job.check()


@pytest.mark.parametrize("seed", range(SEEDS // 5))
def test_a_driver_and_its_workers_may_sleep_while_another_one_runs_the_job(seed: int) -> None:
    chaos = Chaos(seed)
    chaos.take_over_at_turn()
    if chaos.dice.random() < 0.5:
        chaos.kill_worker_at_turn()
    chaos.run()
    chaos.job.check()
    chaos.let_zombies_speak()
    chaos.job.check()


@pytest.mark.parametrize("seed", range(SEEDS // 5))
def test_a_driver_may_fall_asleep_in_any_call_of_the_store(seed: int) -> None:
    chaos = Chaos(seed)
    chaos.take_over_at_store_call()
    chaos.run()
    chaos.let_zombies_speak()
    chaos.job.check()


def test_the_disasters_do_happen() -> None:
    """Guards the tests above: dice that never hit would let them pass."""
    hits = 0
    for seed in range(10):
        chaos = Chaos(seed)
        chaos.kill_worker_at_turn()
        chaos.take_over_at_turn()
        chaos.run()
        chaos.let_zombies_speak()
        chaos.job.check()
        hits += chaos.hits
    assert hits >= 10


def test_equal_seeds_are_equal_histories() -> None:
    digests = []
    for _ in range(2):
        chaos = Chaos(11)
        chaos.kill_worker_at_turn()
        chaos.kill_driver_at_turn()
        chaos.run()
        digests.append((chaos.simulation.world.turns, chaos.simulation.world.digest))
    assert digests[0] == digests[1]
