"""A store that goes away under a running job is noticed; the job waits, and its output is exact."""

import pytest

from laminar_core.driver.events import (
    CheckpointCompleted,
    GenerationFailed,
    GenerationStarted,
    StoreBack,
    StoreLost,
)
from laminar_core.driver.restart import FixedDelay
from laminar_core.errors import ConfigurationError, ErrorCode, JobFailedError
from laminar_core.objectstore.local import LocalObjectStore
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.testing.disk import SimulatedDisk
from laminar_core.testing.jobs import Job
from laminar_core.testing.scenarios import windows_job
from laminar_core.testing.simulation import Simulation

AWAY_MS = 3_000.0
"""Heartbeats are a second apart."""


def simulate(objects=None, seed: int = 0, **config) -> tuple[Job, Simulation]:
    job = windows_job(2, pace=20.0)
    checkpoint = CoordinatorConfig(**{"interval_ms": 100, "tolerable_failures": None, **config})
    disk = objects or SimulatedDisk()
    return job, Simulation(job.plan, seed=seed, checkpoint=checkpoint, objects=disk)


def told(simulation: Simulation, kind: type) -> list:
    return [event for event in simulation.events if isinstance(event, kind)]


def all_are_whole(simulation: Simulation) -> None:
    """Every checkpoint that the job reported as complete is in the store that it ends with."""
    completed = simulation.store.manifests.ids()
    assert completed == [e.checkpoint_id for e in told(simulation, CheckpointCompleted)]
    assert [simulation.store.verify(n).problem for n in completed] == [None] * len(completed)


def go_away(simulation: Simulation, leave, come_back) -> None:
    """After two checkpoints; the store is back a while later."""
    world = simulation.world

    def away() -> None:
        leave()
        world.later(AWAY_MS, come_back)

    simulation.when(CheckpointCompleted, away, number=2)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(4))
def test_an_empty_directory_in_its_place_completes_nothing(seed):
    job, simulation = simulate(seed=seed)
    go_away(simulation, simulation.objects.unmount, simulation.objects.mount)
    assert simulation.run().generations == 1
    job.check()
    (lost,), (back,) = told(simulation, StoreLost), told(simulation, StoreBack)
    assert (lost.code, lost.generation, back.generation) == ("store-gone", 1, 1)
    assert "put it back" in lost.reason
    all_are_whole(simulation)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(4))
def test_a_directory_that_is_renamed_is_not_made_anew(tmp_path, seed):
    root, elsewhere = tmp_path / "store", tmp_path / "elsewhere"
    job, simulation = simulate(LocalObjectStore(root), seed=seed)
    seen = []

    def come_back() -> None:
        seen.append(root.exists())
        elsewhere.rename(root)

    go_away(simulation, lambda: root.rename(elsewhere), come_back)
    simulation.run()
    job.check()
    assert seen == [False]
    assert [lost.code for lost in told(simulation, StoreLost)] == ["store-gone"]
    all_are_whole(simulation)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(4))
def test_an_older_copy_in_its_place_completes_nothing(seed):
    """The copy was made before the running generation claimed the job."""
    job, simulation = simulate(seed=seed)
    copies: list[SimulatedDisk] = []
    simulation.when(CheckpointCompleted, lambda: copies.append(simulation.objects.copy()))
    simulation.when(CheckpointCompleted, simulation.kill_driver, number=2)
    simulation.when(
        CheckpointCompleted, lambda: simulation.objects.unmount(instead=copies[0]), number=4
    )
    simulation.when(StoreLost, lambda: simulation.world.later(AWAY_MS, simulation.objects.mount))
    simulation.run_to_end()
    job.check()
    all_are_whole(simulation)
    assert [(e.code, e.generation) for e in told(simulation, StoreLost)] == [("store-replaced", 2)]
    assert simulation.store.claims.newest() == 2


def test_a_job_whose_store_stays_away_ends_within_its_restarts_and_begins_nothing_anew():
    job, simulation = simulate(tolerable_failures=2)
    simulation.when(CheckpointCompleted, simulation.objects.unmount, number=2)
    with pytest.raises(JobFailedError) as caught:
        simulation.run(restart=FixedDelay(3, pause_ms=10))
    assert caught.value.code is ErrorCode.RESTARTS_EXHAUSTED
    assert "put it back" in str(caught.value)
    assert {e.code for e in told(simulation, GenerationFailed)} == {"snapshot-failed", "store-gone"}
    assert not simulation.objects.list("simulated/generations/")
    assert not simulation.objects.list("simulated/audit/")
    simulation.objects.mount()
    simulation.run()
    job.check()


def test_a_store_that_is_back_before_the_restarts_are_spent_is_gone_on_with():
    job, simulation = simulate(tolerable_failures=2)
    go_away(simulation, simulation.objects.unmount, simulation.objects.mount)
    assert simulation.run(restart=FixedDelay(1_000, pause_ms=50)).generations > 1
    job.check()
    restored = [e.restored_checkpoint_id for e in told(simulation, GenerationStarted)]
    assert restored[0] is None
    assert all(restored[1:])


class TestNotShared:
    """Every worker proves that it sees the claim of its generation before it runs."""

    def test_a_host_with_a_store_of_its_own_makes_the_start_fail_in_one_line(self):
        job, simulation = simulate()
        simulation.unmount_worker(1)
        with pytest.raises(ConfigurationError) as caught:
            simulation.run()
        assert caught.value.code is ErrorCode.STORE_NOT_SHARED
        assert caught.value.exit_code == 2
        assert "on host host-1 is not the driver's store" in str(caught.value)
        assert "\n" not in str(caught.value)
        assert not told(simulation, CheckpointCompleted)
        assert simulation.store.generations.read_end(1).outcome == "refused"
        assert not job.ledgers["out"].rows()

    def test_one_with_an_older_copy_is_refused_too(self):
        job, simulation = simulate()
        copies: list[SimulatedDisk] = []
        simulation.when(CheckpointCompleted, lambda: copies.append(simulation.objects.copy()))
        simulation.when(CheckpointCompleted, simulation.cancel, number=2)
        with pytest.raises(JobFailedError):
            simulation.run()
        simulation.unmount_worker(0, copies[0])
        with pytest.raises(ConfigurationError, match="host-0"):
            simulation.run()
        simulation.mount_worker(0)
        simulation.run()
        job.check()

    def test_a_host_that_loses_it_between_two_generations_is_waited_for(self):
        job, simulation = simulate()
        simulation.when(CheckpointCompleted, lambda: simulation.kill_worker(0), number=2)
        simulation.when(CheckpointCompleted, lambda: simulation.unmount_worker(1), number=2)
        simulation.when(GenerationFailed, lambda: simulation.mount_worker(1), number=3)
        simulation.run()
        codes = [e.code for e in told(simulation, GenerationFailed)]
        assert codes[:3] == ["worker-lost", "store-not-shared", "store-not-shared"]
        job.check()
