"""A savepoint is imported as a whole or not at all, wherever a driver dies while it does."""

from dataclasses import replace
from pathlib import Path

import pytest

from laminar_core.checkpoint.coordinator_config import CoordinatorConfig
from laminar_core.errors import ConfigurationError, IncompatibleStateError
from laminar_core.state.control import StopJob, TakeSavepoint
from laminar_core.storage.local import LocalObjectStore
from laminar_core.storage.memory import MemoryObjectStore
from laminar_core.storage.savepoints import read_savepoint
from laminar_core.testing.crash_points import by_drivers, simulated_crashes
from laminar_core.testing.observed_store import StoreCall
from laminar_core.testing.scenarios import Job, windows_job
from laminar_core.testing.simulation import Simulation
from tests.runtime.savepoint_stories import Story, slow_job

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
    """The same that took one on its way and went on to its end."""
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
    def test_another_job_goes_on_from_the_savepoint_whenever_a_driver_dies(self, stopped):
        before, target = stopped

        def build() -> tuple[Job, Simulation]:
            job = slow_job(rows=30, row_ms=0)
            job.load(before.job.ledgers)
            simulation = Simulation(job.plan, checkpoint=SELDOM, job="renamed", first_driver=8)
            simulation.options = replace(simulation.options, from_savepoint=str(target))
            return job, simulation

        count = 0
        for crashed in simulated_crashes(build, about_the_import, ("crash",)):
            count += 1
            crashed.job.check()
            assert len(crashed.job.ledgers["out"].rows()) == len(crashed.job.expected["out"])
        assert count > 40

    def test_the_same_job_goes_back_whenever_a_driver_dies(self, finished):
        before, target = finished

        def build() -> tuple[Job, Simulation]:
            job = slow_job(rows=30, row_ms=0)
            job.load(before.job.ledgers)
            objects = copied(before.simulation.objects)
            simulation = Simulation(job.plan, checkpoint=SELDOM, objects=objects, first_driver=8)
            simulation.options = replace(simulation.options, from_savepoint=str(target))
            return job, simulation

        count = 0
        for crashed in simulated_crashes(build, about_the_import, ("crash",)):
            count += 1
            crashed.job.check()
        assert count > 40
