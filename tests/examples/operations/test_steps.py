"""A step fails when what it is to prove is not so."""

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from rich.console import Console

from examples.operations.client import Run, Tick
from examples.operations.job import JobWatch
from examples.operations.stage import Stage, StepFailed
from examples.operations.steps import Operations
from examples.operations.stream import slow_payments
from laminar_core.host.clock import ManualClock
from laminar_core.resources.names import partition_of
from laminar_core.store.checkpoint_store import CheckpointStore
from tests.store.stores import JOB, claim, claimant, complete, never, owner_of


@dataclass
class PlayedUi:
    """Says what a Dagster says."""

    store: CheckpointStore
    base: int | None = 1
    recoveries: int = 1
    blocked: int = 0
    verdict: str = "failed: its sha256 differs"
    runs_there: list[Run] = field(default_factory=list)

    def ticks(self, sensor: str, limit: int) -> list[Tick]:
        assert (sensor.startswith("laminar_"), limit) == (True, 1)
        return [Tick(0, "SKIPPED", "the driver of generation 1 is gone")]

    def runs(self, **wanted: object) -> list[Run]:
        del wanted
        return self.runs_there

    def launch(self, job: str, *_: object, **__: object) -> str:
        status = "SUCCESS" if job.endswith("_pin") else "FAILURE"
        self.runs_there.append(Run("run", job, status, {}))
        return "run"

    def run(self, run_id: str) -> Run:
        return self.runs_there[-1] if run_id else self.runs_there[0]

    def why_failed(self, run_id: str) -> str:
        return f"run {run_id} found damage"

    def partitions(self, _key: object) -> frozenset[str]:
        return frozenset(map(partition_of, self.store.manifests.ids()))

    def check(self, *_: object) -> str:
        return self.verdict


class RecoveringClock(ManualClock):
    """While somebody waits, the sensor recovers the job."""

    def __init__(self, ui: PlayedUi) -> None:
        super().__init__()
        self._ui = ui

    def wait_ms(self, duration_ms: float) -> None:
        super().wait_ms(duration_ms)
        ui, newest = self._ui, self._ui.store.claims.newest()
        if newest == 1 and ui.recoveries:
            generation = claim(ui.store, ui.base)
            complete(ui.store, 9, generation)
            ui.runs_there = [
                Run(f"r{n}", "laminar_recover", "SUCCESS", {}) for n in range(ui.recoveries)
            ]
            ui.runs_there += [Run("b", "laminar_recover", "FAILURE", {})] * ui.blocked


@pytest.fixture
def driver() -> Iterator[subprocess.Popen]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


@pytest.fixture
def played(tmp_path: Path, driver: subprocess.Popen) -> Operations:
    job = JobWatch.of(tmp_path / "store", JOB)
    job.store.objects.create()
    claimed = replace(claimant(), owner=owner_of(driver.pid))
    generation = job.store.claims.claim(claimed, wait_ms=never)
    job.store.generations.record_base(generation, None)
    for checkpoint_id in (1, 2):
        complete(job.store, checkpoint_id, generation)
    ui = PlayedUi(job.store)
    stage = Stage(Console(quiet=True), RecoveringClock(ui))
    return Operations(stage, ui, job, slow_payments(tmp_path), tmp_path / "brake")


def test_one_recovery_is_right(played: Operations, driver: subprocess.Popen) -> None:
    with played.stage.step("kill"):
        played.kill()
    assert driver.wait(10) == -9
    saw = "; ".join(played.stage.steps[0].saw)
    assert "it continues from checkpoint 1" in saw
    assert "exactly one run recovers generation 1: r0" in saw


def test_two_recoveries_of_one_death_are_wrong(played: Operations) -> None:
    played.ui.recoveries = 2
    with pytest.raises(StepFailed, match="2 runs recover generation 1, not one"):
        played.kill()


def test_none_is_wrong_and_says_what_the_sensor_saw(played: Operations) -> None:
    played.ui.recoveries = 0
    with pytest.raises(StepFailed, match=r"recovery: not in .* the driver of generation 1 is gone"):
        played.kill()


def test_what_is_damaged_is_passed_by_and_found(played: Operations) -> None:
    with played.stage.step("damage"):
        played.damage()
    assert played.damaged_checkpoint == 2
    assert played.job.store.verify(2).problem is not None
    saw = "; ".join(played.stage.steps[0].saw)
    assert "passed by what is damaged and continues from 1" in saw
    assert "check manifest_integrity failed: its sha256 differs" in saw


def test_the_check_may_block_a_recovery_of_what_is_damaged_and_of_nothing_else(
    played: Operations,
) -> None:
    played.ui.blocked = 1
    with pytest.raises(StepFailed, match="2 runs recover generation 1, not one"):
        played.kill()


def test_a_blocked_recovery_is_reported(played: Operations) -> None:
    played.ui.blocked = 1
    with played.stage.step("damage"):
        played.damage()
    assert "1 before it blocked by the check" in "; ".join(played.stage.steps[0].saw)


def test_a_start_from_what_is_damaged_is_wrong(played: Operations) -> None:
    played.ui.base = 2
    with pytest.raises(StepFailed, match="started from a damaged checkpoint"):
        played.damage()


def test_a_check_that_stays_green_is_wrong(played: Operations) -> None:
    played.ui.verdict = "passed: all is well"
    with pytest.raises(StepFailed, match=r"check manifest_integrity: not in .* passed"):
        played.damage()


def test_another_reason_of_the_check_is_wrong(played: Operations) -> None:
    played.ui.verdict = "failed: retention deleted it"
    with pytest.raises(StepFailed, match="retention deleted it"):
        played.damage()


def test_a_run_that_fails_says_why(played: Operations) -> None:
    with pytest.raises(StepFailed, match="laminar_drill ended with FAILURE: run run found damage"):
        played.drill()
