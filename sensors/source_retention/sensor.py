"""The sensor that warns before the source drops rows that a restore would read.

It also watches whether sources catch up after a start: both need the same numbers.
"""

# Dagster's decorators and functions are only partly typed.
# pyright: reportUnknownMemberType=false

from collections.abc import Sequence
from dataclasses import replace

import dagster as dg

from laminar_core.host.clock import Clock, SystemClock
from laminar_core.resources.checkpoints import CheckpointStoreResource
from laminar_core.resources.names import ACTS_ON_TAG, job_name
from laminar_core.sensors.alerting.alerts import raise_new_alerts
from laminar_core.sensors.background import BackgroundReads, Unanswered
from laminar_core.sensors.cursor import AlertCursor
from laminar_core.sensors.facts.source_facts import headrooms, read_sources
from laminar_core.sensors.judgements import Headroom, headroom_line
from laminar_core.sensors.policy import AlertPolicy
from laminar_core.sensors.run_records import newest_run
from laminar_core.sensors.source_retention.decision import (
    Restorable,
    SourceFacts,
    SourceVerdict,
    decide_source_retention,
    read_source_facts,
)
from laminar_core.sensors.source_retention.headroom import headroom_incidents
from laminar_core.sensors.source_retention.lag import LagWatch, follow_lags, lag_incidents

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
        f"of {stream} would read again, and if {stream} does not catch up after a start.",
    )
    def watch_source(
        context: dg.SensorEvaluationContext, checkpoints: CheckpointStoreResource
    ) -> dg.SensorResult:
        now_ms = clock.now_ms()
        try:
            store = checkpoints.open(stream)
            known = reads.read("sources", lambda: read_sources(store))
            facts = SourceFacts(now_ms)
            if policy.source_keeps is not None:
                facts = reads.read("facts", lambda: read_source_facts(store, now_ms))
        except Unanswered as error:
            return dg.SensorResult(skip_reason=f"no facts: {error}", cursor=context.cursor)
        facts = replace(facts, request=newest_run(context.instance, stream, "checkpoint", now_ms))
        before = SourceCursor.read(context.cursor)
        lags = follow_lags(before.lags, known, policy)
        found = headrooms(known, now_ms)
        verdict = _verdict(facts, found, policy)
        incidents = [
            *verdict.incidents,
            *headroom_incidents(found, policy),
            *lag_incidents(lags, known, policy),
        ]
        told = raise_new_alerts(stream, incidents, before.told, policy, context.log, now_ms)
        cursor = SourceCursor(told=told, lags=lags).model_dump_json()
        if verdict.ask_for is None:
            return dg.SensorResult(skip_reason=verdict.line, cursor=cursor)
        context.log.info("%s", verdict.line)
        request = _request(stream, facts.restorable[0], verdict.ask_for)
        return dg.SensorResult(run_requests=[request], cursor=cursor)

    return watch_source


class SourceCursor(AlertCursor):
    """The cursor, extended by the lags of the newest generation."""

    lags: LagWatch = LagWatch()


def _verdict(facts: SourceFacts, found: Sequence[Headroom], policy: AlertPolicy) -> SourceVerdict:
    """Judge by what a user has said about the source, and describe what it knows by itself."""
    by_source = "; ".join(map(headroom_line, found))
    if policy.source_keeps is None:
        return SourceVerdict(by_source or "the source keeps its rows for ever (source_keeps)")
    verdict = decide_source_retention(facts, policy)
    return replace(verdict, line=f"{verdict.line}; {by_source}") if found else verdict


def _request(stream: str, newest: Restorable, reason: str) -> dg.RunRequest:
    name = job_name(stream, "checkpoint")
    return dg.RunRequest(
        run_key=f"{stream}:source:{newest.checkpoint_id}:{newest.triggered_at_ms}",
        job_name=name,
        run_config={"ops": {name: {"config": {"reason": reason}}}},
        tags={ACTS_ON_TAG: stream},
    )
