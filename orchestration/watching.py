"""The sensors: one of each kind for all streams of a group."""

from functools import partial

import dagster as dg

from laminar_core.orchestration.group import Group
from laminar_core.orchestration.launching.standby import wanted_standby
from laminar_core.orchestration.spec import StreamSpec
from laminar_core.sensors.alerting.sensors import (
    build_check_failure_sensor,
    build_run_failure_sensor,
)
from laminar_core.sensors.alignment.sensor import build_alignment_sensor
from laminar_core.sensors.observer.sensor import build_checkpoint_reporter
from laminar_core.sensors.policy import AlertPolicy
from laminar_core.sensors.recovery.sensor import build_recovery_sensor
from laminar_core.sensors.sink_transactions.sensor import build_sink_transactions_sensor
from laminar_core.sensors.source_retention.sensor import build_source_retention_sensor
from laminar_core.sensors.standby.sensor import build_standby_sensor


def sensor_definitions(group: Group) -> dg.Definitions:
    """Return all sensors."""
    policies = {spec.name: spec.alerts for spec in group}
    timeouts_ms = {spec.name: spec.start_timeout_ms for spec in group}
    alignment = {spec.name: _alignment(spec) for spec in group}
    outputs = {s.name: s.output_partitions for s in group if s.output_partitions is not None}
    standbys = {spec.name: partial(wanted_standby, spec) for spec in group if spec.standby}
    name = group.name
    return dg.Definitions(
        sensors=[
            build_checkpoint_reporter(policies, group=name, outputs=outputs),
            build_alignment_sensor(alignment, group=name),
            build_recovery_sensor(policies, timeouts_ms, group=name),
            build_standby_sensor(policies, standbys, group=name),
            build_source_retention_sensor(policies, group=name),
            build_sink_transactions_sensor(policies, group=name),
            build_run_failure_sensor(policies, group=name),
            build_check_failure_sensor(policies, group=name),
        ]
    )


def _alignment(spec: StreamSpec) -> AlertPolicy:
    if spec.checkpoints.alignment == "aligned":  # Never anything else: so somebody decided.
        return spec.alerts.model_copy(update={"flip": False})
    return spec.alerts
