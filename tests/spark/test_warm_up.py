"""A warm session has run a stage of as many tasks at once as the job has workers."""

import pytest
from pyspark.sql import SparkSession

from laminar_core.spark.warm_up import warm_up

pytestmark = pytest.mark.spark


def test_it_runs_one_stage_with_a_task_for_each_worker(spark: SparkSession) -> None:
    tracker = spark.sparkContext.statusTracker()
    before = set(tracker.getJobIdsForGroup(None))
    warm_up(spark, 2)
    (job,) = set(tracker.getJobIdsForGroup(None)) - before
    stages = [tracker.getStageInfo(stage) for stage in tracker.getJobInfo(job).stageIds]
    assert [(stage.numTasks, stage.numCompletedTasks) for stage in stages] == [(2, 2)]
