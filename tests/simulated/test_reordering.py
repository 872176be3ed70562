"""Exactly once also over a transport that lets frames overtake each other, within its bound."""

import pytest

from laminar_core.link.wire import Header, decode_header
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.protocol.types import Generation
from laminar_core.testing.simulation import Simulation
from tests.simulated.simulated_jobs import JOBS, windows_job

KEYED = ("windows", "union", "rebalance", "broadcast", "mesh")
"""Those with an exchange between workers."""


def reordered(simulation: Simulation) -> int:
    """Frames that came early; none of them still waits in the newest stage."""
    stages = [stage for driver in simulation.drivers for stage in driver.stages]
    orders = [
        [end.order for w in stage.workers for end in w.worker.wiring.receiving.values()]
        for stage in stages
    ]
    assert sum(order.waiting for order in orders[-1]) == 0
    return sum(order.counters.reordered for stage in orders for order in stage)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(15))
def test_the_output_is_exact_whatever_overtakes_what(seed: int) -> None:
    """Goal: barriers, watermarks and rows keep their order, in aligned and unaligned cuts.

    Method: a network that shuffles within its bound, and a worker that dies at some turn.
    """
    job = JOBS[KEYED[seed % len(KEYED)]](3)
    config = CoordinatorConfig(interval_ms=20, alignment_timeout_ms=(None, 0, 5)[seed % 3])
    simulation = Simulation(job.plan, parallelism=3, seed=seed, checkpoint=config, reorders=4)
    simulation.world.at_turn(100 + 15 * seed, lambda: simulation.kill_worker(seed % 3))
    assert simulation.run_to_end().generations == 2
    job.check()
    assert reordered(simulation) > 0


def test_what_an_older_generation_still_sends_is_dropped_and_the_job_goes_on() -> None:
    """Goal: over plain TCP a worker that was given up may reach a new one at an old one's port.

    Method: every frame comes a second time, as of the generation before.
    """
    job = windows_job(2)
    simulation = Simulation(job.plan, parallelism=2, seed=3)
    echo(simulation)
    result = simulation.run_to_end()
    job.check()
    assert result.generations == 1
    workers = simulation.drivers[-1].stages[-1].workers
    assert all(worker.worker.wiring.foreign_frames > 0 for worker in workers)


def echo(simulation: Simulation) -> None:
    """Send every data frame once more, as a zombie would that runs the same plan."""
    network, send = simulation.network, simulation.network.send

    def send_twice(sender: str, endpoint: str, message) -> None:
        if isinstance(message, tuple):
            found = decode_header(message[0])
            header = Header(
                Generation(found.generation - 1),
                found.edge_id,
                found.sender,
                found.receiver,
                found.kind,
                found.sequence,
            )
            send(sender, endpoint, (header.encode(), message[1]))
        send(sender, endpoint, message)

    network.send = send_twice
