"""Dagster's view of the streams: assets, checks and jobs; ``definitions`` puts them together."""

from laminar_core.host.extras import needs_extra

with needs_extra("dagster", "Dagster definitions"):
    from laminar_core.orchestration.factory import laminar_definitions
    from laminar_core.orchestration.spec import (
        CheckpointPolicy,
        PriceTable,
        SchedulePolicy,
        StreamSpec,
    )
    from laminar_core.resources.output_partitions import OutputPartitions
    from laminar_core.sensors.alerting.alerts import Alert
    from laminar_core.sensors.policy import AlertPolicy

__all__ = [
    "Alert",
    "AlertPolicy",
    "CheckpointPolicy",
    "OutputPartitions",
    "PriceTable",
    "SchedulePolicy",
    "StreamSpec",
    "laminar_definitions",
]

if __name__ != "laminar_core.orchestration":
    raise ImportError(
        "`orchestration` is part of laminar_core: write `import laminar_core.orchestration`"
    )
