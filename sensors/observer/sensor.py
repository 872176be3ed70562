"""The sensor that reports the events in a stream's store to Dagster."""

# Dagster's decorators and functions are only partly typed.
# pyright: reportUnknownMemberType=false

import dagster as dg

from laminar_core.host.clock import Clock, SystemClock
from laminar_core.resources.checkpoints import CheckpointStoreResource
from laminar_core.sensors.background import BackgroundReads, Unanswered
from laminar_core.sensors.observer.new_records import read_new_records
from laminar_core.sensors.observer.observer import Observer, partition_requests
from laminar_core.sensors.policy import AlertPolicy
from laminar_core.sensors.run_records import supervising_run


def build_checkpoint_reporter(
    stream: str,
    policy: AlertPolicy | None = None,
    clock: Clock | None = None,
    background: BackgroundReads | None = None,
) -> dg.SensorDefinition:
    """Build the sensor that reports on ``stream``, however it is run.

    While a run supervises the stream, that run reports the completed checkpoints.
    """
    alerts, timer = policy or AlertPolicy(), clock or SystemClock()
    reads = background or BackgroundReads()

    @dg.sensor(
        name=f"{stream}_checkpoint_reporter",
        minimum_interval_seconds=1,  # The daemon looks every five seconds at best.
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Reports each checkpoint of {stream} once, and what happened to it.",
    )
    def report_checkpoints(
        context: dg.SensorEvaluationContext, checkpoints: CheckpointStoreResource
    ) -> dg.SensorResult:
        cursor, now_ms = context.cursor, timer.now_ms()
        try:
            store = checkpoints.open(stream)
            new = reads.read(
                (store.objects.uri, cursor), lambda: read_new_records(store, cursor, alerts, now_ms)
            )
        except Unanswered as error:
            return dg.SensorResult(skip_reason=f"the store did not answer: {error}")
        if new is None:
            return dg.SensorResult(skip_reason=f"{stream} never ran in {store.objects.uri}")
        instance = context.instance
        observer = Observer(instance, stream, now_ms, supervising_run(instance, stream))
        tick = observer.report(new)
        return dg.SensorResult(
            asset_events=tick.events,
            dynamic_partitions_requests=partition_requests(instance, stream, tick),
            cursor=tick.cursor.model_dump_json(),
            skip_reason="; ".join(tick.said) or "nothing new",
        )

    return report_checkpoints
