"""The sensors of a stream that act on it or raise alerts; the observer belongs to the assets."""

from typing import cast

import dagster as dg
from dagster._core.definitions.target import ExecutableDefinition

from laminar_core.orchestration.spec import StreamSpec
from laminar_core.resources.names import StreamJob, job_name
from laminar_core.sensors.alerting.sensors import (
    build_check_failure_sensor,
    build_run_failure_sensor,
)
from laminar_core.sensors.alignment.sensor import build_alignment_sensor
from laminar_core.sensors.recovery.sensor import RecoveryJobs, build_recovery_sensor
from laminar_core.sensors.sink_transactions.sensor import build_sink_transactions_sensor
from laminar_core.sensors.source_retention.sensor import build_source_retention_sensor


def sensor_definitions(spec: StreamSpec, launching: dg.Definitions) -> dg.Definitions:
    """Return all sensors of one stream but the observer.

    ``launching`` has the jobs that start it.
    """
    jobs = {
        str(getattr(job, "name", "")): cast("ExecutableDefinition", job)
        for job in launching.jobs or ()
    }

    def job(name: StreamJob) -> ExecutableDefinition:
        return jobs[job_name(spec.name, name)]

    alignment = spec.alerts
    if spec.checkpoints.alignment == "aligned":  # Never anything else: so somebody decided.
        alignment = alignment.model_copy(update={"flip": False})
    recovery = RecoveryJobs(job("recovery"), job("start"), spec.start_timeout_ms)
    return dg.Definitions(
        sensors=[
            build_alignment_sensor(spec.name, alignment),
            build_recovery_sensor(spec.name, spec.alerts, recovery),
            build_source_retention_sensor(spec.name, spec.alerts),
            build_sink_transactions_sensor(spec.name, spec.alerts),
            build_run_failure_sensor(spec.name, spec.alerts),
            build_check_failure_sensor(spec.name, spec.alerts),
        ]
    )
