"""A line that loses and repeats what coordinator and workers say costs time, and nothing else."""

import pytest

from laminar_core.driver.events import CheckpointCompleted, GenerationStarted
from laminar_core.link.messages import (
    AlignmentTimeout,
    Completed,
    Finish,
    Peers,
    Trigger,
    decode_to_worker,
)
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.testing.scenarios import windows_job
from laminar_core.testing.simulation import Simulation
from tests.simulated.simulated_jobs import JOBS

NAMES = sorted(JOBS)


def generations(simulation: Simulation) -> int:
    return sum(isinstance(event, GenerationStarted) for event in simulation.events)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(20))
def test_the_job_ends_with_exact_output_in_one_generation(seed: int) -> None:
    """Goal: every order of the coordinator arrives once, every answer too. Method: seeded loss."""
    job = JOBS[NAMES[seed % len(NAMES)]](2)
    config = CoordinatorConfig(interval_ms=30, alignment_timeout_ms=(None, 0, 10)[seed % 3])
    simulation = Simulation(job.plan, seed=seed, checkpoint=config)
    simulation.network.control_loss = (0.1, 0.3)[seed % 2]
    simulation.network.control_repeat = 0.2
    result = simulation.run()
    assert (result.outcome, generations(simulation)) == ("finished", 1)
    job.check(result.rows_late)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(10))
def test_workers_may_die_as_well(seed: int) -> None:
    job = JOBS[NAMES[seed % len(NAMES)]](2)
    simulation = Simulation(job.plan, seed=seed)
    simulation.network.control_loss = simulation.network.control_repeat = 0.2
    simulation.world.at_turn(60 + 30 * seed, lambda: simulation.kill_worker(seed % 2))
    job.check(simulation.run_to_end().rows_late)


@pytest.mark.parametrize("lost", [Peers, Trigger, AlignmentTimeout, Completed, Finish])
def test_each_order_survives_the_loss_of_its_first_copy(lost: type) -> None:
    job = windows_job(2)
    config = CoordinatorConfig(interval_ms=40, alignment_timeout_ms=1)
    simulation = Simulation(job.plan, seed=4, checkpoint=config)
    losses = lose_first(simulation, lost)
    result = simulation.run()
    job.check()
    assert result.generations == 1
    assert losses == [lost.model_fields["type"].default]
    assert any(isinstance(event, CheckpointCompleted) for event in simulation.events)


def lose_first(simulation: Simulation, kind: type) -> list[str]:
    """The first message of this kind to any worker never arrives; returns what was lost."""
    network, send, lost = simulation.network, simulation.network.send_control, []

    def send_control(sender: str, endpoint: str, message: bytes) -> None:
        to_worker = endpoint.endswith("/control")
        if to_worker and not lost and isinstance(decode_to_worker(message), kind):
            lost.append(decode_to_worker(message).type)
            return
        send(sender, endpoint, message)

    network.send_control = send_control
    return lost
