"""A driver that sleeps while another takes the job over wakes up fenced, and changes nothing."""

import os
import signal
from pathlib import Path

import pytest

from laminar_core.errors import FencedError
from laminar_core.store.checkpoint_store import CheckpointStore
from tests.spark.jobs_under_test import Driver, SmallJob

pytestmark = [pytest.mark.early, pytest.mark.large, pytest.mark.spark]


def test_a_driver_that_was_taken_over_wakes_up_fenced(tmp_path: Path) -> None:
    job = SmallJob(tmp_path).write_input()
    log = tmp_path / "driver.log"
    with Driver(job.command(rows_per_second=10_000), log) as sleeper:
        sleeper.wait_for("checkpoint-completed")
        os.kill(sleeper.process.pid, signal.SIGSTOP)
        with Driver(job.command("--take-over", rows_per_second=400_000), log) as owner:
            owner.wait_for("finished")
            assert owner.process.wait() == 0
        exact = job.expected()
        assert job.committed() == exact
        completed = CheckpointStore.open(job.store, "payments").manifests.ids()

        os.kill(sleeper.process.pid, signal.SIGCONT)
        assert sleeper.process.wait(timeout=60) == FencedError.exit_code

    assert job.committed() == exact
    assert job.visible() == exact
    store = CheckpointStore.open(job.store, "payments")
    assert [s.checkpoint_id for s in store.list_summaries() if s.committed and s.orphan] == []
    assert store.manifests.ids()[-1] == completed[-1]


def test_a_job_with_a_live_driver_is_refused_in_one_line(tmp_path: Path) -> None:
    job = SmallJob(tmp_path).write_input()
    with Driver(job.command(rows_per_second=1_000), tmp_path / "driver.log") as owner:
        owner.wait_for("workers-running")
        refused_log = tmp_path / "refused.log"
        with Driver(job.command(), refused_log) as second:
            failed = second.wait_for("failed")
            assert second.process.wait() == 2
        assert failed["code"] == "job-owned-by-live-driver"
        assert str(owner.process.pid) in failed["message"]
        owner.process.send_signal(signal.SIGTERM)
        assert owner.wait_for("finished")["outcome"] == "stopped"
        assert owner.process.wait() == 0
