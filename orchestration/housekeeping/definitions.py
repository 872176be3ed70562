"""Housekeeping of streams: the jobs, their assets, and their schedules."""

import dagster as dg

from laminar_core.host.clock import Clock, SystemClock
from laminar_core.orchestration.group import Group
from laminar_core.orchestration.housekeeping.audit_jobs import build_audit_job
from laminar_core.orchestration.housekeeping.cost_jobs import build_cost_job
from laminar_core.orchestration.housekeeping.drill_jobs import build_drill_job
from laminar_core.orchestration.housekeeping.left_over_jobs import build_left_over_job
from laminar_core.orchestration.housekeeping.retention_jobs import build_retention_job
from laminar_core.orchestration.housekeeping.schedules import schedules_of
from laminar_core.orchestration.spec import StreamSpec
from laminar_core.resources.names import StreamAsset, asset_key, checkpoint_key

_ASSETS: dict[StreamAsset, str] = {
    "retention": "What was deleted of the stream's checkpoints and left-overs, and why; dry runs "
    "and plans with nothing to do are observations.",
    "drill": "Restore drills: a checkpoint, restored in a scratch Spark job and compared.",
    "audit": "Verifications of the log of who did what to the stream.",
    "costs": "What the stream's checkpoints cost: bytes stored, requests sent, money.",
}
_KINDS = {"drill": "pyspark"}


def housekeeping_definitions(group: Group, clock: Clock | None = None) -> dg.Definitions:
    """Return external assets, jobs and schedules. Nothing is read before one of them runs."""
    clock = clock or SystemClock()
    return dg.Definitions(
        assets=[_asset(spec, name, said) for spec in group for name, said in _ASSETS.items()],
        jobs=[
            build_retention_job(group, clock),
            build_drill_job(group, clock),
            build_audit_job(group, clock),
            build_left_over_job(group, clock),
            build_cost_job(group, clock),
        ],
        schedules=schedules_of(group),
    )


def _asset(spec: StreamSpec, name: StreamAsset, description: str) -> dg.AssetSpec:
    return dg.AssetSpec(
        asset_key(spec.name, name),
        deps=[checkpoint_key(spec.name)],
        group_name=spec.name,
        owners=[spec.owner],
        kinds={_KINDS.get(name, "laminar")},
        tags=spec.tags,
        description=description,
    )
