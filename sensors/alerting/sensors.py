"""Sensors that only tell: of runs that failed, and of checks that found something severe."""

from collections.abc import Iterable, Iterator, Sequence
from typing import get_args

import dagster as dg
from dagster._core.storage.asset_check_execution_record import (
    AssetCheckExecutionRecord,
    AssetCheckExecutionRecordStatus,
)

from laminar_core.runtime.clock import Clock, SystemClock
from resources.names import ACTS_ON_TAG, STREAM_TAG, StreamJob, job_name
from resources.values import Values
from sensors.alerting.alerts import Finding, raise_alerts
from sensors.policy import AlertPolicy

_INTERVAL_S = 10
_FAILED_MAX = 20
"""So many of the newest failures of one check are looked at."""


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
    def tell_of_failed_runs(context: dg.RunFailureSensorContext) -> dg.SkipReason | None:
        run = context.dagster_run
        if not is_of(run, stream):
            return dg.SkipReason(f"run {run.run_id} ({run.job_name}) is not of {stream}")
        finding = _failed_run(run, context.failure_event.message or "")
        raise_alerts(stream, [finding], policy, context.log, clock.now_ms())
        return None

    return tell_of_failed_runs


def is_of(run: dg.DagsterRun, stream: str) -> bool:
    """Whether a run is of the stream's jobs, or acts on it, or materialises one of its assets."""
    if stream in (run.tags.get(STREAM_TAG), run.tags.get(ACTS_ON_TAG)):
        return True
    if run.job_name in {job_name(stream, job) for job in get_args(StreamJob)}:
        return True
    return any(key.path[0] == stream for key in run.asset_selection or ())


def _failed_run(run: dg.DagsterRun, message: str) -> Finding:
    return Finding(
        cause=f"run:{run.run_id}",
        anchor="run-failed",
        severity="error",
        title=f"{run.job_name} failed",
        text=f"run {run.run_id} of {run.job_name} failed: {message}",
        facts={"job": run.job_name},
        run_id=run.run_id,
    )


class CheckCursor(Values):
    """Numbers of the failed evaluations that are known; None: no tick has looked yet."""

    known: tuple[int, ...] | None = None

    @classmethod
    def read(cls, text: str | None) -> "CheckCursor":
        """Parse it; one that cannot be read is as good as none."""
        try:
            return cls.model_validate_json(text or "{}")
        except ValueError:
            return cls()


def build_check_failure_sensor(
    stream: str, policy: AlertPolicy, clock: Clock | None = None
) -> dg.SensorDefinition:
    """Build the sensor that alerts when a check of ``stream``'s assets fails severely.

    Whoever evaluated it: a run, the reporter, or somebody by hand. What failed before the sensor
    looked for the first time is not told.
    """
    clock = clock or SystemClock()

    @dg.sensor(
        name=f"{stream}_check_failures",
        minimum_interval_seconds=_INTERVAL_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Alerts when a check of {stream} fails with severity ERROR.",
    )
    def tell_of_failed_checks(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        known = CheckCursor.read(context.cursor).known
        checks = _checks_of(context, stream)
        failed = [r for key in checks for r in _failed(context.instance, key)]
        # A row is made when a check is planned and filled in later: its number orders nothing.
        news = [] if known is None else [r for r in failed if r.id not in known]
        findings = list(_findings(news))
        raise_alerts(stream, findings, policy, context.log, clock.now_ms())
        said = "; ".join(f.title for f in findings) or "none failed severely"
        cursor = CheckCursor(known=tuple(r.id for r in failed)).model_dump_json()
        line = f"{len(checks)} checks, since the last look: {said}"
        return dg.SensorResult(skip_reason=line, cursor=cursor)

    return tell_of_failed_checks


def _checks_of(context: dg.SensorEvaluationContext, stream: str) -> list[dg.AssetCheckKey]:
    assert context.repository_def is not None, "a sensor is evaluated with its definitions"
    keys = context.repository_def.asset_graph.asset_check_keys
    return sorted((k for k in keys if k.asset_key.path[0] == stream), key=str)


def _failed(
    instance: dg.DagsterInstance, key: dg.AssetCheckKey
) -> Sequence[AssetCheckExecutionRecord]:
    return instance.event_log_storage.get_asset_check_execution_history(
        key, limit=_FAILED_MAX, status={AssetCheckExecutionRecordStatus.FAILED}
    )


def _findings(records: Iterable[AssetCheckExecutionRecord]) -> Iterator[Finding]:
    for record in records:
        event = record.event.dagster_event if record.event else None
        if event is None:
            continue
        found = event.asset_check_evaluation_data
        if found.severity is not dg.AssetCheckSeverity.ERROR:
            continue
        where, partition = found.asset_key.to_user_string(), record.partition
        which = f" of {partition.lstrip('0')}" if partition else ""
        yield Finding(
            cause=f"check:{record.id}",
            anchor="check-failed",
            severity="error",
            title=f"check {found.check_name}{which} failed",
            text=f"{found.check_name} of {where}{which}: {found.description or 'it failed'}",
            facts={"check": found.check_name, "asset": where},
            run_id=record.run_id or None,
        )
