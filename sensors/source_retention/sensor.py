"""The sensor that warns before the source drops rows that a restore would read.

It also watches whether sources catch up after a start: both need the same numbers.
"""

# Dagster's decorators and functions are only partly typed.
# pyright: reportUnknownMemberType=false

from collections.abc import Sequence
from dataclasses import dataclass, replace

import dagster as dg

from laminar_core.host.clock import Clock, SystemClock
from laminar_core.resources.checkpoints import CheckpointStoreResource
from laminar_core.resources.names import (
    ACTS_ON_TAG,
    GROUP,
    STREAM_FIELD,
    job_name,
    sensor_name,
)
from laminar_core.sensors.alerting.alerts import raise_new_alerts
from laminar_core.sensors.background import BackgroundReads, Unanswered
from laminar_core.sensors.cursor import AlertCursor
from laminar_core.sensors.facts.source_facts import headrooms, read_sources
from laminar_core.sensors.judgements import Headroom, headroom_line
from laminar_core.sensors.policy import AlertPolicy
from laminar_core.sensors.rounds import Policies, StreamTick, described, make_round
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
    policies: Policies,
    clock: Clock | None = None,
    reads: BackgroundReads | None = None,
    *,
    group: str = GROUP,
) -> dg.SensorDefinition:
    """Build the sensor that watches how long these streams can be restored."""
    timer, job = clock or SystemClock(), job_name("checkpoint", group)
    streams = make_round(
        "source_retention",
        policies,
        lambda stream, own: _Tick(stream, policies[stream], timer, own, job),
        clock,
        reads,
    )

    @dg.sensor(
        name=sensor_name("source_retention", group),
        job_name=job,
        minimum_interval_seconds=_INTERVAL_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Warns before a source drops rows that a restore would read again "
        f"(source_margin), and if a stream does not catch up after a start: "
        f"{described(list(policies))}.",
    )
    def watch_source(
        context: dg.SensorEvaluationContext, laminar_checkpoints: CheckpointStoreResource
    ) -> dg.SensorResult:
        return streams.run(context, lambda tick, part: tick.run(part, laminar_checkpoints))

    return watch_source


class SourceCursor(AlertCursor):
    """The cursor, extended by the lags of the newest generation."""

    lags: LagWatch = LagWatch()


@dataclass(frozen=True, slots=True)
class _Tick:
    stream: str
    policy: AlertPolicy
    clock: Clock
    reads: BackgroundReads
    job: str

    def run(self, context: StreamTick, checkpoints: CheckpointStoreResource) -> dg.SensorResult:
        stream, policy, now_ms = self.stream, self.policy, self.clock.now_ms()
        try:
            store = checkpoints.open(stream)
            known = self.reads.read("sources", lambda: read_sources(store))
            facts = SourceFacts(now_ms)
            if policy.source_keeps is not None:
                facts = self.reads.read("facts", lambda: read_source_facts(store, now_ms))
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
        request = self._request(facts.restorable[0], verdict.ask_for)
        return dg.SensorResult(run_requests=[request], cursor=cursor)

    def _request(self, newest: Restorable, reason: str) -> dg.RunRequest:
        form = {STREAM_FIELD: self.stream, "reason": reason}
        return dg.RunRequest(
            run_key=f"{self.stream}:source:{newest.checkpoint_id}:{newest.triggered_at_ms}",
            job_name=self.job,
            run_config={"ops": {self.job: {"config": form}}},
            tags={ACTS_ON_TAG: self.stream},
        )


def _verdict(facts: SourceFacts, found: Sequence[Headroom], policy: AlertPolicy) -> SourceVerdict:
    """Judge by what a user has said about the source, and describe what it knows by itself."""
    by_source = "; ".join(map(headroom_line, found))
    if policy.source_keeps is None:
        return SourceVerdict(by_source or "the source keeps its rows for ever (source_keeps)")
    verdict = decide_source_retention(facts, policy)
    return replace(verdict, line=f"{verdict.line}; {by_source}") if found else verdict
