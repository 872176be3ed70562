"""A driver that ended because its store was away is succeeded as soon as the store is back."""

import pytest

from laminar_core.driver.events import CheckpointCompleted
from laminar_core.driver.restart import FixedDelay
from laminar_core.errors import ErrorCode, FencedError, LaminarError, StorageUnavailable
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.sensors.policy import AlertPolicy
from laminar_core.sensors.recovery.decision import Leave, Recover, decide_recovery
from laminar_core.sensors.recovery.facts import Watched, read_recovery_facts
from laminar_core.testing.disk import SimulatedDisk
from laminar_core.testing.jobs import Job
from laminar_core.testing.places import directory, no_directory
from laminar_core.testing.scenarios import windows_job
from laminar_core.testing.simulation import Simulation
from laminar_core.testing.store_disasters import _of_a_namesake, _of_another_job

PLACES = {
    "no directory": no_directory,
    "an empty directory": lambda: directory(SimulatedDisk()),
    "another job": _of_another_job,
    "a namesake": _of_a_namesake,
}
TICK_MS, AGE_MAX_MS = 30_000, 300_000
POLICY = AlertPolicy()


class Sensor:
    """Looks at the store of a simulation, as the recovery sensor does."""

    def __init__(self, simulation: Simulation) -> None:
        self.store = simulation._open_store("sensor", lambda: True)
        self.watched = Watched()
        self.now_ms = 0

    def decide(self) -> object:
        self.now_ms += TICK_MS
        facts, self.watched = read_recovery_facts(self.store, self.watched, self.now_ms, AGE_MAX_MS)
        return decide_recovery(facts, POLICY)


def simulate() -> tuple[Job, Simulation]:
    job = windows_job(2, pace=20.0)
    config = CoordinatorConfig(interval_ms=100, tolerable_failures=2)
    return job, Simulation(job.plan, checkpoint=config, objects=SimulatedDisk())


@pytest.mark.parametrize("place", PLACES)
def test_the_job_is_recovered_when_the_store_is_back(place):
    job, simulation = simulate()
    sensor = Sensor(simulation)
    simulation.when(CheckpointCompleted, lambda: simulation.unmount(PLACES[place]()), number=2)
    with pytest.raises(LaminarError) as caught:
        simulation.run(restart=FixedDelay(3, pause_ms=10))
    fenced = isinstance(caught.value, FencedError)  # A namesake may have a higher generation.
    assert fenced == (place == "a namesake")
    assert fenced or caught.value.code is ErrorCode.RESTARTS_EXHAUSTED
    if place == "no directory":
        with pytest.raises(StorageUnavailable):
            sensor.decide()
    elif place != "a namesake":  # Which nobody can tell from the job's store.
        assert sensor.decide() == Leave("the job has never run")
    simulation.mount()
    decisions = [sensor.decide() for _ in range(8)]
    found = next(decision for decision in decisions if isinstance(decision, Recover))
    assert found.attempt == 1
    generation = simulation.store.claims.last()
    result = simulation.run(
        expected_generation=generation, take_over=found.running_driver == "take_over"
    )
    assert result.outcome == "finished"
    job.check()
