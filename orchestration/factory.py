"""All Dagster definitions of one stream, put together."""

import dagster as dg

from laminar_core.orchestration.assets import asset_definitions
from laminar_core.orchestration.checks import check_definitions
from laminar_core.orchestration.control.jobs import control_definitions
from laminar_core.orchestration.housekeeping.definitions import housekeeping_definitions
from laminar_core.orchestration.launching.deployment import deployment_definitions
from laminar_core.orchestration.launching.recovery import recovery_definitions
from laminar_core.orchestration.spec import StreamSpec
from laminar_core.orchestration.watching import sensor_definitions


def laminar_definitions(spec: StreamSpec) -> dg.Definitions:
    """Return assets, checks, jobs, sensors and schedules of one stream.

    They need the resources ``checkpoints``, ``driver`` and ``launcher``.
    """
    launching = dg.Definitions.merge(deployment_definitions(spec), recovery_definitions(spec))
    return dg.Definitions.merge(
        asset_definitions(spec),
        check_definitions(spec),
        housekeeping_definitions(spec),
        control_definitions(spec),
        launching,
        sensor_definitions(spec, launching),
    )
