"""The JVM dies as the OOM killer ends it: the job goes on in another one, or is recovered."""

import subprocess
import sys
from pathlib import Path

import pytest

from laminar_core.sensors.policy import AlertPolicy
from laminar_core.sensors.recovery.decision import Recover, decide_recovery
from laminar_core.sensors.recovery.facts import Watched, read_recovery_facts
from laminar_core.store.checkpoint_store import CheckpointStore
from tests.spark.jobs_under_test import ROOT, Driver, SmallJob
from tests.spark.processes import children, daemons_of, ends, jvm_of, kill

pytestmark = [pytest.mark.early, pytest.mark.large, pytest.mark.spark]

PROGRAM = """
import os
import sys

from laminar_core.jobs.payments import pipeline
from laminar_core.pipeline import CheckpointConfig, RunConfig
from laminar_core.driver.events import CheckpointCompleted
from laminar_core.spark.session import open_session
from pyspark import SparkContext

source, output, store = sys.argv[1:]


def kill_the_jvm(event):
    if isinstance(event, CheckpointCompleted):
        os.kill(SparkContext._gateway.proc.pid, 9)


pipeline(source, output, rows_per_second=20_000).run(
    open_session("local[2]", "mine"),
    checkpoint=CheckpointConfig(store, interval="100 milliseconds"),
    run=RunConfig(workers=2),
    listener=kill_the_jvm,
)
"""


@pytest.fixture
def job(tmp_path: Path) -> SmallJob:
    return SmallJob(tmp_path).write_input()


def test_the_driver_goes_on_with_another_jvm_and_the_output_is_exact(job, tmp_path) -> None:
    """Goal: the process that holds the claim heals the job, and nothing of the old JVM stays."""
    orphans: list[int] = []
    with Driver(job.command(rows_per_second=100_000), tmp_path / "driver.log") as driver:
        driver.wait_for("checkpoint-completed")
        jvm = jvm_of(driver.process.pid)
        daemons = daemons_of(jvm)
        orphans = [*daemons, *(worker for daemon in daemons for worker in children(daemon))]
        assert kill(jvm)
        failed = driver.wait_for("generation-failed")
        restored = driver.wait_for("generation-started")
        assert jvm_of(driver.process.pid) != jvm
        finished = driver.wait_for("finished")
        assert driver.process.wait() == 0

    assert (failed["code"], failed["restart_in_ms"]) == ("spark-lost", 50)
    assert (restored["generation"], restored["restored_checkpoint_id"] > 0) == (2, True)
    assert finished["outcome"] == "finished"
    assert len(orphans) >= 3
    assert all(ends(pid) for pid in orphans)
    assert job.committed() == job.visible() == job.expected()


def test_a_program_whose_session_is_lost_fails_and_the_sensor_recovers_it(job) -> None:
    """Goal: no restart into a dead session, no refusal, and a decision to start the job again."""
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM, job.input, job.output, job.store],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert answer.returncode == 1
    assert "JVM is gone" in answer.stderr.splitlines()[-1]
    store = CheckpointStore.open(job.store, "payments")
    (only,) = store.generations.summaries()
    assert (only.end.outcome, "JVM is gone" in only.end.reason) == ("failed", True)
    facts, _ = read_recovery_facts(store, Watched(), now_ms=0, age_max_ms=60_000)
    decided = decide_recovery(facts, AlertPolicy())
    assert isinstance(decided, Recover)
    assert (decided.attempt, decided.running_driver) == (1, "refuse")


def test_a_disk_that_is_full_under_the_log_costs_no_job(job, tmp_path) -> None:
    with (tmp_path / "driver.log").open("w") as log, Path("/dev/full").open("w") as full:
        command = job.command(rows_per_second=400_000)
        answer = subprocess.run(command, cwd=ROOT, stdout=full, stderr=log, check=False)
    said = (tmp_path / "driver.log").read_text().splitlines()
    assert answer.returncode == 0
    assert [line for line in said if "the job continues" in line] == said[:1]
    assert job.committed() == job.expected()
