"""Any worker or the driver may die at any moment; the output is that of an undisturbed run.

Workers and drivers are real processes, SIGKILLed at seeded moments: workers and drivers in
``local[n]``, then workers once in ``local-cluster``. With ``--all-cases`` more of them die.
"""

import os
import random
import signal
import threading
from pathlib import Path
from queue import SimpleQueue

import pytest
from pyspark.sql import SparkSession

from laminar_core.driver.events import GenerationStarted, JobEvent, WorkersRunning
from laminar_core.driver.restart import FixedDelay
from laminar_core.jobs.payments import pipeline
from laminar_core.pipeline import CheckpointConfig, RunConfig
from tests.spark.jobs_under_test import Driver, SmallJob

pytestmark = [pytest.mark.early, pytest.mark.spark]

WORKER_KILLS, WORKER_KILLS_OF_ALL_CASES = 6, 16
DRIVER_KILLS, DRIVER_KILLS_OF_ALL_CASES = 2, 4
LONGEST_LIFE_S = 1.2
ROWS_WHILE_KILLED = 192_000
"""Each second of a life takes a share of the input; with the longest lives 4 % are left."""


@pytest.fixture
def job(tmp_path: Path) -> SmallJob:
    return SmallJob(tmp_path).write_input()


def let_live(seconds: float) -> None:
    """The moment of a kill is random time after an event; nothing waits for a result here."""
    threading.Event().wait(seconds)


def kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def test_killed_workers_leave_the_output_exact(
    spark: SparkSession, job: SmallJob, every_case
) -> None:
    kills = WORKER_KILLS_OF_ALL_CASES if every_case else WORKER_KILLS
    moments = random.Random(20)
    events: SimpleQueue[JobEvent | None] = SimpleQueue()
    running = pipeline(job.input, job.output, rows_per_second=ROWS_WHILE_KILLED // kills).start(
        spark,
        checkpoint=CheckpointConfig(job.store, interval="150 milliseconds"),
        run=RunConfig(workers=2, restart=FixedDelay(attempts=1000)),
        listener=events.put,
    )
    killed = 0
    while killed < kills:
        event = events.get(timeout=60)
        if isinstance(event, WorkersRunning):
            let_live(moments.uniform(0, LONGEST_LIFE_S))
            killed += kill(moments.choice(event.pids))
    result = running.result(timeout_s=120)

    assert result.outcome == "finished"
    assert result.generations > kills
    assert job.committed() == job.expected()
    assert job.visible() == job.expected()
    assert result.rows_in == sum(row["payments"] for row in job.expected())
    restored = [
        e.restored_checkpoint_id for e in _drain(events) if isinstance(e, GenerationStarted)
    ]
    assert all(restored), "the last generations continued, they did not start over"


def _drain(events: "SimpleQueue[JobEvent | None]") -> list[JobEvent]:
    found = []
    while not events.empty():
        found.append(events.get())
    return found


@pytest.mark.large
def test_killed_drivers_are_taken_over_and_the_output_is_exact(
    job: SmallJob, tmp_path: Path, every_case
) -> None:
    kills = DRIVER_KILLS_OF_ALL_CASES if every_case else DRIVER_KILLS
    moments = random.Random(4)
    log = tmp_path / "driver.log"
    for _ in range(kills):
        with Driver(job.command(), log) as driver:
            driver.wait_for(moments.choice(["generation-started", "data-flowing"]))
            let_live(moments.uniform(0, 2.0))
            driver.process.kill()
    with Driver(job.command(rows_per_second=400_000), log) as driver:
        finished = driver.wait_for("finished")
        assert driver.process.wait() == 0

    assert finished["outcome"] == "finished"
    assert job.committed() == job.expected()
    assert job.visible() == job.expected()


@pytest.mark.large
def test_killed_workers_of_a_cluster_leave_the_output_exact(job: SmallJob, tmp_path) -> None:
    moments = random.Random(2)
    command = job.command("--master", "local-cluster[2,1,1024]", rows_per_second=60_000)
    killed = 0
    with Driver(command, tmp_path / "driver.log") as driver:
        for event in driver.events():
            if event["event"] == "workers-running" and killed < 2:
                let_live(moments.uniform(0.2, LONGEST_LIFE_S))
                killed += kill(moments.choice(event["pids"]))
        assert driver.process.wait() == 0

    assert killed == 2
    assert job.committed() == job.expected()
