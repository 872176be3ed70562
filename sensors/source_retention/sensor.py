"""The sensor that warns before the source drops rows that a restore would read."""

from dataclasses import replace

import dagster as dg

from laminar_core.host.clock import Clock, SystemClock
from laminar_core.resources.checkpoints import CheckpointStoreResource
from laminar_core.resources.names import ACTS_ON_TAG, job_name
from laminar_core.sensors.alerting.alerts import raise_new_alerts
from laminar_core.sensors.background import BackgroundReads, Unanswered
from laminar_core.sensors.cursor import AlertCursor
from laminar_core.sensors.policy import AlertPolicy
from laminar_core.sensors.run_records import newest_run
from laminar_core.sensors.source_retention.decision import (
    Restorable,
    decide_source_retention,
    read_source_facts,
)

_INTERVAL_S = 60
"""A margin is hours, and each checkpoint's manifest is read."""


def build_source_retention_sensor(
    stream: str,
    policy: AlertPolicy,
    clock: Clock | None = None,
    reads: BackgroundReads | None = None,
) -> dg.SensorDefinition:
    """Build the sensor that watches how long ``stream`` can be restored."""
    clock, reads = clock or SystemClock(), reads or BackgroundReads()

    @dg.sensor(
        name=f"{stream}_source_retention",
        job_name=job_name(stream, "checkpoint"),
        minimum_interval_seconds=_INTERVAL_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Warns {policy.source_margin} before the source drops rows that a restore "
        f"of {stream} would read again.",
    )
    def watch_source(
        context: dg.SensorEvaluationContext, checkpoints: CheckpointStoreResource
    ) -> dg.SensorResult:
        if policy.source_keeps is None:
            return dg.SensorResult(skip_reason="the source keeps its rows for ever (source_keeps)")
        now_ms = clock.now_ms()
        try:
            store = checkpoints.open(stream)
            facts = reads.read("facts", lambda: read_source_facts(store, now_ms))
        except Unanswered as error:
            return dg.SensorResult(skip_reason=f"no facts: {error}", cursor=context.cursor)
        facts = replace(facts, request=newest_run(context.instance, stream, "checkpoint", now_ms))
        verdict = decide_source_retention(facts, policy)
        alerted = AlertCursor.read(context.cursor).told
        alerted = raise_new_alerts(stream, verdict.incidents, alerted, policy, context.log, now_ms)
        cursor = AlertCursor(told=alerted).model_dump_json()
        if verdict.ask_for is None:
            return dg.SensorResult(skip_reason=verdict.line, cursor=cursor)
        context.log.info("%s", verdict.line)
        request = _request(stream, facts.restorable[0], verdict.ask_for)
        return dg.SensorResult(run_requests=[request], cursor=cursor)

    return watch_source


def _request(stream: str, newest: Restorable, reason: str) -> dg.RunRequest:
    name = job_name(stream, "checkpoint")
    return dg.RunRequest(
        run_key=f"{stream}:source:{newest.checkpoint_id}:{newest.triggered_at_ms}",
        job_name=name,
        run_config={"ops": {name: {"config": {"reason": reason}}}},
        tags={ACTS_ON_TAG: stream},
    )
