"""A store that goes away as a whole: what processes find, what is noticed, and what is excused."""

from collections import Counter
from dataclasses import replace
from functools import cache
from random import Random

import pytest

from laminar_core.driver.events import CheckpointCompleted
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.testing.campaign import SeedReport, draw, simulate_setting
from laminar_core.testing.disasters import Disasters
from laminar_core.testing.disk import SimulatedDisk
from laminar_core.testing.history import History
from laminar_core.testing.jobs import Job
from laminar_core.testing.places import directory, no_directory
from laminar_core.testing.scenarios import SCENARIOS, windows_job
from laminar_core.testing.simulation import JOB, Simulation
from laminar_core.testing.store_disasters import (
    STORE_KINDS,
    _of_a_namesake,
    _of_another_job,
    store_replaced,
)

SEEDS = range(2, 8)


def simulate(seed: int = 0) -> tuple[Job, Simulation]:
    job = windows_job(2, pace=20.0)
    config = CoordinatorConfig(interval_ms=100, tolerable_failures=None)
    return job, Simulation(job.plan, seed=seed, checkpoint=config, objects=SimulatedDisk())


def watched(job: Job, simulation: Simulation) -> History:
    return History(simulation, simulation.objects, job.ledgers, Random(0))


@cache
def reports(*losses: str) -> list[SeedReport]:
    settings = [replace(draw(seed), disasters=(), losses=losses) for seed in SEEDS]
    return [simulate_setting(setting, SCENARIOS[setting.scenario]) for setting in settings]


@pytest.mark.large
@pytest.mark.parametrize("kind", STORE_KINDS)
def test_a_job_goes_on_when_the_store_is_back(kind):
    found = reports(kind)
    assert [report.violations for report in found if not report.passed] == []
    hits: Counter[str] = Counter()
    for report in found:
        hits.update(report.hits)
    assert hits.keys() == {kind}


@pytest.mark.large
def test_every_place_is_drawn_and_drivers_end_for_it():
    places = (
        "no directory",
        "an empty directory",
        "an older copy",
        "the store of another job",
        "the store of a namesake",
    )
    trace = "\n".join(line for kind in STORE_KINDS for r in reports(kind) for line in r.trace)
    assert [place for place in places if f"{place} for" not in trace] == []
    assert "a driver has lost its store: restarts-exhausted" in trace
    assert "a driver is refused" in trace
    assert "store-lost" in trace


def test_an_older_copy_has_the_claim_of_no_driver_that_lives():
    for seed in range(20, 50):  # Of those before, none has it: each takes seconds.
        job, simulation = simulate(seed)
        planned = Disasters(simulation, job, Random(seed), Random(seed))
        simulation.when(CheckpointCompleted, simulation.kill_driver)
        store_replaced(planned)
        planned.run()
        older = [place for place in planned.places if place.what == "an older copy"]
        copied = older[0].open(seen=True).list(f"{JOB}/generations/") if older else []
        if f"{JOB}/generations/0000000001.json" in copied:
            break
    assert f"{JOB}/generations/0000000001.json" in copied
    assert f"{JOB}/generations/0000000002.json" not in copied


def test_what_others_have_in_their_store():
    job, _ = simulate()
    namesake, other = _of_a_namesake(), _of_another_job()
    assert namesake.has_the_job
    assert f"{JOB}/generations/0000000002.json" in namesake.open(seen=True).list("")
    assert not other.has_the_job
    assert not other.open(seen=True).list(f"{JOB}/")
    assert other.open(seen=True).list("another/generations/")
    assert job.ledgers["out"].rows() == []


class TestHistory:
    """It tells what is written in another place from what is written in the store."""

    def test_a_record_in_another_place_is_a_stray(self):
        job, simulation = simulate()
        history = watched(job, simulation)
        store = simulation._open_store("driver-1", lambda: True)
        simulation.unmount(directory(SimulatedDisk()))
        simulation.world.later(1, lambda: store.objects.put_if_absent(f"{JOB}/a", b""))
        simulation.world.later(2, lambda: store.objects.delete(f"{JOB}/b"))
        simulation.world.run_until(lambda: simulation.world.deserted)
        assert history.strays == [
            f"driver-1 writes {JOB}/a in an empty directory",
            f"driver-1 deletes {JOB}/b in an empty directory",
        ]
        assert history.writes == []

    def test_a_part_of_a_worker_is_none_and_an_overwritten_one_is(self):
        job, simulation = simulate()
        history = watched(job, simulation)
        part = f"{JOB}/checkpoints/0000000001/operators/in/state_0.seg"
        store = simulation._open_store("g1-worker-1", lambda: True)
        simulation.unmount_worker(1)
        simulation.world.later(1, lambda: store.objects.put_if_absent(part, b""))
        simulation.world.run_until(lambda: simulation.world.deserted)
        assert history.strays == []
        simulation.world.later(1, lambda: store.objects.put(part, b""))
        simulation.world.run_until(lambda: simulation.world.deserted)
        assert len(history.strays) == 1

    def test_what_is_under_way_when_the_store_goes_away_is_excused(self):
        job, simulation = simulate()
        history = watched(job, simulation)
        store = simulation._open_store("driver-1", lambda: True)

        def act() -> None:
            simulation.unmount(directory(SimulatedDisk()))
            store.objects.put_if_absent(f"{JOB}/a", b"")

        simulation.world.later(1, act)
        simulation.world.run_until(lambda: simulation.world.deserted)
        assert (history.strays, history.lost_keys) == ([], {f"{JOB}/a"})


def test_all_see_the_store_again_when_it_is_back():
    _, simulation = simulate()
    driver = simulation._open_store("driver-1", lambda: True)
    worker = simulation._open_store("g1-worker-1", lambda: True)
    simulation.objects.put("a", b"1")
    simulation.unmount_worker(1)
    assert [s.objects.get("a") for s in (driver, worker)] == [b"1", None]
    simulation.unmount(no_directory())
    assert simulation.store_is_lost
    late = simulation._open_store("g2-worker-0", lambda: True)
    assert late.objects.get("a") is None  # It has never seen the root.
    simulation.mount()
    assert [s.objects.get("a") for s in (driver, worker, late)] == [b"1", None, b"1"]
    simulation.mount_worker(1)
    assert worker.objects.get("a") == b"1"
    assert not simulation.store_is_lost
