"""The sensor that reports the events in the store of some streams to Dagster."""

# Dagster's decorators and functions are only partly typed.
# pyright: reportUnknownMemberType=false

from collections.abc import Mapping
from dataclasses import dataclass

import dagster as dg

from laminar_core.host.clock import Clock, SystemClock
from laminar_core.resources.checkpoints import CheckpointStoreResource
from laminar_core.resources.names import GROUP, sensor_name
from laminar_core.resources.output_partitions import OutputPartitions
from laminar_core.sensors.background import BackgroundReads, Unanswered
from laminar_core.sensors.observer.new_records import read_new_records
from laminar_core.sensors.observer.observer import Observer, partition_requests
from laminar_core.sensors.observer.visible_output import watch_output
from laminar_core.sensors.policy import AlertPolicy
from laminar_core.sensors.rounds import Policies, StreamTick, described, make_round
from laminar_core.sensors.run_records import supervising_run


def build_checkpoint_reporter(
    policies: Policies,
    clock: Clock | None = None,
    reads: BackgroundReads | None = None,
    *,
    group: str = GROUP,
    outputs: Mapping[str, OutputPartitions] | None = None,
) -> dg.SensorDefinition:
    """Build the sensor that reports on these streams, however they are run.

    While a run supervises a stream, that run reports the completed checkpoints. ``outputs``: the
    partitions of each stream's output, of those that have any.
    """
    timer, found = clock or SystemClock(), outputs or {}
    streams = make_round(
        "checkpoint_reporter",
        policies,
        lambda stream, own: _Tick(stream, policies[stream], timer, own, group, found.get(stream)),
        clock,
        reads,
    )

    @dg.sensor(
        name=sensor_name("checkpoint_reporter", group),
        minimum_interval_seconds=1,  # The daemon looks every five seconds at best.
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Reports each checkpoint of {described(list(policies))} once, and what "
        "happened to it.",
    )
    def report_checkpoints(
        context: dg.SensorEvaluationContext, laminar_checkpoints: CheckpointStoreResource
    ) -> dg.SensorResult:
        return streams.run(context, lambda tick, part: tick.run(part, laminar_checkpoints))

    return report_checkpoints


@dataclass(frozen=True, slots=True)
class _Tick:
    stream: str
    policy: AlertPolicy
    clock: Clock
    reads: BackgroundReads
    group: str
    output: OutputPartitions | None

    def run(self, context: StreamTick, checkpoints: CheckpointStoreResource) -> dg.SensorResult:
        stream, alerts, instance = self.stream, self.policy, context.instance
        cursor, now_ms = context.cursor, self.clock.now_ms()
        supervisor = supervising_run(instance, stream)
        watch = watch_output(instance, stream, self.output, is_supervised=supervisor is not None)
        try:
            store = checkpoints.open(stream)
            new = self.reads.read(
                (store.objects.uri, cursor, watch),
                lambda: read_new_records(store, cursor, alerts, now_ms, watch, group=self.group),
            )
        except Unanswered as error:
            return dg.SensorResult(skip_reason=f"the store did not answer: {error}")
        if new is None:
            return dg.SensorResult(skip_reason=f"{stream} never ran in {store.objects.uri}")
        observer = Observer(instance, stream, now_ms, supervisor)
        tick = observer.report(new)
        return dg.SensorResult(
            asset_events=tick.events,
            dynamic_partitions_requests=partition_requests(instance, stream, tick),
            cursor=tick.cursor.model_dump_json(),
            skip_reason="; ".join(tick.said) or "nothing new",
        )
