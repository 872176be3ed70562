"""In Spark: one, two, three and one worker take turns at a job; the result is exact.

Once with rows in flight behind a slow operator, in one session; once from the command line, with
drivers that are killed.
"""

from collections import Counter
from pathlib import Path
from queue import SimpleQueue

import pytest
from pyspark.sql import SparkSession

from laminar_core.driver.events import CheckpointCompleted, GenerationStarted, JobEvent
from laminar_core.driver.restart import NoRestart
from laminar_core.errors import ErrorCode, JobFailedError
from laminar_core.pipeline import CheckpointConfig, RunConfig, UnalignedCheckpointConfig
from laminar_core.pipeline.job import StreamingJob
from tests.spark.jobs_under_test import Driver, SmallJob
from tests.spark.test_backpressure import expected, slow_job

pytestmark = [pytest.mark.early, pytest.mark.spark]


class Parts:
    """Runs the slow job, part after part, each with other workers."""

    def __init__(self, spark: SparkSession, store: str) -> None:
        self.spark = spark
        self.checkpoint = CheckpointConfig(
            store,
            interval="100 milliseconds",
            unaligned=UnalignedCheckpointConfig(force_unaligned=True),
        )
        self.started: list[GenerationStarted] = []
        self.in_flight: dict[int | None, int] = {}
        """Rows, by checkpoint."""

    def start(self, workers: int, until: SimpleQueue[int]) -> StreamingJob:
        """``until`` is called with the rows in flight at each checkpoint, if there are any."""

        def listen(event: JobEvent) -> None:
            if isinstance(event, GenerationStarted):
                self.started.append(event)
            elif isinstance(event, CheckpointCompleted) and event.inflight_rows:
                self.in_flight[event.checkpoint_id] = event.inflight_rows
                until.put(event.inflight_rows)

        run = RunConfig(workers=workers, restart=NoRestart())
        return slow_job().start(self.spark, checkpoint=self.checkpoint, run=run, listener=listen)

    def run_and_cancel(self, workers: int) -> None:
        until: SimpleQueue[int] = SimpleQueue()
        running = self.start(workers, until)
        until.get(timeout=60)
        running.cancel()
        with pytest.raises(JobFailedError) as cancelled:
            running.result(timeout_s=60)
        assert cancelled.value.code is ErrorCode.CANCELLED


def test_rows_in_flight_find_their_new_workers(spark: SparkSession, tmp_path: Path) -> None:
    parts = Parts(spark, str(tmp_path / "store"))
    for workers in (1, 2, 3):
        parts.run_and_cancel(workers)
    result = parts.start(1, SimpleQueue()).result(timeout_s=60)

    assert [e.restored_workers for e in parts.started] == [None, 1, 2, 3]
    assert all(parts.in_flight.get(e.restored_checkpoint_id) for e in parts.started[1:])
    assert result.rows_late == 0
    table = result.collected["out"].select(["key", "window_start", "count", "ids"])
    rows = [tuple(row.values()) for row in table.to_pylist()]
    found = Counter(
        (key, int(start.timestamp()) * 1_000_000, count, ids) for key, start, count, ids in rows
    )
    assert found == expected()


@pytest.mark.large
def test_killed_drivers_are_followed_by_other_numbers_of_workers(tmp_path: Path) -> None:
    job = SmallJob(tmp_path).write_input()
    for before, workers in [(None, 2), (2, 3), (3, 1)]:
        last = workers == 1
        command = job.command(
            *("--workers", str(workers), "--master", f"local[{workers}]"),
            rows_per_second=400_000 if last else 20_000,
        )
        with Driver(command, tmp_path / "driver.log") as driver:
            started = driver.wait_for("generation-started")
            assert started["restored_workers"] == before
            if last:
                assert driver.wait_for("finished")["outcome"] == "finished"
                assert driver.process.wait() == 0
            else:
                driver.wait_for("checkpoint-completed")
                driver.process.kill()
    assert job.committed() == job.expected()
    assert job.visible() == job.expected()
