"""The start of a pipeline: what of its configuration runs it, watches it and reports on it."""

from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from laminar_core.driver.events import JobListener
from laminar_core.driver.listening import BackgroundListener, isolated
from laminar_core.driver.reserve import ReserveKeeper
from laminar_core.driver.supervisor import Supervisor
from laminar_core.host.clock import SystemClock
from laminar_core.metrics.exporter import open_exporter
from laminar_core.pipeline.config import CheckpointConfig, RunConfig, job_options
from laminar_core.pipeline.job import StreamingJob
from laminar_core.spark.sessions import GivenSession, OwnSession
from laminar_core.spark.stage import SparkCluster
from laminar_core.store.checkpoint_store import CheckpointStore

if TYPE_CHECKING:
    from laminar_core.pipeline.builder import Pipeline


def started(
    pipeline: "Pipeline",
    spark: SparkSession | OwnSession,
    checkpoint: CheckpointConfig,
    run: RunConfig,
    listener: JobListener,
) -> StreamingJob:
    """Start the job in the background; see ``Pipeline.start``."""
    session = spark if isinstance(spark, OwnSession) else GivenSession(spark)
    clock = SystemClock()
    cluster = SparkCluster(  # First: of a session that cannot be used nothing can be asked.
        session, run.transport, clock, encryption_required=run.require_encryption
    )
    options = job_options(pipeline.name, _workers(run, session.spark), checkpoint, run)
    store = CheckpointStore.open(options.store_uri, options.job)
    reported = BackgroundListener(isolated(listener))
    listener = ReserveKeeper(store, reported)
    if checkpoint.retention is not None:
        listener = checkpoint.retention.applied_to(store, clock, listener, run.actor)
    exporter = open_exporter(run.metrics, options.job, clock)
    if exporter is not None:
        listener = exporter.beside(listener)
    supervisor = Supervisor(cluster, pipeline.plan(), options, store, clock, listener)
    return StreamingJob(supervisor, reported, exporter)


def _workers(run: RunConfig, spark: SparkSession) -> int:
    """Return the requested number of workers, by default Spark's parallelism."""
    return spark.sparkContext.defaultParallelism if run.workers is None else run.workers
