"""Jobs with process functions: undisturbed, with other workers, and with planted faults."""

from typing import Any

import pytest

from laminar_core.driver.events import CheckpointCompleted
from laminar_core.errors import LaminarError
from laminar_core.operators.process.timers import TimerTable
from laminar_core.operators.process.values import KeyedValues
from laminar_core.plan.state_options import BackendName, SnapshotMode
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.testing.jobs import Job
from laminar_core.testing.process_jobs import PROCESS_JOBS, clock_timers_job, process_job, streaks
from laminar_core.testing.simulation import Simulation
from tests.testing.disturbed import disturbed

SEEDS = range(3)


@pytest.mark.large
@pytest.mark.parametrize("name", PROCESS_JOBS)
def test_an_undisturbed_run_is_exact(name: str) -> None:
    job = PROCESS_JOBS[name](2)
    result = Simulation(job.plan, parallelism=2).run()
    job.check(result.rows_late)
    assert result.rows_late == 0


def test_streaks_end_where_a_window_had_no_rows() -> None:
    windows = [{"key": "a", "start": start * 10_000_000} for start in (3, 0, 1)]
    assert [row["streak"] for row in streaks(windows)] == [1, 2, 1]


def run(name: str, *args: Any, **options: Any) -> Job:
    return disturbed(PROCESS_JOBS[name], *args, **options)


@pytest.mark.large
@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", PROCESS_JOBS)
@pytest.mark.parametrize("budget_ms", [None, 0])
@pytest.mark.parametrize("seed", SEEDS)
def test_from_one_to_three_to_two_workers_the_result_is_exact(
    name: str, budget_ms: int | None, seed: int
) -> None:
    run(name, budget_ms=budget_ms, seed=seed).check()


@pytest.mark.large
@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", PROCESS_JOBS)
@pytest.mark.parametrize(
    ("snapshots", "backend"),
    [("full", "memory"), ("changelog", "memory"), ("incremental", "rocksdb")],
)
def test_so_it_is_with_other_snapshots_and_another_backend(
    name: str, snapshots: SnapshotMode, backend: BackendName
) -> None:
    run(name, snapshots, backend).check()


@pytest.mark.large
def test_timers_that_fire_again_after_a_restore_would_be_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    take_changes = TimerTable.take_changes

    def without_mark(table: TimerTable):
        table.reached_us = None
        return take_changes(table)

    monkeypatch.setattr(TimerTable, "take_changes", without_mark)
    assert any("ValueError" in problem for seed in SEEDS for problem in problems_of(seed))


def problems_of(seed: int) -> list[str]:
    try:
        return list(run("process", seed=seed).problems())
    except LaminarError as error:
        return [str(error)]


def test_values_that_live_for_ever_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    init = KeyedValues.__init__

    def forget_ttl(values: KeyedValues, *args) -> None:
        init(values, *args)
        values._ttl_us = None if values._ttl_us is None else 2**60

    monkeypatch.setattr(KeyedValues, "__init__", forget_ttl)
    job = process_job(2)
    Simulation(job.plan, parallelism=2).run()
    assert list(job.problems())


def test_clock_timers_fire_before_the_end_of_the_input() -> None:
    job = clock_timers_job(1)
    simulation = Simulation(job.plan, parallelism=1, checkpoint=CoordinatorConfig(interval_ms=10))
    job.burden.row_ms, job.burden.spend = 2.0, simulation.world.spend
    visible: list[int] = []
    simulation.when(CheckpointCompleted, lambda: visible.append(len(job.ledgers["out"].rows())), 3)
    simulation.run()
    job.check()
    assert 0 < visible[0] < 120
