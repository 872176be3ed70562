"""A driver in a simulation: it waits by letting others run, and is gone when it is killed."""

import pytest

from laminar_core.driver.events import CheckpointCompleted, WorkersRunning
from laminar_core.testing.simulation import Simulation
from laminar_core.testing.world import ProcessKilledError
from tests.simulated.simulated_jobs import windows_job


@pytest.fixture
def simulation():
    return Simulation(windows_job(2).plan)


def test_waiting_lets_others_run_and_has_an_end(simulation):
    simulation.run()
    driver, world = simulation.drivers[0], simulation.world
    started_ms, ran = world.now_ms, []
    world.later(30, lambda: ran.append(world.now_ms - started_ms))
    driver.wait_ms(100)
    assert (ran, world.now_ms - started_ms) == ([30], 100)
    never = type(simulation.drivers[0].stages[0].ended)()
    driver.wait((never,), timeout_ms=50)
    assert world.now_ms - started_ms == 150
    driver.wait((simulation.drivers[0].stages[0].ended,))
    assert world.now_ms - started_ms == 150


def test_its_clock_is_the_worlds(simulation):
    simulation.run()
    driver = simulation.drivers[0]
    assert driver.monotonic_ms() == simulation.world.now_ms
    assert driver.now_ms() == int(simulation.world.now_ms)


def test_no_two_claims_look_alike(simulation):
    simulation.run()
    simulation.run()
    owners = [driver.identify() for driver in simulation.drivers for _ in range(2)]
    assert len({owner.model_dump_json() for owner in owners}) == 4


def test_a_killed_driver_takes_its_coordinator_along_and_leaves_its_workers(simulation):
    simulation.when(CheckpointCompleted, simulation.kill_driver)
    with pytest.raises(ProcessKilledError):
        simulation.run()
    driver = simulation.drivers[0]
    processes = simulation.world._processes
    assert driver.coordinators[0] not in processes
    assert all(worker in processes for worker in driver.stages[0].workers)
    with pytest.raises(ProcessKilledError):
        driver.wait_ms(1)
    with pytest.raises(ProcessKilledError):
        driver.wait(())


def test_a_killed_driver_makes_no_more_calls_of_the_store(simulation):
    """It dies in the middle of one; what the call did stays done."""
    calls = []

    def observe(call) -> None:
        if call.process == "driver-1":
            calls.append(call)
            if call.verb == "put_if_absent" and "base" in call.key and call.moment == "after":
                simulation.kill_driver()

    simulation.observers.append(observe)
    with pytest.raises(ProcessKilledError):
        simulation.run()
    assert calls[-1].key.endswith("0000000001.base.json")
    assert simulation.store.generations.read_base(1) is not None
    assert simulation.drivers[0].stages == []


def test_held_neither_its_coordinator_nor_its_workers_do_anything(simulation):
    def hold_for_a_second() -> None:
        driver = simulation.drivers[0]
        driver.hold()
        counts = [w.worker.wiring.counts() for w in driver.stages[0].workers]
        simulation.world.run_until(lambda: False, 1_000)
        assert [w.worker.wiring.counts() for w in driver.stages[0].workers] == counts
        driver.hold(held=False)

    simulation.when(WorkersRunning, hold_for_a_second)
    assert simulation.run().generations == 1


def test_there_may_be_room_for_some_workers_only(simulation):
    simulation.slots = 1
    simulation.when(WorkersRunning, lambda: pytest.fail("one is missing"))
    simulation.world.at_turn(200, simulation.kill_driver)
    with pytest.raises(ProcessKilledError):
        simulation.run()
    assert len(simulation.drivers[0].stages[0].workers) == 1
