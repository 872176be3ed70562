"""A drill in Spark, of a job that was stopped half-way: real sources, real sink, real processes."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from laminar_core.driver.drill.drill import Drill, DrillOptions
from laminar_core.driver.options import JobOptions
from laminar_core.host.clock import SystemClock
from laminar_core.jobs.payments import pipeline
from laminar_core.pipeline import CheckpointConfig
from laminar_core.spark.sessions import GivenSession
from laminar_core.spark.stage import SparkCluster
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.drills import read_drills
from tests.spark.jobs_under_test import SmallJob
from tests.spark.test_recovery import Runner

pytestmark = pytest.mark.spark


def files(folder: str, *without: str) -> dict[str, bytes]:
    found = (path for path in Path(folder).rglob("*") if path.is_file())
    return {str(p): p.read_bytes() for p in found if not set(without).intersection(p.parts)}


def test_a_drill_proves_the_restore_and_touches_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    runner = Runner(spark, SmallJob(tmp_path).write_input())
    newest = runner.run_half()[-1]
    mine = ("drills", "audit")
    before = files(runner.job.store, *mine), files(runner.job.output)
    clock = SystemClock()
    checkpoint = CheckpointConfig(runner.job.store).coordinator_config()
    job = JobOptions("payments", runner.job.store, 2, checkpoint)
    scratch = CheckpointStore.open(str(tmp_path / "scratch"), "payments")
    record = Drill(
        SparkCluster(GivenSession(spark), "auto", clock),
        pipeline(runner.job.input, runner.job.output).plan(),
        DrillOptions(job, batches_max=2),
        runner.store,
        scratch,
        clock,
    ).run()
    assert (record.outcome, record.problems, record.checkpoint_id) == ("passed", (), newest)
    assert {o.operator_id: o.is_equal for o in record.operators}["per-merchant"]
    assert max(o.rows_restored for o in record.operators) > 0
    assert record.rows_read > 0
    assert record.completed_checkpoint_id > newest
    assert (files(runner.job.store, *mine), files(runner.job.output)) == before
    assert read_drills(runner.store, []) == [record]
    runner.run()
    runner.assert_exact()
