"""The progress of a restore is exact, bounded in messages, and ends at 100 %."""

import pytest

from laminar_core.driver.events import CheckpointCompleted, GenerationStarted, RestoreProgressed
from laminar_core.errors import ErrorCode
from laminar_core.link.messages import Restoring
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.testing.simulation import Simulation
from laminar_core.testing.world import ProcessKilledError
from laminar_core.worker.restoring import (
    STEP_BYTES_MIN,
    STEPS,
    RestoreMeter,
    RestoreProgress,
    RestoreSize,
)
from tests.simulated.savepoint_stories import slow_job

MB = 2**20


def reports_of(files: int, file_bytes: int) -> list[RestoreSize]:
    reports: list[RestoreSize] = []
    meter = RestoreMeter(RestoreSize(files, files * file_bytes), reports.append)
    for _ in range(files):
        meter.read(file_bytes)
    return reports


def test_a_worker_says_that_it_starts_and_that_it_is_ready() -> None:
    assert reports_of(3, 10) == [RestoreSize(), RestoreSize(3, 30)]
    assert reports_of(0, 0) == [RestoreSize()]


def test_reports_follow_the_bytes_and_not_the_files() -> None:
    many = reports_of(10_000, MB)
    assert len(many) <= STEPS + 2
    assert many[-1] == RestoreSize(10_000, 10_000 * MB)
    few = reports_of(1_000, STEP_BYTES_MIN // 100)
    assert len(few) <= 12


def report(worker: int, files: int, total: int = 4, file_bytes: int = 10 * MB) -> Restoring:
    return Restoring(
        generation=1,
        worker=worker,
        files=files,
        files_total=total,
        size_bytes=files * file_bytes,
        bytes_total=total * file_bytes,
    )


def test_totals_are_reported_once_all_have_started() -> None:
    progress = RestoreProgress(2)
    assert progress.take(report(0, 4)) is None
    told = progress.take(report(1, 0))
    assert told is not None
    assert (told.files, told.files_total, told.percent) == (4, 8, 50.0)
    last = progress.take(report(1, 4))
    assert last is not None
    assert last.percent == 100.0
    assert progress.take(report(1, 4)) is None, "the same once more"


def test_a_start_without_state_reports_nothing() -> None:
    progress = RestoreProgress(1)
    assert progress.take(report(0, 0, total=0)) is None


def test_who_reads_its_state_has_a_slot() -> None:
    progress = RestoreProgress(2)
    code, reason = progress.why_late({0}, 5_000)
    assert code is ErrorCode.NOT_ENOUGH_SLOTS
    assert "only 1 of 2 workers started within 5 s" in reason
    progress.take(report(1, 1))
    code, reason = progress.why_late({0}, 5_000)
    assert code is ErrorCode.SLOW_START
    assert "worker 1 had read 10.5 of 41.9 MB" in reason
    assert "slots" not in reason


def run_and_restore(before: int, after: int) -> list[RestoreProgressed]:
    job = slow_job(rows=60, row_ms=60)
    config = CoordinatorConfig(interval_ms=300)
    simulation = Simulation(job.plan, parallelism=before, checkpoint=config, job="slow")
    job.burden.spend = simulation.world.spend
    simulation.when(CheckpointCompleted, simulation.kill_driver, number=2)
    with pytest.raises(ProcessKilledError):
        simulation.run()
    assert not [e for e in simulation.events if isinstance(e, RestoreProgressed)]
    assert simulation.run(parallelism=after).outcome == "finished"
    job.check()
    started = [e for e in simulation.events if isinstance(e, GenerationStarted)][-1]
    assert started.restored_checkpoint_id is not None
    manifest = simulation.store.manifests.read(started.restored_checkpoint_id)
    told = [e for e in simulation.events if isinstance(e, RestoreProgressed)]
    assert told[-1].percent == 100.0
    assert told[-1].files == told[-1].files_total > 0
    assert told[-1].size_bytes == told[-1].bytes_total
    if before == after:
        state_bytes = manifest.size_bytes - manifest.inflight_bytes
        assert told[-1].bytes_total == state_bytes
    return told


def test_a_restore_counts_every_file_of_the_state() -> None:
    run_and_restore(2, 2)


def test_a_restore_with_another_number_of_workers_ends_at_100_percent() -> None:
    run_and_restore(2, 3)
    run_and_restore(3, 1)
