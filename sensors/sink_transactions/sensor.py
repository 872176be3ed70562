"""The sensor that warns before output that waits for its commit expires."""

# Dagster's decorators and metadata are only partly typed.
# pyright: reportUnknownMemberType=false

from dataclasses import dataclass

import dagster as dg

from laminar_core.host.clock import Clock, SystemClock
from laminar_core.resources.checkpoints import CheckpointStoreResource
from laminar_core.resources.names import GROUP, sensor_name
from laminar_core.sensors.alerting.alerts import raise_new_alerts
from laminar_core.sensors.background import BackgroundReads, Unanswered
from laminar_core.sensors.cursor import AlertCursor
from laminar_core.sensors.facts.job_facts import uncommitted
from laminar_core.sensors.policy import AlertPolicy
from laminar_core.sensors.rounds import Policies, StreamTick, described, make_round
from laminar_core.sensors.sink_transactions.decision import transaction_incidents, transaction_line

_INTERVAL_S = 60
"""The margin is minutes, and mostly two manifests are read."""


def build_sink_transactions_sensor(
    policies: Policies,
    clock: Clock | None = None,
    reads: BackgroundReads | None = None,
    *,
    group: str = GROUP,
) -> dg.SensorDefinition:
    """Build the sensor that watches until when output of these streams can be committed."""
    timer = clock or SystemClock()
    streams = make_round(
        "sink_transactions",
        policies,
        lambda stream, own: _Tick(stream, policies[stream], timer, own),
        clock,
        reads,
    )

    @dg.sensor(
        name=sensor_name("sink_transactions", group),
        minimum_interval_seconds=_INTERVAL_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Warns before output of {described(list(policies))} that waits for its "
        "commit expires (transaction_margin), also while the driver is down.",
    )
    def watch_sinks(
        context: dg.SensorEvaluationContext, laminar_checkpoints: CheckpointStoreResource
    ) -> dg.SensorResult:
        return streams.run(context, lambda tick, part: tick.run(part, laminar_checkpoints))

    return watch_sinks


@dataclass(frozen=True, slots=True)
class _Tick:
    stream: str
    policy: AlertPolicy
    clock: Clock
    reads: BackgroundReads

    def run(self, context: StreamTick, checkpoints: CheckpointStoreResource) -> dg.SensorResult:
        stream, policy, now_ms = self.stream, self.policy, self.clock.now_ms()
        try:
            store = checkpoints.open(stream)
            waiting, _ = self.reads.read("uncommitted", lambda: uncommitted(store))
        except Unanswered as error:
            return dg.SensorResult(skip_reason=f"no facts: {error}", cursor=context.cursor)
        incidents = transaction_incidents(waiting, now_ms, policy)
        told = AlertCursor.read(context.cursor).told
        told = raise_new_alerts(stream, incidents, told, policy, context.log, now_ms)
        return dg.SensorResult(
            skip_reason=transaction_line(waiting, now_ms),
            cursor=AlertCursor(told=told).model_dump_json(),
        )
