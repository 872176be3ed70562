"""Lookups in the simulator: each row once, with versions that never go back, whatever dies."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from laminar_core.driver.events import CheckpointCompleted
from laminar_core.driver.recovery.stored_columns import column_mismatches
from laminar_core.operators.lookups.versions import VersionLooker
from laminar_core.operators.process.values import KeyedValues
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.testing.campaign import draw, simulate_setting
from laminar_core.testing.jobs import Job
from laminar_core.testing.lookup_jobs import LOOKUP_JOBS, judge
from laminar_core.testing.simulation import Simulation
from laminar_core.testing.world import ProcessKilledError
from tests.driver.drill.test_drill import drill

UNALIGNED = CoordinatorConfig(interval_ms=5, alignment_timeout_ms=0)
SEEDS = range(3)


@pytest.mark.parametrize("name", LOOKUP_JOBS)
def test_an_undisturbed_run_is_right(name: str) -> None:
    for parallelism in (1, 3):
        job = LOOKUP_JOBS[name](parallelism)
        result = Simulation(job.plan, parallelism=parallelism).run()
        job.check(result.rows_late)
        assert all(len(ledger.rows()) > 20 for ledger in job.ledgers.values())


def test_rows_meet_versions_and_the_lack_of_them() -> None:
    job = LOOKUP_JOBS["version-lookup"](2)
    Simulation(job.plan, parallelism=2, seed=1).run()
    found = [row["n"] for row in job.ledgers["out"].rows()]
    assert 20 < sum(n is not None for n in found) < len(found) - 20
    assert len({*found}) > 15


def killed(name: str, seed: int) -> tuple[Job, Simulation]:
    """A job whose driver dies after its fourth unaligned checkpoint."""
    job = LOOKUP_JOBS[name](3)
    simulation = Simulation(job.plan, parallelism=3, seed=seed, checkpoint=UNALIGNED)
    job.burden.row_ms, job.burden.spend = 24.0, simulation.world.spend
    simulation.when(CheckpointCompleted, simulation.kill_driver, 4)
    with pytest.raises(ProcessKilledError):
        simulation.run()
    return job, simulation


@pytest.mark.large
def test_rows_in_flight_on_both_inputs_come_back() -> None:
    """By a kill after unaligned checkpoints, and with another number of workers."""
    inputs: Counter[int] = Counter()
    for seed in SEEDS:
        job, simulation = killed("version-lookup", seed)
        newest = simulation.store.manifests.read(simulation.store.manifests.ids()[-1])
        assert list(column_mismatches(newest, job.plan, simulation.store)) == []
        for entry in newest.inflight_data:
            if entry.edge.downstream == "newest":
                inputs[entry.edge.input_index] += entry.row_count
        simulation.options = replace(simulation.options, parallelism=2 + seed % 3)
        result = simulation.run(take_over=True)
        job.check(result.rows_late)
    assert inputs[0], inputs
    assert inputs[1], inputs


def test_a_drill_proves_the_versions_and_reads_the_table() -> None:
    _, simulation = killed("version-lookup", 2)
    record, _ = drill(simulation)
    assert (record.outcome, record.problems) == ("passed", ())
    (lookup,) = [one for one in record.operators if one.operator_id == "newest"]
    assert lookup.is_equal
    assert lookup.rows_restored > 0
    _, simulation = killed("table-lookup", 2)
    assert drill(simulation)[0].outcome == "passed"


@pytest.mark.large
@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", LOOKUP_JOBS)
def test_crashes_and_other_numbers_of_workers_change_nothing(name: str) -> None:
    disasters = ("rescale", "worker-crash", "rescale")
    settings = [replace(draw(seed, losses=()), disasters=disasters) for seed in SEEDS]
    reports = [simulate_setting(setting, LOOKUP_JOBS[name]) for setting in settings]
    assert [report.violations for report in reports if not report.passed] == []
    assert sum(report.hits.get("rescale", 0) for report in reports) > len(reports) / 2


def problems_after_a_kill() -> list[str]:
    found: list[str] = []
    for seed in SEEDS:
        job, simulation = killed("version-lookup", seed)
        found += job.problems(simulation.run(take_over=True).rows_late)
    return found


@pytest.mark.large
def test_versions_that_are_lost_by_a_restart_would_be_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(KeyedValues, "restore", lambda _self, _rows: None)
    assert problems_after_a_kill()


@pytest.mark.large
def test_versions_that_outlive_their_time_would_be_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def timeless(looker: VersionLooker, batch: pa.RecordBatch) -> np.ndarray:
        del looker
        return np.full(batch.num_rows, np.iinfo(np.int64).min)

    monkeypatch.setattr(VersionLooker, "_times_us", timeless)
    assert problems_after_a_kill()


def test_a_row_that_comes_twice_is_noticed() -> None:
    job = LOOKUP_JOBS["version-lookup"](1)
    Simulation(job.plan, parallelism=1).run()
    rows = job.ledgers["out"].rows()
    assert list(judge(rows, 0)) == []
    assert "not each once" in " ".join(judge([*rows, rows[-1]], 0))
