"""Whole jobs whose workers do not all reach each other at first."""

from collections.abc import Collection

import pytest

from laminar_core.driver.deadlines import Deadlines
from laminar_core.driver.events import GenerationFailed, UnreachablePair, WorkersRunning
from laminar_core.driver.restart import ExponentialDelay
from laminar_core.errors import ErrorCode, JobFailedError
from laminar_core.link.wire import FrameKind, decode_header
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.testing.jobs import Job
from laminar_core.testing.scenarios import windows_job
from laminar_core.testing.simulation import Simulation


def events(simulation: Simulation, kind: type) -> list:
    return [event for event in simulation.events if isinstance(event, kind)]


def simulated(job: Job, lost: int, generations: Collection[int] = (1,)) -> Simulation:
    """A job whose first greetings from worker 0 to worker 1 are lost, in these generations."""
    simulation = Simulation(job.plan, seed=5, checkpoint=CoordinatorConfig(interval_ms=40))
    network, send = simulation.network, simulation.network.send
    seen = 0

    def carry(sender: str, endpoint: str, message: object) -> None:
        nonlocal seen
        if isinstance(message, tuple):
            header = decode_header(message[0])
            is_chosen = header.generation in generations and header.sender == 0
            if header.kind is FrameKind.GREETING and is_chosen and seen < lost:
                seen += 1
                network.connect_again(endpoint)
                return
        send(sender, endpoint, message)

    network.send = carry
    return simulation


def test_greetings_that_are_lost_with_their_connection_are_sent_again() -> None:
    job = windows_job(2)
    simulation = simulated(job, lost=3)
    result = simulation.run()
    job.check(result.rows_late)
    assert (result.outcome, result.generations) == ("finished", 1)
    assert events(simulation, GenerationFailed) == []


def test_starts_that_reach_nobody_use_the_restarts_up() -> None:
    """However long each of them has waited: only a job that ran starts the series anew."""
    simulation = simulated(windows_job(2), lost=1_000, generations=range(1, 9))
    with pytest.raises(JobFailedError, match="failed 3 times") as caught:
        simulation.run(restart=ExponentialDelay(attempts=2), deadlines=Deadlines(connect_ms=70_000))
    assert caught.value.code is ErrorCode.RESTARTS_EXHAUSTED


def test_workers_that_cannot_reach_each_other_are_named_and_process_nothing() -> None:
    job = windows_job(2)
    simulation = simulated(job, lost=1_000)
    result = simulation.run()
    job.check(result.rows_late)
    assert (result.outcome, result.generations) == ("finished", 2)
    (failed,) = events(simulation, GenerationFailed)
    assert (failed.generation, failed.code) == (1, "workers-unreachable")
    address = "sim://driver-1-g1/worker-1"
    pair = UnreachablePair(
        sender=0, sender_host="host-0", receiver=1, receiver_host="host-1", address=address
    )
    assert (failed.unreachable, failed.unreachable_count) == ((pair,), 1)
    assert f"from worker 0 on host-0 to worker 1 on host-1 at {address}" in failed.reason
    assert [event.generation for event in events(simulation, WorkersRunning)] == [2]
