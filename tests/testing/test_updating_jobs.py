"""Updating operators in the simulator: exact whatever dies, with rows in flight, and bounded."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from laminar_core.driver.events import CheckpointCompleted
from laminar_core.driver.recovery.stored_columns import column_mismatches
from laminar_core.operators.joins.updating import UpdatingJoiner
from laminar_core.operators.top_rows import TopRowsKeeper
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.testing.campaign import draw, simulate_setting
from laminar_core.testing.jobs import Job
from laminar_core.testing.simulation import Simulation
from laminar_core.testing.updating_jobs import UPDATING_JOBS
from laminar_core.testing.world import ProcessKilledError
from tests.driver.drill.test_drill import drill

UNALIGNED = CoordinatorConfig(interval_ms=5, alignment_timeout_ms=0)
SEEDS = range(3)
STATEFUL = {"distinct", "first", "best-rows", "last-rows", "best", "join"}


@pytest.mark.parametrize("name", UPDATING_JOBS)
def test_an_undisturbed_run_is_exact(name: str) -> None:
    for parallelism in (1, 3):
        job = UPDATING_JOBS[name](parallelism)
        result = Simulation(job.plan, parallelism=parallelism).run()
        job.check(result.rows_late)
        assert result.rows_late == 0


def test_every_kind_of_result_is_in_the_jobs() -> None:
    rows = UPDATING_JOBS["updating-join"](1).expected["out"]
    kinds = Counter((row["id"] is None, row["refund"] is None) for row in rows)
    assert kinds[False, False] > 5 < kinds[False, True]
    for name in ("first-rows", "best-rows", "join-with-ttl"):
        assert all(len(rows) > 5 for rows in UPDATING_JOBS[name](1).expected.values())


def killed(name: str, seed: int) -> tuple[Job, Simulation]:
    """A job whose driver dies after its first unaligned checkpoint."""
    job = UPDATING_JOBS[name](3)
    simulation = Simulation(job.plan, parallelism=3, seed=seed, checkpoint=UNALIGNED)
    job.burden.row_ms, job.burden.spend = 2.0, simulation.world.spend
    simulation.when(CheckpointCompleted, simulation.kill_driver)
    with pytest.raises(ProcessKilledError):
        simulation.run()
    return job, simulation


@pytest.mark.parametrize("name", UPDATING_JOBS)
def test_rows_in_flight_come_back(name: str) -> None:
    """By a kill after an unaligned checkpoint, and with another number of workers."""
    in_flight = 0
    for seed in SEEDS:
        job, simulation = killed(name, seed)
        newest = simulation.store.manifests.read(simulation.store.manifests.ids()[-1])
        assert list(column_mismatches(newest, job.plan, simulation.store)) == []
        in_flight += sum(
            entry.row_count for entry in newest.inflight_data if entry.edge.downstream in STATEFUL
        )
        simulation.options = replace(simulation.options, parallelism=2 + seed % 3)
        result = simulation.run(take_over=True)
        job.check(result.rows_late)
        assert result.rows_late == 0
    assert in_flight


@pytest.mark.parametrize("name", UPDATING_JOBS)
def test_a_drill_proves_every_table(name: str) -> None:
    _, simulation = killed(name, 2)
    record, _ = drill(simulation)
    assert (record.outcome, record.problems) == ("passed", ())
    stateful = [one for one in record.operators if one.operator_id in STATEFUL]
    assert stateful
    assert all(one.is_equal for one in stateful)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", UPDATING_JOBS)
def test_crashes_and_other_numbers_of_workers_change_nothing(name: str) -> None:
    disasters = ("rescale", "worker-crash", "rescale")
    settings = [replace(draw(seed, losses=()), disasters=disasters) for seed in SEEDS]
    reports = [simulate_setting(setting, UPDATING_JOBS[name]) for setting in settings]
    assert [report.violations for report in reports if not report.passed] == []
    assert sum(report.hits.get("rescale", 0) for report in reports) > len(reports) / 2


def test_a_partner_that_is_not_counted_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(UpdatingJoiner, "_change_partners", lambda *_: None)
    problems: list[str] = []
    for seed in SEEDS:
        job = UPDATING_JOBS["join-with-ttl"](2)
        result = Simulation(job.plan, parallelism=2, seed=seed).run()
        problems += job.problems(result.rows_late)
    assert problems


def test_a_row_that_falls_out_and_is_not_taken_back_would_be_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    changes = TopRowsKeeper._changes

    def only_what_came(self, keys, found, is_changed):
        table = changes(self, keys, found, is_changed)
        return table.filter(np.asarray(table.column("_weight")) > 0) if self._spec.rank else table

    monkeypatch.setattr(TopRowsKeeper, "_changes", only_what_came)
    job = UPDATING_JOBS["best-rows"](2)
    result = Simulation(job.plan, parallelism=2).run()
    assert list(job.problems(result.rows_late))
