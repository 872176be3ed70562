"""Deployments of the small plan, with all that a manifest lists or with one worker's part."""

import pyarrow as pa

from laminar_core.connectors.discovery import first_splits
from laminar_core.link.transport import CoordinatorAddress
from laminar_core.plan.plan import Partitioning
from laminar_core.protocol.types import Generation
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.worker.deployment import Deployment
from laminar_core.worker.restored_part import RestoredPart
from tests.plan.plans import SOURCE, small_plan

SPLITS = first_splits(SOURCE)


def deployment(
    restored: CheckpointManifest | RestoredPart | None = None,
    parallelism: int = 2,
    by: Partitioning | None = None,
    **splits: pa.Table,
) -> Deployment:
    """For all workers."""
    whole = RestoredPart.whole(restored) if isinstance(restored, CheckpointManifest) else restored
    return Deployment(
        job="payments",
        generation=Generation(4),
        parallelism=parallelism,
        plan=small_plan(by),
        store_uri="memory://",
        address=CoordinatorAddress("ipc", "ipc:///x"),
        restored=whole,
        claim_sha256=None,
        splits=splits or {"in": SPLITS},
    )


def own(worker: int, whole: Deployment) -> Deployment:
    """The deployment that one worker gets."""
    return list(whole.of_workers())[worker]
