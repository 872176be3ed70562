"""The sensor that warns before output that waits for its commit expires."""

# Dagster's decorators and metadata are only partly typed.
# pyright: reportUnknownMemberType=false

import dagster as dg

from laminar_core.host.clock import Clock, SystemClock
from laminar_core.resources.checkpoints import CheckpointStoreResource
from laminar_core.sensors.alerting.alerts import raise_new_alerts
from laminar_core.sensors.background import BackgroundReads, Unanswered
from laminar_core.sensors.cursor import AlertCursor
from laminar_core.sensors.facts.job_facts import uncommitted
from laminar_core.sensors.policy import AlertPolicy
from laminar_core.sensors.sink_transactions.decision import transaction_incidents, transaction_line

_INTERVAL_S = 60
"""The margin is minutes, and mostly two manifests are read."""


def build_sink_transactions_sensor(
    stream: str,
    policy: AlertPolicy,
    clock: Clock | None = None,
    reads: BackgroundReads | None = None,
) -> dg.SensorDefinition:
    """Build the sensor that watches until when output of ``stream`` can be committed."""
    clock, reads = clock or SystemClock(), reads or BackgroundReads()

    @dg.sensor(
        name=f"{stream}_sink_transactions",
        minimum_interval_seconds=_INTERVAL_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Warns {policy.transaction_margin} before output of {stream} that waits for "
        "its commit expires, also while the driver is down.",
    )
    def watch_sinks(
        context: dg.SensorEvaluationContext, checkpoints: CheckpointStoreResource
    ) -> dg.SensorResult:
        now_ms = clock.now_ms()
        try:
            store = checkpoints.open(stream)
            waiting, _ = reads.read("uncommitted", lambda: uncommitted(store))
        except Unanswered as error:
            return dg.SensorResult(skip_reason=f"no facts: {error}", cursor=context.cursor)
        incidents = transaction_incidents(waiting, now_ms, policy)
        told = AlertCursor.read(context.cursor).told
        told = raise_new_alerts(stream, incidents, told, policy, context.log, now_ms)
        return dg.SensorResult(
            skip_reason=transaction_line(waiting, now_ms),
            cursor=AlertCursor(told=told).model_dump_json(),
        )

    return watch_sinks
