"""All Dagster definitions of some streams, put together."""

import dagster as dg

from laminar_core.orchestration.assets import asset_definitions
from laminar_core.orchestration.checks import check_definitions
from laminar_core.orchestration.control.jobs import control_definitions
from laminar_core.orchestration.group import Group
from laminar_core.orchestration.housekeeping.definitions import housekeeping_definitions
from laminar_core.orchestration.launching.deployment import deployment_definitions
from laminar_core.orchestration.launching.recovery import recovery_definitions
from laminar_core.orchestration.spec import StreamSpec
from laminar_core.orchestration.watching import sensor_definitions
from laminar_core.resources.names import GROUP


def laminar_definitions(*streams: StreamSpec, group: str = GROUP) -> dg.Definitions:
    """Return assets and checks of each stream, and the jobs, sensors and schedules of all.

    The names of jobs, sensors and schedules begin with ``group``: a code location that calls this
    twice gives each call another name. They need the resources that
    ``laminar_core.resources.laminar_resources`` returns.

    Raises:
        ValueError: there is no stream, or two have the same name.
    """
    shared = Group(streams, group)
    return dg.Definitions.merge(
        asset_definitions(shared),
        check_definitions(shared),
        housekeeping_definitions(shared),
        control_definitions(shared),
        deployment_definitions(shared),
        recovery_definitions(shared),
        sensor_definitions(shared),
    )
