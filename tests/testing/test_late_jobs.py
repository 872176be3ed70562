"""Jobs that keep late rows, and that emit early: with other workers, and with planted faults."""

from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from laminar_core.driver.events import CheckpointCompleted
from laminar_core.operators.late_rows import BehindParter, LateRowsGiver, RowsBehind
from laminar_core.plan.state_options import SnapshotMode, StateOptions
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.testing.disk import SimulatedDisk
from laminar_core.testing.jobs import Row, totals
from laminar_core.testing.late_jobs import (
    LATE_JOBS,
    early_windows_job,
    idle_late_windows_job,
    kept_late_sessions_job,
    last_results,
    late_windows_job,
    whole,
)
from laminar_core.testing.simulation import Simulation
from laminar_core.testing.world import ProcessKilledError

WORKERS = (1, 3, 3, 2, 2)
PACED = {
    "late-windows": late_windows_job,
    "idle-late-windows": idle_late_windows_job,
    "kept-late-sessions": kept_late_sessions_job,
    "early-windows": early_windows_job,
}


@pytest.mark.parametrize("name", LATE_JOBS)
def test_an_undisturbed_run_is_right(name: str) -> None:
    job = LATE_JOBS[name](3)
    result = Simulation(job.plan, parallelism=3, seed=3).run()
    job.check(result.rows_late)
    assert 0 < result.rows_late == len(job.ledgers["late"].rows())


def test_early_results_are_there() -> None:
    job = LATE_JOBS["early-windows"](2)
    Simulation(job.plan, parallelism=2).run()
    emitted = job.ledgers["out"].rows()
    assert len(emitted) > 1.5 * len(last_results(emitted))


def run(
    name: str,
    snapshots: SnapshotMode = "incremental",
    *,
    budget_ms: int | None = 0,
    seed: int = 0,
) -> list[str]:
    """1 to 3 to 2 workers, also the same number again; killed, and at last run to the end."""
    job, objects = PACED[name](1, pace=60), SimulatedDisk()
    checkpoint = CoordinatorConfig(interval_ms=20, alignment_timeout_ms=budget_ms)
    rows_late = 0
    for part, parallelism in enumerate(WORKERS):
        simulation = Simulation(
            job.plan,
            checkpoint=checkpoint,
            parallelism=parallelism,
            objects=objects,
            first_driver=part + 1,
            seed=seed,
        )
        simulation.options = replace(
            simulation.options, state=StateOptions(snapshots, segments_max=2)
        )
        job.burden.row_ms, job.burden.spend = 10.0, simulation.world.spend
        if part < len(WORKERS) - 1:
            simulation.when(CheckpointCompleted, simulation.kill_driver, 3)
        try:
            rows_late = simulation.run(take_over=True).rows_late
        except ProcessKilledError:
            continue
        assert part > 1, "too fast to be disturbed"
        break
    return list(job.problems(rows_late))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", LATE_JOBS)
@pytest.mark.parametrize("budget_ms", [None, 0])
def test_from_one_to_three_to_two_workers_each_row_is_somewhere_once(
    name: str, budget_ms: int | None
) -> None:
    assert run(name, budget_ms=budget_ms) == []


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", LATE_JOBS)
@pytest.mark.parametrize("snapshots", ["full", "changelog"])
def test_so_it_is_with_other_snapshots(name: str, snapshots: SnapshotMode) -> None:
    assert run(name, snapshots, seed=1) == []


def noticed(name: str, what: str) -> bool:
    """Whether some run finds this problem."""
    return any(what in problem for seed in range(3) for problem in run(name, seed=seed))


def test_rows_of_idle_sources_that_are_combined_would_be_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        RowsBehind, "open", lambda spec, *_: BehindParter(replace(spec, all_rows=False))
    )
    assert noticed("idle-late-windows", "were counted as late")


def test_late_rows_that_are_lost_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    process_input = LateRowsGiver.process_input

    def without_late(giver: LateRowsGiver, index: int, batch):
        late = giver.late_row_count
        emitted = list(process_input(giver, index, batch))
        return [] if giver.late_row_count == late + 1 else emitted

    monkeypatch.setattr(LateRowsGiver, "process_input", without_late)
    assert noticed("late-windows", "were counted as late")


def row(key: str, second: int, row_id: int) -> Row:
    return {"key": key, "ts": datetime.fromtimestamp(second, UTC), "value": 2, "id": row_id}


def window(key: str, start: int, count: int) -> Row:
    bounds = {"window_start": start, "window_end": start + 10}
    times = {name: datetime.fromtimestamp(second, UTC) for name, second in bounds.items()}
    return {"key": key, **times, "count": count, "total": 2 * count}


def batch(rows: list[Row]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows)


ROWS = [row("a", 1, 1), row("a", 2, 2), row("b", 3, 3)]
EARLY, FINAL = window("a", 0, 1), window("a", 0, 2)
B = window("b", 0, 1)


@pytest.mark.parametrize(
    ("emitted", "late", "counted", "problem"),
    [
        ([EARLY, FINAL, B], [], 0, None),
        ([EARLY, B], [ROWS[0]], 1, None),
        ([FINAL, B], [ROWS[0]], 1, "of the rows that were not late"),
        ([EARLY, B], [], 0, "of the rows that were not late"),
        ([EARLY, B], [ROWS[0]], 0, "1 rows are in the late output, and 0"),
        ([EARLY, B], [ROWS[0], ROWS[0]], 2, "came twice"),
        ([EARLY, B], [{**ROWS[0], "value": 3}], 1, "not as they were"),
        ([FINAL, EARLY, B], [ROWS[0]], 1, "after a result with 2 rows"),
    ],
)
def test_each_row_is_wanted_once_and_the_last_result_counts(
    emitted: list[Row], late: list[Row], counted: int, problem: str | None
) -> None:
    job = late_windows_job(1)
    for name, rows in (("out", emitted), ("late", late)):
        ledger = job.ledgers[name]
        ledger.visible["1-0-0"], ledger.commits[1] = [batch(rows)], ["1-0-0"]
    wanted = batch(ROWS).to_pylist()
    found = list(whole(job, wanted, totals, early=True)([], counted))
    assert found == [] if problem is None else any(problem in said for said in found)
