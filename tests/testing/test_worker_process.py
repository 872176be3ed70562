"""Workers in a simulation live and die as they do in Spark."""

import pytest

from laminar_core.driver.events import WorkersRunning
from laminar_core.driver.restart import NoRestart
from laminar_core.errors import JobFailedError
from laminar_core.testing.simulation import Simulation
from laminar_core.testing.worker_process import DEATH_SEEN_MS, LINGER_MS
from tests.simulated.simulated_jobs import failing_job, windows_job


@pytest.fixture
def simulation():
    return Simulation(windows_job(3).plan, parallelism=3)


def strike(simulation: Simulation, action) -> None:
    """Act on the workers of the first generation once they run, and let that be the end."""
    simulation.when(WorkersRunning, lambda: action(simulation.drivers[0].stages[0].workers))
    with pytest.raises(JobFailedError):
        simulation.run(restart=NoRestart())


def test_a_killed_worker_is_noticed_after_a_while_and_closes_nothing(simulation):
    times = []

    def kill(workers) -> None:
        times.append(simulation.world.now_ms)
        workers[1].kill()
        simulation.drivers[0].stages[0].ended.add_done_callback(
            lambda _: times.append(simulation.world.now_ms)
        )

    strike(simulation, kill)
    assert times[1] - times[0] == DEATH_SEEN_MS
    killed = simulation.drivers[0].stages[0].workers[1]
    assert "g1-worker-1 was killed" in str(killed.ended.exception(0))
    assert not any(t.parts.sink.writer.closed for t in killed.worker.wiring.tasks if t.parts.sink)


def test_killing_twice_is_killing_once(simulation):
    strike(simulation, lambda workers: [workers[0].kill() for _ in range(2)])
    assert simulation.drivers[0].stages[0].ended.exception(0) is not None


def test_the_others_of_its_stage_linger_and_die(simulation):
    def kill(workers) -> None:
        workers[0].kill()
        workers[1].worker._transport.receive_control = lambda: iter(())  # It hears nothing.

    strike(simulation, kill)
    survivor = simulation.drivers[0].stages[0].workers[1]
    assert not survivor.ended.done()
    simulation.world.run_until(lambda: False, LINGER_MS + 100)
    assert survivor.ended.done()


def test_one_that_is_held_is_out_of_the_clusters_reach_until_it_is_interrupted(simulation):
    def kill(workers) -> None:
        workers[0].kill()
        workers[1].hold()

    strike(simulation, kill)
    simulation.world.run_until(lambda: False, 2 * LINGER_MS)
    stage = simulation.drivers[0].stages[0]
    assert not stage.workers[1].ended.done()
    stage.interrupt()
    assert stage.workers[1].ended.done()


def test_a_worker_that_fails_closes_what_it_has_open_and_says_why():
    simulation = Simulation(failing_job(ValueError("seven is odd")).plan)
    with pytest.raises(JobFailedError):
        simulation.run(restart=NoRestart())
    stage = simulation.drivers[0].stages[0]
    assert "seven is odd" in str(stage.ended.exception(0))
    failed = next(w for w in stage.workers if "seven is odd" in str(w.ended.exception(0)))
    assert all(
        task.parts.source.reader.closed
        for task in failed.worker.wiring.tasks
        if task.parts.source is not None
    )


def test_a_stage_whose_workers_all_leave_has_ended_well(simulation):
    simulation.run()
    stage = simulation.drivers[0].stages[0]
    assert stage.ended.result(0) == {}
    assert [worker.ended.result(0) for worker in stage.workers] == [[], [], []]


def test_a_slow_function_takes_its_time_from_the_moment_at_which_it_computes():
    simulation, asked_ms, began_ms = Simulation(windows_job(1).plan), [], []

    def begin() -> float:
        began_ms.append(simulation.world.now_ms)
        return 7_000.0

    def ask() -> None:
        asked_ms.append(simulation.world.now_ms)
        simulation.drivers[0].stages[0].workers[0].when_computing(begin)

    simulation.when(WorkersRunning, ask)
    simulation.run()
    assert len(began_ms) == 1
    assert asked_ms[0] <= began_ms[0] <= simulation.world.now_ms - 7_000.0
