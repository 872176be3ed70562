"""Sensors that raise alerts: for failed runs, and for checks with severe findings."""

# Dagster's decorators and functions are only partly typed.
# pyright: reportUnknownMemberType=false

from typing import get_args

import dagster as dg

from laminar_core.host.clock import Clock, SystemClock
from laminar_core.resources.names import ACTS_ON_TAG, STREAM_TAG, StreamJob, job_name
from laminar_core.sensors.alerting.alerts import HOOK_MS_MAX, Incident, hook_problem, raise_alerts
from laminar_core.sensors.alerting.failed_checks import lasting_failures, new_failures
from laminar_core.sensors.background import BackgroundReads
from laminar_core.sensors.cursor import Cursor
from laminar_core.sensors.policy import AlertPolicy

_INTERVAL_S = 10
_JUDGING: tuple[StreamJob, ...] = ("drill", "audit", "verify")
"""Jobs that fail because what they look at is not right."""


def build_run_failure_sensor(
    stream: str, policy: AlertPolicy, clock: Clock | None = None
) -> dg.SensorDefinition:
    """Build the sensor that alerts when a run of, or on, ``stream`` fails."""
    clock = clock or SystemClock()

    @dg.run_failure_sensor(
        name=f"{stream}_run_failures",
        minimum_interval_seconds=_INTERVAL_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Alerts when a run that acts on {stream} fails.",
    )
    def report_failed_runs(context: dg.RunFailureSensorContext) -> dg.SkipReason | None:
        run = context.dagster_run
        if not is_of(run, stream):
            return dg.SkipReason(f"run {run.run_id} ({run.job_name}) does not belong to {stream}")
        if run.job_name in {job_name(stream, job) for job in _JUDGING}:
            judged = _failed_check(context.instance, run.run_id)
            if judged is not None:
                return dg.SkipReason(
                    f"run {run.run_id}: check {judged} failed and raises its own alert"
                )
        incident = _failed_run(run, context.failure_event.message or "")
        raise_alerts(stream, [incident], policy, context.log, clock.now_ms())
        return None

    return report_failed_runs


def is_of(run: dg.DagsterRun, stream: str) -> bool:
    """Return whether a run belongs to the stream's jobs, acts on it, or materialises its assets."""
    if stream in (run.tags.get(STREAM_TAG), run.tags.get(ACTS_ON_TAG)):
        return True
    if run.job_name in {job_name(stream, job) for job in get_args(StreamJob)}:
        return True
    return any(key.path[0] == stream for key in run.asset_selection or ())


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
    stream: str, policy: AlertPolicy, clock: Clock | None = None
) -> dg.SensorDefinition:
    """Build the sensor that alerts when a check of ``stream``'s assets fails severely.

    Any evaluation counts, by a run, the observer, or a user; one alert is raised until the check
    passes again. Failures before the sensor's first tick raise none. Lost files raise an alert even
    if they were replaced, because the next loss may not be repairable. Each tick also reports
    whether the policy's hook can be imported.
    """
    clock, imports = clock or SystemClock(), BackgroundReads(HOOK_MS_MAX)

    @dg.sensor(
        name=f"{stream}_check_failures",
        minimum_interval_seconds=_INTERVAL_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Alerts when a check of {stream} fails severely, or has found lost files.",
    )
    def report_failed_checks(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        checks = _checks_of(context, stream)
        lasting = list(lasting_failures(context.instance, checks))
        news, alerted = new_failures(lasting, CheckCursor.read(context.cursor).told)
        raise_alerts(stream, news, policy, context.log, clock.now_ms())
        said = "; ".join(incident.title for incident in news) or "none failed severely"
        line = f"{len(checks)} checks, since the last look: {said}"
        problem = hook_problem(policy, imports)
        return dg.SensorResult(
            skip_reason=line if problem is None else f"{line}; {problem}",
            cursor=CheckCursor(told=alerted).model_dump_json(),
        )

    return report_failed_checks


def _checks_of(context: dg.SensorEvaluationContext, stream: str) -> list[dg.AssetCheckKey]:
    assert context.repository_def is not None, "a sensor is evaluated with its definitions"
    keys = context.repository_def.asset_graph.asset_check_keys
    return sorted((k for k in keys if k.asset_key.path[0] == stream), key=str)
