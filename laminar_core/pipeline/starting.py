"""The start of a pipeline: what of its configuration runs it, watches it and reports on it."""

from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from laminar_core.driver.events import JobEvent, JobListener, ignore
from laminar_core.driver.listening import BackgroundListener, isolated
from laminar_core.driver.reserve import ReserveKeeper
from laminar_core.driver.supervisor import Supervisor
from laminar_core.host.clock import SystemClock
from laminar_core.metrics.exporter import open_exporter
from laminar_core.pipeline.config import CheckpointConfig, RunConfig, job_options
from laminar_core.pipeline.display import Display, display_of
from laminar_core.pipeline.job import StreamingJob
from laminar_core.retention.background import applied
from laminar_core.spark.sending import refuse_unsendable
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
    listener: JobListener | None,
    *,
    progress: bool | None = None,
) -> StreamingJob:
    """Start the job in the background; see ``Pipeline.start``."""
    plan = pipeline.plan()
    refuse_unsendable(plan)
    session = spark if isinstance(spark, OwnSession) else GivenSession(spark)
    clock = SystemClock()
    cluster = SparkCluster(  # First: of a session that cannot be used nothing can be asked.
        session,
        run.transport,
        clock,
        encryption_required=run.require_encryption,
        listening=run.listening,
        state_memory_bytes=_state_memory_bytes(checkpoint),
    )
    options = job_options(pipeline.name, _workers(run, session.spark), checkpoint, run)
    store = CheckpointStore.open(options.store_uri, options.job)
    display = None
    if listener is None or progress:
        display = display_of(options.job, progress=progress)
    reported = BackgroundListener(isolated(ReserveKeeper(store, _beside(listener, display))))
    listener = reported
    if checkpoint.retention is not None:
        listener = applied(checkpoint.retention, store, clock, listener, run.actor)
    exporter = open_exporter(run.metrics, options.job, clock)
    if exporter is not None:
        listener = exporter.beside(listener)
    supervisor = Supervisor(cluster, plan, options, store, clock, listener)
    return StreamingJob(supervisor, reported, exporter, display)


def _state_memory_bytes(checkpoint: CheckpointConfig) -> int:
    """Return the memory that the state of a worker may take; 0 if it has no budget."""
    state = checkpoint.state.options()
    return state.memory_bytes if state.backend == "rocksdb" else 0


def _beside(listener: JobListener | None, display: Display | None) -> JobListener:
    """Return what passes each event to both, whichever there are."""
    if display is None:
        return listener or ignore
    if listener is None:
        return display.on_event
    first, second = listener, isolated(display.on_event)

    def both(event: JobEvent) -> None:
        second(event)
        first(event)

    return both


def _workers(run: RunConfig, spark: SparkSession) -> int:
    """Return the requested number of workers, by default Spark's parallelism."""
    return spark.sparkContext.defaultParallelism if run.workers is None else run.workers
