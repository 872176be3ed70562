"""A savepoint is imported as a whole or not at all, wherever a driver dies while it does."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from laminar_core.driver.events import GenerationStarted, WorkersRunning
from laminar_core.errors import (
    ConfigurationError,
    CorruptCheckpointError,
    IncompatibleStateError,
    LaminarError,
)
from laminar_core.objectstore.local import LocalObjectStore
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.records.commands import StopJob, TakeSavepoint
from laminar_core.store.savepoint_import import claimed_savepoints
from laminar_core.store.savepoints import read_savepoint
from laminar_core.testing.jobs import Job
from laminar_core.testing.observed_store import StoreCall
from laminar_core.testing.scenarios import windows_job
from laminar_core.testing.simulation import Simulation
from laminar_core.testing.world import ProcessKilledError
from tests.simulated.savepoint_stories import Story, slow_job
from verification.crash_points import by_drivers, simulated_crash, simulated_points

SELDOM = CoordinatorConfig(interval_ms=300)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Story, Path]:
    """A small job that was stopped with a savepoint in the middle of its input."""
    target = tmp_path_factory.mktemp("savepoints") / "s"
    story = Story(SELDOM, job=slow_job(rows=30, row_ms=60))
    story.at_start(StopJob(target=str(target)))
    assert story.simulation.run().outcome == "stopped"
    return story, target


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Story, Path]:
    """Return the disk after a run that took a checkpoint on its way and reached its end."""
    target = tmp_path_factory.mktemp("savepoints") / "s"
    story = Story(SELDOM, job=slow_job(rows=30, row_ms=60))
    story.at_start(TakeSavepoint(target=str(target)))
    assert story.simulation.run().outcome == "finished"
    assert story.result().outcome == "completed"
    return story, target


def copied(objects: MemoryObjectStore) -> MemoryObjectStore:
    twin = MemoryObjectStore()
    for key in objects.list(""):
        twin.put(key, objects.get(key) or b"")
    return twin


def about_the_import(call: StoreCall) -> bool:
    """The driver's part until the job runs: workers and later checkpoints are as always."""
    if not by_drivers(call) or call.process not in ("driver-8", "driver-9"):
        return False
    return "/generations/" in call.key or "/history/" not in call.key


class TestDyingAnywhere:
    @pytest.mark.large
    def test_another_job_goes_on_from_the_savepoint_whenever_a_driver_dies(
        self, stopped, every_case
    ):
        before, target = stopped

        def build() -> tuple[Job, Simulation]:
            job = slow_job(rows=30, row_ms=0)
            job.load(before.job.ledgers)
            simulation = Simulation(job.plan, checkpoint=SELDOM, job="renamed", first_driver=8)
            simulation.options = replace(simulation.options, from_savepoint=str(target))
            return job, simulation

        points = simulated_points(build, about_the_import, ("crash",))
        assert len(points) > 40
        for point in points if every_case else points[::6]:
            crashed = simulated_crash(build, about_the_import, point)
            crashed.job.check()
            assert len(crashed.job.ledgers["out"].rows()) == len(crashed.job.expected["out"])

    @pytest.mark.large
    def test_the_same_job_goes_back_whenever_a_driver_dies(self, finished, every_case):
        before, target = finished

        def build() -> tuple[Job, Simulation]:
            job = slow_job(rows=30, row_ms=0)
            job.load(before.job.ledgers)
            objects = copied(before.simulation.objects)
            simulation = Simulation(job.plan, checkpoint=SELDOM, objects=objects, first_driver=8)
            simulation.options = replace(simulation.options, from_savepoint=str(target))
            return job, simulation

        points = simulated_points(build, about_the_import, ("crash",))
        assert len(points) > 40
        for point in points if every_case else points[::6]:
            simulated_crash(build, about_the_import, point).job.check()


def kill_before(simulation: Simulation, key: str) -> None:
    """The driver dies when it is about to create this object."""

    def observe(call: StoreCall) -> None:
        if call.verb == "put_if_absent" and call.moment == "before" and call.key.endswith(key):
            simulation.observers.remove(observe)
            simulation.kill_driver()

    simulation.observers.append(observe)


def fork(stopped: tuple[Story, Path]) -> tuple[Job, Simulation, Path]:
    before, target = stopped
    job = slow_job(rows=30, row_ms=0)
    job.load(before.job.ledgers)
    simulation = Simulation(job.plan, checkpoint=SELDOM, job="renamed")
    return job, simulation, target


def interrupted_import(stopped: tuple[Story, Path], where: Path) -> tuple[Job, Simulation]:
    """A driver that died between going over to the savepoint and having it."""
    job, simulation, target = fork(stopped)
    shutil.copytree(target, where)
    imported = story_id(target) + 1
    kill_before(simulation, f"{imported:010}/manifest.json")
    with pytest.raises(ProcessKilledError):
        simulation.run(from_savepoint=str(where))
    return job, simulation


def story_id(target: Path) -> int:
    return read_savepoint(LocalObjectStore(target)).record.origin.checkpoint_id


class TestAfterwards:
    def test_an_import_that_was_broken_off_is_finished_by_whoever_comes_next(
        self, stopped, tmp_path
    ):
        job, simulation = interrupted_import(stopped, tmp_path / "s")
        assert simulation.run().outcome == "finished"
        job.check()

    def test_without_its_savepoint_it_is_refused_and_not_started_empty(self, stopped, tmp_path):
        job, simulation = interrupted_import(stopped, tmp_path / "s")
        shutil.rmtree(tmp_path / "s")
        with pytest.raises(IncompatibleStateError, match="that was broken off; now there is noth"):
            simulation.run()
        (tmp_path / "s").mkdir()
        shutil.copy(stopped[1] / "savepoint.json", tmp_path / "s")
        with pytest.raises(CorruptCheckpointError, match="is missing"):
            simulation.run()
        shutil.copytree(stopped[1], tmp_path / "s", dirs_exist_ok=True)
        simulation.run()
        job.check()

    def test_another_savepoint_in_its_place_is_refused(self, stopped, finished, tmp_path):
        _, simulation = interrupted_import(stopped, tmp_path / "s")
        shutil.copytree(finished[1], tmp_path / "s", dirs_exist_ok=True)
        with pytest.raises(IncompatibleStateError, match="holds another savepoint now"):
            simulation.run()

    def test_the_same_command_again_continues_and_does_not_go_back(self, stopped):
        job, simulation, target = fork(stopped)
        simulation.run(from_savepoint=str(target))
        completed = simulation.store.manifests.ids()
        simulation.run(from_savepoint=str(target))
        job.check()
        imports = [
            n
            for n in simulation.store.manifests.ids()
            if simulation.store.manifests.read(n).imported_from
        ]
        assert imports == completed[:1]

    def test_a_worker_that_dies_before_the_job_begins_does_not_import_twice(self, stopped):
        job, simulation, target = fork(stopped)

        def die() -> None:
            assert simulation.drivers[-1].stages, "nothing restores yet"
            simulation.kill_worker(1)

        simulation.when(GenerationStarted, lambda: simulation.world.later(1, die))
        simulation.run(from_savepoint=str(target))
        job.check()
        starts = [e for e in simulation.events if isinstance(e, GenerationStarted)]
        begun = [e.generation for e in simulation.events if isinstance(e, WorkersRunning)]
        assert begun == [starts[-1].generation]
        assert len(starts) == 2
        assert {e.restored_checkpoint_id for e in starts} == {story_id(target) + 1}

    def test_a_claimed_savepoint_that_is_gone_is_no_reason_to_refuse_the_same_command(
        self, stopped, tmp_path
    ):
        job, simulation, target = fork(stopped)
        shutil.copytree(target, tmp_path / "s")
        for _ in range(2):
            simulation.run(from_savepoint=str(tmp_path / "s"), claim_savepoint=True)
        assert not (tmp_path / "s/savepoint.json").exists()
        job.check()

    def test_a_claim_that_a_dead_driver_left_is_settled_by_the_next_one(self, stopped, tmp_path):
        job, simulation, target = fork(stopped)
        shutil.copytree(target, tmp_path / "s")
        kill_before(simulation, ".released.json")
        simulation.options = replace(
            simulation.options, from_savepoint=str(tmp_path / "s"), claim_savepoint=True
        )
        simulation.run_to_end()
        assert not list((tmp_path / "s").rglob("*.*"))
        assert claimed_savepoints(simulation.store) == []
        job.check()

    def test_damage_never_leads_back_to_what_the_job_had_given_up(self, finished):
        before, target = finished
        job = slow_job(rows=30, row_ms=0)
        job.load(before.job.ledgers)
        objects = copied(before.simulation.objects)
        given_up = before.simulation.store.manifests.ids()[-1]
        simulation = Simulation(job.plan, checkpoint=SELDOM, objects=objects, first_driver=8)
        simulation.run(from_savepoint=str(target))
        store = simulation.store
        for number in store.manifests.ids():
            if number > given_up:
                objects.put(store.paths.manifest(number), b"rot")
        with pytest.raises(LaminarError):
            simulation.run(restore_id=given_up)
        simulation.run()
        started = [e for e in simulation.events if isinstance(e, GenerationStarted)][-1]
        assert started.restored_checkpoint_id == story_id(target)
        job.check()


class TestRefusals:
    def test_another_pipeline_is_refused_before_the_job_is_claimed(self, stopped):
        simulation = Simulation(windows_job(2).plan, job="renamed")
        with pytest.raises(IncompatibleStateError):
            simulation.run(from_savepoint=str(stopped[1]))
        assert simulation.store.claims.newest() is None

    def test_nothing_is_no_savepoint(self, tmp_path):
        simulation = Simulation(windows_job(2).plan, job="renamed")
        with pytest.raises(ConfigurationError, match="there is nothing at"):
            simulation.run(from_savepoint=str(tmp_path / "s"))
        assert simulation.store.claims.newest() is None
