"""Jobs with slow calls: undisturbed, with other workers, and with planted faults."""

from dataclasses import replace

import pytest

from laminar_core.driver.events import CheckpointCompleted
from laminar_core.errors import LaminarError
from laminar_core.operators.enrich.subtask import EnrichSubtask
from laminar_core.plan.state_options import BackendName, SnapshotMode, StateOptions
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.testing.disk import SimulatedDisk
from laminar_core.testing.enrich_jobs import ENRICH_JOBS, enrich_job
from laminar_core.testing.jobs import Job
from laminar_core.testing.kept_state_jobs import KEPT_STATE_JOBS
from laminar_core.testing.simulation import Simulation
from laminar_core.testing.world import ProcessKilledError

JOBS = {**ENRICH_JOBS, **KEPT_STATE_JOBS}
WORKERS = (1, 3, 3, 2, 2)


@pytest.mark.parametrize("name", JOBS)
def test_an_undisturbed_run_is_exact(name: str) -> None:
    job = JOBS[name](2)
    result = Simulation(job.plan, parallelism=2).run()
    job.check(result.rows_late)
    assert result.rows_late == 0


def run(
    name: str,
    snapshots: SnapshotMode = "incremental",
    backend: BackendName = "memory",
    *,
    budget_ms: int | None = 0,
    seed: int = 0,
) -> Job:
    """1 to 3 to 2 workers, also the same number again; killed, stopped, and at last to its end."""
    job, objects = JOBS[name](1), SimulatedDisk()
    checkpoint = CoordinatorConfig(interval_ms=4, alignment_timeout_ms=budget_ms)
    for part, parallelism in enumerate(WORKERS):
        simulation = Simulation(
            job.plan,
            checkpoint=checkpoint,
            parallelism=parallelism,
            objects=objects,
            first_driver=part + 1,
            seed=seed,
        )
        state = StateOptions(
            snapshots, segments_max=2, backend=backend, memory_bytes=64 << 20, simulated_files=True
        )
        simulation.options = replace(simulation.options, state=state)
        job.burden.row_ms, job.burden.spend = 1.0, simulation.world.spend
        if part < len(WORKERS) - 1:
            end = simulation.stop if part == 1 else simulation.kill_driver
            simulation.when(CheckpointCompleted, end, 2 + part % 2)
        try:
            result = simulation.run(take_over=True)
        except ProcessKilledError:
            continue
        assert result.rows_late == 0
        if result.outcome == "finished":
            assert part > 1, "too fast to be disturbed"
            break
    return job


@pytest.mark.parametrize("name", JOBS)
@pytest.mark.parametrize("budget_ms", [None, 0])
@pytest.mark.parametrize("seed", range(3))
def test_from_one_to_three_to_two_workers_the_result_is_exact(
    name: str, budget_ms: int | None, seed: int
) -> None:
    run(name, budget_ms=budget_ms, seed=seed).check()


@pytest.mark.parametrize("name", JOBS)
@pytest.mark.parametrize("snapshots", ["full", "changelog"])
def test_so_it_is_with_other_snapshots(name: str, snapshots: SnapshotMode) -> None:
    run(name, snapshots).check()


def test_rows_that_wait_and_are_not_written_would_be_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    snapshot = EnrichSubtask.snapshot

    def without_rows(subtask: EnrichSubtask, checkpoint_id):
        queue, subtask._queue = subtask._queue, type(subtask._queue)()
        pending = snapshot(subtask, checkpoint_id)
        subtask._queue = queue
        return pending

    monkeypatch.setattr(EnrichSubtask, "snapshot", without_rows)
    assert any(list(run("enrich", seed=seed).problems()) for seed in range(2))


def test_event_time_that_overtakes_rows_would_make_them_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(EnrichSubtask, "output_watermark", lambda _, watermark_us: watermark_us)
    job = enrich_job(2)
    try:
        result = Simulation(job.plan, parallelism=2).run()
        assert result.rows_late or list(job.problems())
    except LaminarError:
        pass
