"""Splits that are found while a job runs are read once, whatever dies or is rescaled."""

from dataclasses import replace

import pytest

from laminar_core.driver.events import CheckpointCompleted, GenerationStarted
from laminar_core.pipeline import Pipeline
from laminar_core.testing.growing_source import GrowingSource
from laminar_core.testing.jobs import Job, payments, rows_of, with_ledgers
from laminar_core.testing.simulation import Simulation
from laminar_core.testing.world import ProcessKilledError


def growing(splits: int = 12, rows: int = 25, **options: object) -> Job:
    tables = payments(splits, rows)
    p = Pipeline("growing")
    read = p.source("in", GrowingSource(tables, **options), rows_per_second=4_000)
    return with_ledgers(p, {"out": (read, rows_of(tables))})


def discovered(simulation: Simulation) -> list[tuple[int, bool]]:
    """Per checkpoint: the next split number, and whether the discovery was complete."""
    store = simulation.store.manifests
    entries = [store.read(checkpoint_id).discovery["in"] for checkpoint_id in store.ids()]
    return [(entry.next_split_id, entry.complete) for entry in entries]


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_a_job_ends_when_nothing_more_is_found_and_everything_is_read(workers: int) -> None:
    job = growing()
    simulation = Simulation(job.plan, parallelism=workers)
    assert simulation.run().rows_in == 12 * 25
    job.check()
    found = discovered(simulation)
    assert found == sorted(found)
    assert found[-1] == (12, True)
    assert found[0][0] < 12


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("whom", ["worker", "driver"])
def test_whoever_dies_after_a_checkpoint_no_split_is_lost_or_read_twice(
    seed: int, whom: str
) -> None:
    job = growing()
    simulation = Simulation(job.plan, parallelism=2, seed=seed)
    kill = {"worker": lambda: simulation.kill_worker(1), "driver": simulation.kill_driver}[whom]
    for number in (1, 2):
        simulation.when(CheckpointCompleted, kill, number)
    simulation.run_to_end()
    job.check()
    starts = [e for e in simulation.events if isinstance(e, GenerationStarted)]
    assert len(starts) == 3
    assert starts[0].rows_total is None


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(4))
def test_splits_are_dealt_anew_over_one_three_and_two_workers(seed: int) -> None:
    job = growing()
    simulation = Simulation(job.plan, parallelism=1, seed=seed)
    for workers, number in ((3, 1), (2, 3)):
        simulation.when(CheckpointCompleted, simulation.kill_driver, number)
        with pytest.raises(ProcessKilledError):
            simulation.run()
        simulation.options = replace(simulation.options, parallelism=workers)
    simulation.run()
    job.check()


def test_a_stop_and_a_start_go_on_where_the_discovery_was() -> None:
    job = growing()
    simulation = Simulation(job.plan, parallelism=2, seed=2)
    simulation.when(CheckpointCompleted, simulation.stop, 1)
    assert simulation.run().outcome == "stopped"
    (*_, (stopped_at, complete)) = discovered(simulation)
    assert not complete
    assert stopped_at < 12
    assert simulation.run().outcome == "finished"
    job.check()


def test_a_source_that_waits_for_more_for_ever_does_not_end() -> None:
    job = growing(splits=3, bounded=False)
    simulation = Simulation(job.plan, parallelism=2)
    simulation.when(CheckpointCompleted, simulation.stop, 8)
    assert simulation.run().outcome == "stopped"
    job.check()
    assert discovered(simulation)[-1] == (3, False)


def test_a_source_with_nothing_at_first_begins_with_what_comes() -> None:
    job = growing()
    (node,) = job.plan.sources()
    node.source.shelf.there = 0
    simulation = Simulation(job.plan, parallelism=2)
    simulation.run()
    job.check()
