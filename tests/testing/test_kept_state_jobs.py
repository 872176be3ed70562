"""A job with lists and maps: undisturbed, with other workers, and with a planted fault."""

from contextlib import suppress

import pytest

from laminar_core.errors import LaminarError
from laminar_core.operators.process.lists import KeyedLists
from laminar_core.plan.state_options import SnapshotMode
from laminar_core.testing.kept_state_jobs import kept_state_job
from laminar_core.testing.simulation import Simulation
from tests.testing.disturbed import disturbed


def test_an_undisturbed_run_is_exact() -> None:
    job = kept_state_job(2)
    result = Simulation(job.plan, parallelism=2).run()
    job.check(result.rows_late)
    assert result.rows_late == 0


@pytest.mark.parametrize("budget_ms", [None, 0])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.sampled(4)
def test_from_one_to_three_to_two_workers_the_result_is_exact(
    budget_ms: int | None, seed: int
) -> None:
    disturbed(kept_state_job, budget_ms=budget_ms, seed=seed).check()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("snapshots", ["full", "changelog"])
def test_so_it_is_with_other_snapshots(snapshots: SnapshotMode) -> None:
    disturbed(kept_state_job, snapshots, seed=2).check()


def test_positions_that_begin_anew_after_a_restore_would_be_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    restore = KeyedLists.restore

    def forgetful(lists: KeyedLists, rows) -> None:
        restore(lists, rows)
        monkeypatch.setattr(KeyedLists, "next_position", property(lambda _: 0, _ignore))

    monkeypatch.setattr(KeyedLists, "restore", forgetful)
    with suppress(LaminarError):
        assert list(disturbed(kept_state_job).problems())


def _ignore(_: KeyedLists, position: int) -> None:
    del position
