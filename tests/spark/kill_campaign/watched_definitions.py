"""The attacked stream as Dagster sees it: shipped sensors, the real recovery job, nothing else."""

import os
from pathlib import Path

import dagster as dg

from laminar_core.configuration import RecoveryOptions, SparkOptions
from laminar_core.orchestration.factory import laminar_definitions
from laminar_core.orchestration.spec import CheckpointPolicy, SchedulePolicy, StreamSpec
from laminar_core.resources import CheckpointStoreResource, DetachedDriver, SparkDriverClient
from laminar_core.retention.config import RetentionConfig
from laminar_core.sensors.policy import AlertPolicy
from tests.spark.jobs_under_test import SmallJob
from tests.spark.kill_campaign.cells import CELLS_PER_ROUND
from tests.spark.kill_campaign.pauses import VARIABLE
from tests.spark.kill_campaign.stream import INTERVAL, PACED, PROGRAM, SPARK_CONF

FOLDER = Path(os.environ[VARIABLE]).parent
JOB = SmallJob(FOLDER)

STREAM = StreamSpec(
    name="payments",
    program=PROGRAM,
    arguments={"input": JOB.input, "output": JOB.output, "rows_per_second": str(PACED)},
    checkpoints=CheckpointPolicy(interval=INTERVAL),
    retention=RetentionConfig(keep_last=3),
    spark=SparkOptions(conf=SPARK_CONF),
    recovery=RecoveryOptions(start_timeout="5 minutes"),
    # Every attack of a round may cost the driver; five an hour is what the policy has by default.
    alerts=AlertPolicy(recoveries_max=CELLS_PER_ROUND),
    schedules=SchedulePolicy(
        retention=None, drill=None, audit=None, orphans=None, costs=None, checks=None
    ),
)

defs = dg.Definitions.merge(
    laminar_definitions(STREAM),
    dg.Definitions(
        executor=dg.in_process_executor,
        resources={
            "laminar_checkpoints": CheckpointStoreResource(uri=JOB.store),
            "laminar_driver": SparkDriverClient(),
            "laminar_launcher": DetachedDriver(log_directory=str(FOLDER / "drivers")),
        },
    ),
)
