"""Jobs with a process function of two inputs: undisturbed, disturbed, and with planted faults."""

import pytest

from laminar_core.operators.process.subtask import ConnectedSubtask
from laminar_core.plan.state_options import BackendName, SnapshotMode
from laminar_core.testing.connected_jobs import connected_job
from laminar_core.testing.simulation import Simulation
from tests.testing.disturbed import disturbed


@pytest.mark.large
def test_an_undisturbed_run_is_exact() -> None:
    job = connected_job(2)
    result = Simulation(job.plan, parallelism=2).run()
    job.check(result.rows_late)
    assert result.rows_late == 0


@pytest.mark.large
@pytest.mark.sampled(3)
@pytest.mark.parametrize("budget_ms", [None, 0])
@pytest.mark.parametrize("seed", range(2))
def test_from_one_to_three_to_two_workers_the_result_is_exact(
    budget_ms: int | None, seed: int
) -> None:
    disturbed(connected_job, budget_ms=budget_ms, seed=seed).check()


@pytest.mark.large
@pytest.mark.sampled(2)
@pytest.mark.parametrize(("snapshots", "backend"), [("full", "memory"), ("incremental", "rocksdb")])
def test_so_it_is_with_other_snapshots_and_another_backend(
    snapshots: SnapshotMode, backend: BackendName
) -> None:
    disturbed(connected_job, snapshots, backend).check()


@pytest.mark.large
def test_keys_of_one_input_that_are_taken_for_others_would_be_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken = ConnectedSubtask.taken

    def only_left(subtask: ConnectedSubtask, index: int, batch):
        return taken(subtask, index, batch) if index == 0 else iter(())

    monkeypatch.setattr(ConnectedSubtask, "taken", only_left)
    job = connected_job(2)
    Simulation(job.plan, parallelism=2).run()
    assert list(job.problems())
