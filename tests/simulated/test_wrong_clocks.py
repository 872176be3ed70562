"""Wall clocks that step while a job runs change what is written, and no decision."""

import pytest

from laminar_core.driver.events import CheckpointCompleted, CheckpointFailed, WorkersRunning
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.testing.simulation import Simulation
from tests.simulated.simulated_jobs import windows_job

HOUR_MS = 3_600_000
SOON = CoordinatorConfig(interval_ms=40, timeout_ms=2_000)


def run(step_ms: int, event: type = CheckpointCompleted) -> Simulation:
    """A job of which the driver's wall clock is set when the first of such events comes."""
    job = windows_job(2, pace=200)
    simulation = Simulation(job.plan, checkpoint=SOON, seed=5)
    clock = simulation.world.clock_of("driver-1")
    simulation.when(event, lambda: clock.step_wall(step_ms))
    simulation.run()
    job.check()
    return simulation


@pytest.mark.parametrize("step_ms", [-HOUR_MS, HOUR_MS])
def test_a_step_of_the_wall_clock_expires_nothing(step_ms: int) -> None:
    simulation = run(step_ms)
    assert not [e for e in simulation.events if isinstance(e, CheckpointFailed)]
    completed = [e for e in simulation.events if isinstance(e, CheckpointCompleted)]
    assert len(completed) > 5
    assert all(0 <= event.duration_ms < SOON.timeout_ms for event in completed)


@pytest.mark.parametrize("step_ms", [-HOUR_MS, HOUR_MS])
def test_what_is_written_afterwards_follows_it(step_ms: int) -> None:
    """A driver that runs for months does not write by the clock of its start."""
    simulation = run(step_ms, WorkersRunning)
    for checkpoint_id in simulation.store.manifests.ids():
        manifest = simulation.store.manifests.read(checkpoint_id)
        behind_ms = simulation.world.now_ms + step_ms - manifest.completed_at_ms
        assert -1_000 < behind_ms < 60_000
        assert 0 <= manifest.duration_ms < SOON.timeout_ms
