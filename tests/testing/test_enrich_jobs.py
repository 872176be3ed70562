"""Jobs with slow calls: undisturbed, with other workers, and with planted faults."""

import pytest

from laminar_core.errors import LaminarError
from laminar_core.operators.enrich.subtask import EnrichSubtask
from laminar_core.plan.state_options import SnapshotMode
from laminar_core.testing.enrich_jobs import enrich_job
from laminar_core.testing.simulation import Simulation
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
