"""A recovery sensor among jobs that do nothing, and a job that is dead; for tests."""

from pathlib import Path

import dagster as dg

from laminar_core.sensors.background import BackgroundReads
from laminar_core.sensors.observer.checkpoint_reports import integrity_evaluation
from laminar_core.sensors.policy import AlertPolicy
from laminar_core.sensors.recovery.sensor import build_recovery_sensor
from laminar_core.store.checkpoint_store import CheckpointStore
from tests.sensors.streams import STREAM, Job, Ticks, stand_ins, stored_job


def dead_job(folder: Path) -> Job:
    """Two checkpoints, and a driver of this machine that is gone."""
    job = stored_job(folder)
    job.claim_by_the_dead()
    job.beat()
    job.complete()
    job.complete()
    return job


def read_whole(
    instance: dg.DagsterInstance, store: CheckpointStore, checkpoint_id: int, run_id: str = "a run"
) -> dg.AssetCheckEvaluation:
    """Somebody's run reads a checkpoint whole, and Dagster has on record what came of it."""
    evaluation = integrity_evaluation(store, checkpoint_id)
    kind = dg.DagsterEventType.ASSET_CHECK_EVALUATION.value
    event = dg.DagsterEvent(kind, "verify", event_specific_data=evaluation)
    instance.report_dagster_event(event, run_id)
    return evaluation


def watched(
    instance: dg.DagsterInstance,
    job: Job,
    policy: AlertPolicy,
    reads: BackgroundReads | None = None,
    start_timeout_ms: int = 0,
) -> Ticks:
    definitions = stand_ins()
    timeouts_ms = {STREAM: start_timeout_ms}
    sensor = build_recovery_sensor({STREAM: policy}, timeouts_ms, job.clock, reads)
    return Ticks(instance, sensor, job.store.objects.uri, definitions)
