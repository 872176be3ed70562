"""The sensor that reports checkpoints of streams that run on their own."""

import dagster as dg

from laminar_core.storage.checkpoint_store import CheckpointStore
from resources.checkpoints import CheckpointStoreResource
from resources.names import STREAM_TAG
from sensors.checkpoint_reports import (
    REPORTS_MAX,
    Report,
    report_new_checkpoints,
)

_IN_PROGRESS = [dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]


def build_checkpoint_reporter(stream: str) -> dg.SensorDefinition:
    """Build the sensor that reports the completed checkpoints of ``stream``.

    It is the one reporter, except while a run supervises the stream: then that run is. A repeated
    tick reports nothing twice, because what was reported is read from Dagster's records.
    """

    @dg.sensor(
        name=f"{stream}_checkpoint_reporter",
        minimum_interval_seconds=1,  # The daemon looks every five seconds at best.
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Reports each completed checkpoint of {stream} once.",
    )
    def report_checkpoints(
        context: dg.SensorEvaluationContext, checkpoints: CheckpointStoreResource
    ) -> dg.SensorResult:
        instance = context.instance
        if supervisor := supervising_run(instance, stream):
            return dg.SensorResult(skip_reason=f"run {supervisor} reports its checkpoints itself")
        return _report(instance, checkpoints.open(stream))

    return report_checkpoints


def supervising_run(instance: dg.DagsterInstance, stream: str) -> str | None:
    """Id of the run that supervises ``stream`` now, or None."""
    running = dg.RunsFilter(tags={STREAM_TAG: stream}, statuses=_IN_PROGRESS)
    records = instance.get_run_records(running, limit=1)
    return records[0].dagster_run.run_id if records else None


def _report(instance: dg.DagsterInstance, store: CheckpointStore) -> dg.SensorResult:
    events: list[Report] = []
    found = report_new_checkpoints(instance, store, events.append)
    if not found:
        return dg.SensorResult(skip_reason="no new checkpoints")
    first, last = found[0].manifest.checkpoint_id, found[-1].manifest.checkpoint_id
    more = ", more to come" if len(found) == REPORTS_MAX else ""
    return dg.SensorResult(
        asset_events=events, skip_reason=f"reported checkpoints {first} to {last}{more}"
    )
