"""Sensors that raise alerts: for failed runs, and for checks with severe findings."""

# Dagster's decorators and functions are only partly typed.
# pyright: reportUnknownMemberType=false

from collections.abc import Iterable
from dataclasses import dataclass
from typing import get_args

import dagster as dg

from laminar_core.host.clock import Clock, SystemClock
from laminar_core.resources.names import (
    ACT_TAG,
    GROUP,
    STREAM_TAG,
    StreamJob,
    job_name,
    sensor_name,
)
from laminar_core.sensors.alerting.alerts import HOOK_MS_MAX, Incident, hook_problem, raise_alerts
from laminar_core.sensors.alerting.failed_checks import lasting_failures, new_failures
from laminar_core.sensors.background import BackgroundReads
from laminar_core.sensors.cursor import Cursor
from laminar_core.sensors.policy import AlertPolicy
from laminar_core.sensors.rounds import Policies, StreamTick, described, make_round
from laminar_core.sensors.run_records import stream_of

_INTERVAL_S = 10
_JUDGING: tuple[StreamJob, ...] = ("drill", "audit", "verify")
"""Jobs that fail because what they look at is not right."""


def build_run_failure_sensor(
    policies: Policies, clock: Clock | None = None, *, group: str = GROUP
) -> dg.SensorDefinition:
    """Build the sensor that alerts when a run of, or on, one of these streams fails."""
    clock = clock or SystemClock()

    @dg.run_failure_sensor(
        name=sensor_name("run_failures", group),
        minimum_interval_seconds=_INTERVAL_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Alerts when a run that acts on {described(list(policies))} fails.",
    )
    def report_failed_runs(context: dg.RunFailureSensorContext) -> dg.SkipReason | None:
        run = context.dagster_run
        stream = stream_of_run(run, policies, group)
        if stream is None:
            return dg.SkipReason(
                f"run {run.run_id} ({run.job_name}) belongs to none of the streams"
            )
        if run.tags.get(ACT_TAG) in _JUDGING:
            judged = _failed_check(context.instance, run.run_id)
            if judged is not None:
                return dg.SkipReason(
                    f"run {run.run_id}: check {judged} failed and raises its own alert"
                )
        incident = _failed_run(run, context.failure_event.message or "")
        raise_alerts(stream, [incident], policies[stream], context.log, clock.now_ms())
        return None

    return report_failed_runs


def stream_of_run(run: dg.DagsterRun, streams: Iterable[str], group: str = GROUP) -> str | None:
    """Return the stream that a run supervises, acts on, or materialises assets of; None: no one's.

    A run for several of them counts for the first.
    """
    known = list(streams)
    acts_on = run.tags.get(STREAM_TAG) or stream_of(run)
    if acts_on is not None:
        return acts_on if acts_on in known else None
    checked = (key.asset_key for key in run.asset_check_selection or ())
    touched = {key.path[0] for key in (*(run.asset_selection or ()), *checked)}
    shared = {job_name(job, group) for job in get_args(StreamJob)}
    of_group = known if run.job_name in shared else []
    return next((s for s in known if s in touched), next(iter(of_group), None))


def _failed_check(instance: dg.DagsterInstance, run_id: str) -> str | None:
    """Return a check that failed severely in this run, which the other sensor reports.

    Else None.
    """
    for entry in instance.all_logs(run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION):
        if entry.dagster_event is not None:
            found = entry.dagster_event.asset_check_evaluation_data
            if not found.passed and found.severity is dg.AssetCheckSeverity.ERROR:
                return found.check_name
    return None


def _failed_run(run: dg.DagsterRun, message: str) -> Incident:
    return Incident(
        cause=f"run:{run.run_id}",
        anchor="run-failed",
        severity="error",
        title=f"{run.job_name} failed",
        text=f"run {run.run_id} of {run.job_name} failed: {message}",
        facts={"job": run.job_name},
        run_id=run.run_id,
    )


class CheckCursor(Cursor):
    """The alerted causes, as long as they last; None before the first tick."""

    told: tuple[str, ...] | None = None


def build_check_failure_sensor(
    policies: Policies, clock: Clock | None = None, *, group: str = GROUP
) -> dg.SensorDefinition:
    """Build the sensor that alerts when a check of these streams' assets fails severely.

    Any evaluation counts, by a run, the observer, or a user; one alert is raised until the check
    passes again. Failures before the sensor's first tick raise none. Lost files raise an alert even
    if they were replaced, because the next loss may not be repairable. Each tick also reports
    whether the hooks can be imported.
    """
    timer = clock or SystemClock()
    streams = make_round(
        "check_failures",
        policies,
        lambda stream, _: _CheckTick(stream, policies[stream], timer, BackgroundReads(HOOK_MS_MAX)),
        clock,
    )

    @dg.sensor(
        name=sensor_name("check_failures", group),
        minimum_interval_seconds=_INTERVAL_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Alerts when a check of {described(list(policies))} fails severely, or has "
        "found lost files.",
    )
    def report_failed_checks(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        return streams.run(context, lambda tick, part: tick.run(part))

    return report_failed_checks


@dataclass(frozen=True, slots=True)
class _CheckTick:
    stream: str
    policy: AlertPolicy
    clock: Clock
    reads: BackgroundReads

    def run(self, context: StreamTick) -> dg.SensorResult:
        stream, policy = self.stream, self.policy
        checks = _checks_of(context, stream)
        lasting = list(lasting_failures(context.instance, checks))
        news, alerted = new_failures(lasting, CheckCursor.read(context.cursor).told)
        raise_alerts(stream, news, policy, context.log, self.clock.now_ms())
        said = "; ".join(incident.title for incident in news) or "none failed severely"
        line = f"{len(checks)} checks, since the last look: {said}"
        problem = hook_problem(policy, self.reads)
        return dg.SensorResult(
            skip_reason=line if problem is None else f"{line}; {problem}",
            cursor=CheckCursor(told=alerted).model_dump_json(),
        )


def _checks_of(context: StreamTick, stream: str) -> list[dg.AssetCheckKey]:
    assert context.repository_def is not None, "a sensor is evaluated with its definitions"
    keys = context.repository_def.asset_graph.asset_check_keys
    return sorted((k for k in keys if k.asset_key.path[0] == stream), key=str)
