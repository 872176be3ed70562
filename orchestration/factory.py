"""Everything that Dagster shows and does for one stream, put together."""

import dagster as dg

from orchestration.assets import asset_definitions
from orchestration.checks import check_definitions
from orchestration.control.jobs import control_definitions
from orchestration.housekeeping.definitions import housekeeping_definitions
from orchestration.launching.deployment import deployment_definitions
from orchestration.launching.recovery import recovery_definitions
from orchestration.spec import StreamSpec
from orchestration.watching import sensor_definitions


def laminar_definitions(spec: StreamSpec) -> dg.Definitions:
    """Assets, checks, jobs, sensors and schedules of one stream.

    Needs the resources ``checkpoints``, ``driver`` and ``launcher``.
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
