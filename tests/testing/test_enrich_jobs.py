"""Jobs with slow calls: undisturbed, with other workers, and with planted faults."""

import pytest

from laminar_core.driver.events import CheckpointCompleted
from laminar_core.errors import LaminarError
from laminar_core.operators.enrich.subtask import EnrichSubtask
from laminar_core.plan.state_options import SnapshotMode
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.testing.enrich_jobs import enrich_job
from laminar_core.testing.scenarios import enrich_loop_job
from laminar_core.testing.simulation import Simulation
from laminar_core.testing.world import ProcessKilledError
from laminar_core.worker.timed import TimedOperators
from tests.testing.disturbed import disturbed


def test_an_undisturbed_run_is_exact() -> None:
    job = enrich_job(2)
    result = Simulation(job.plan, parallelism=2).run()
    job.check(result.rows_late)
    assert result.rows_late == 0


@pytest.mark.parametrize("budget_ms", [None, 0])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.sampled(2)
def test_from_one_to_three_to_two_workers_the_result_is_exact(
    budget_ms: int | None, seed: int
) -> None:
    disturbed(enrich_job, budget_ms=budget_ms, seed=seed).check()


@pytest.mark.parametrize("snapshots", ["full", "changelog"])
def test_so_it_is_with_other_snapshots(snapshots: SnapshotMode) -> None:
    disturbed(enrich_job, snapshots).check()


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
    assert any(list(disturbed(enrich_job, seed=seed).problems()) for seed in range(2))


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


@pytest.mark.parametrize("budget_ms", [None, 0])
def test_in_a_loop_rows_that_wait_keep_it_from_ending_also_after_a_crash(
    budget_ms: int | None,
) -> None:
    job, workers = enrich_loop_job(3), 3
    checkpoint = CoordinatorConfig(interval_ms=20, alignment_timeout_ms=budget_ms)
    simulation = Simulation(job.plan, parallelism=workers, checkpoint=checkpoint, seed=workers)
    for _ in range(2):
        done = sum(isinstance(event, CheckpointCompleted) for event in simulation.events)
        simulation.when(CheckpointCompleted, simulation.kill_driver, done + 1)
        with pytest.raises(ProcessKilledError):
            simulation.run(take_over=True)
    assert simulation.run(take_over=True).outcome == "finished"
    job.check()


def test_a_loop_that_does_not_ask_for_rows_that_wait_would_end_too_early(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(TimedOperators, "has_more_to_do", lambda _: False)
    job = enrich_loop_job(2)
    with pytest.raises(LaminarError, match="rows came back to loop rounds after its end"):
        Simulation(job.plan, parallelism=2).run()
