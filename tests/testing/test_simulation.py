"""The whole simulation, as somebody uses it who tests a pipeline of their own."""

import pyarrow as pa
import pytest

from laminar_core.driver.events import CheckpointCompleted, Finished, GenerationStarted
from laminar_core.driver.restart import NoRestart
from laminar_core.errors import JobFailedError
from laminar_core.pipeline import Pipeline
from laminar_core.records.actor import LAMINAR
from laminar_core.testing.ledger import Ledger, LedgerSink
from laminar_core.testing.memory_source import MemorySource
from laminar_core.testing.simulation import Simulation
from laminar_core.testing.world import ProcessKilledError

NUMBERS = list(range(60))


def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch({"n": [2 * n for n in batch.column("n").to_pylist()]}, batch.schema)


def simulate(**options) -> tuple[Ledger, Simulation]:
    ledger, p = Ledger(), Pipeline("numbers")
    source = MemorySource([pa.table({"n": NUMBERS[::2]}), pa.table({"n": NUMBERS[1::2]})])
    p.source("in", source).map(doubled).sink("out", LedgerSink(ledger))
    return ledger, Simulation(p.plan(), **options)


def numbers(ledger: Ledger) -> list[object]:
    return sorted(row["n"] for row in ledger.rows())


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_a_pipeline_of_ones_own_survives_what_one_does_to_it(parallelism):
    ledger, simulation = simulate(parallelism=parallelism, seed=7)
    simulation.world.at_turn(40, lambda: simulation.kill_worker(0))
    simulation.when(CheckpointCompleted, simulation.kill_driver)
    simulation.run_to_end()
    assert numbers(ledger) == [2 * n for n in NUMBERS]
    assert len(simulation.drivers) == 2


def test_equal_seeds_are_equal_runs_and_others_are_not():
    digests = set()
    for seed in (1, 1, 2, 3):
        _, simulation = simulate(seed=seed)
        simulation.run()
        digests.add(simulation.world.digest)
    assert len(digests) == 3


def test_options_of_a_single_run():
    _, simulation = simulate()
    simulation.when(GenerationStarted, lambda: simulation.kill_worker(1))
    with pytest.raises(JobFailedError):
        simulation.run(restart=NoRestart())
    assert simulation.run(actor=LAMINAR.because("again")).outcome == "finished"
    assert [g.claim.reason for g in simulation.store.generations.summaries()] == [
        "started",
        "again",
    ]


def test_actions_follow_the_nth_event_of_a_kind():
    _, simulation = simulate()
    seen = []
    simulation.when(CheckpointCompleted, lambda: seen.append(len(simulation.events)), number=2)
    simulation.run()
    kinds = [type(event) for event in simulation.events[: seen[0]]]
    assert kinds.count(CheckpointCompleted) == 2
    assert isinstance(simulation.events[-1], Finished)


def test_killing_who_is_not_there_changes_nothing():
    ledger, simulation = simulate()
    simulation.kill_worker(0)
    simulation.kill_driver()
    simulation.when(GenerationStarted, lambda: simulation.kill_worker(17))
    simulation.run()
    assert numbers(ledger) == [2 * n for n in NUMBERS]


def test_a_worker_that_dies_in_a_call_of_the_store_makes_no_other():
    ledger, simulation = simulate()
    calls = []

    def observe(call) -> None:
        if call.process == "g1-worker-1":
            calls.append(call)
            simulation.kill_worker(1)

    simulation.observers.append(observe)
    simulation.run_to_end()
    assert len(calls) == 1
    assert numbers(ledger) == [2 * n for n in NUMBERS]


def test_drivers_that_are_all_killed_are_an_error():
    _, simulation = simulate()
    for number in range(1, 4):
        simulation.when(GenerationStarted, simulation.kill_driver, number)
    with pytest.raises(AssertionError, match="3 drivers were killed"):
        simulation.run_to_end(drivers_max=3)


def test_a_killed_driver_is_not_an_exception_that_somebody_handles():
    _, simulation = simulate()
    simulation.when(GenerationStarted, simulation.kill_driver)
    with pytest.raises(ProcessKilledError):
        simulation.run()
    assert simulation.store.generations.summaries()[0].end is None
