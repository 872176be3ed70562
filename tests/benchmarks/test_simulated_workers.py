"""Simulated jobs have exact results, and a checkpoint writes as much per worker."""

import pytest
from click.testing import CliRunner

from benchmarks import simulated_workers
from benchmarks.simulated_workers import WrongTotalsError, main, simulated


def test_each_worker_writes_at_most_two_objects_of_a_checkpoint() -> None:
    for workers in (2, 6):
        found = {result.name: result.value for result in simulated(workers)}
        assert 0 < found[f"simulated_{workers}_workers_puts"] <= 2 * workers
        assert found[f"simulated_{workers}_workers_manifest"] > 0


def test_a_result_that_is_not_exact_is_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgetful(simulated_workers.Ledger):
        def rows(self) -> list[dict[str, object]]:
            return super().rows()[1:]

    monkeypatch.setattr(simulated_workers, "Ledger", Forgetful)
    with pytest.raises(WrongTotalsError, match="2 workers counted"):
        list(simulated(2))


def test_more_workers_are_simulated_on_demand() -> None:
    shown = CliRunner().invoke(main, ["2"])
    assert shown.exit_code == 0, shown.output
    assert "simulated_2_workers_puts" in shown.output
