"""Names that Dagster stores: asset keys, partitions, jobs, tags.

Histories and bookmarks depend on them. ``{stream}`` is the job's name in the checkpoint store.
"""

from typing import Literal

import dagster as dg

from laminar_core.protocol.types import CheckpointId

STREAM_TAG = "laminar/stream"
"""Tag of a run that supervises a stream.

While such a run is active, it reports the stream's checkpoints itself.
"""

ACTS_ON_TAG = "laminar/acts-on"
"""Tag of a run of any other job: the stream that it acts on."""

ACTOR_TAG = "laminar/actor"
"""Tag of a run: the actor that it acts for. See ``laminar_core.resources.run_actor``."""

RECOVERS_TAG = "laminar/recovers-generation"
"""Tag of a recovery run: the dead generation that it recovers."""

RETENTION_PLAN_TAG = "laminar/retention-plan"
"""Tag of a retention event: the number of the plan."""

DRILL_TAG = "laminar/drill"
"""Tag of a restore drill's event: its number."""

DRILL_POOL = "laminar_drill"
"""Drills need as much of a host as a job does: one at a time."""

RECOVERS_CLAIM_TAG = "laminar/recovers-claim"
"""Tag of a recovery run: the time at which its generation was claimed.

It distinguishes generations with the same number in a store that was created again.
"""

StreamAsset = Literal[
    "source",
    "output",
    "checkpoint",
    "deployment",
    "recovery",
    "savepoint",
    "retention",
    "drill",
    "audit",
    "costs",
]
StreamJob = Literal[
    "run",
    "start",
    "verify",
    "checkpoint",
    "savepoint",
    "stop",
    "mode",
    "recover",
    "recovery",
    "rollback",
    "rescale",
    "pin",
    "unpin",
    "import_savepoint",
    "export_savepoint",
    "retention",
    "drill",
    "audit",
    "orphans",
    "costs",
    "checks",
]


StreamCheck = Literal[
    "manifest_integrity",
    "alignment_p99",
    "inflight_share",
    "chain_length",
    "files_present",
    "freshness",
    "restorable",
    "audit_chain",
    "source_retention",
    "sink_transactions",
]

# A result is shown until its asset is materialised again, which checkpoints are all the time.
_CHECKED: dict[StreamCheck, StreamAsset] = {
    "freshness": "deployment",
    "restorable": "drill",
    "audit_chain": "audit",
    "source_retention": "source",
    "sink_transactions": "output",
}


def asset_key(stream: str, name: StreamAsset) -> dg.AssetKey:
    """Return the key of one of a stream's assets."""
    return dg.AssetKey([stream, name])


def job_name(stream: str, name: StreamJob) -> str:
    """Name of one of a stream's Dagster jobs, and of its op where it has a single one.

    >>> job_name("payments", "rollback")
    'payments_rollback'
    """
    return f"{stream}_{name}"


def schedule_name(stream: str, name: StreamJob) -> str:
    """Name of the schedule of a job.

    >>> schedule_name("payments", "drill")
    'payments_drill_schedule'
    """
    return f"{job_name(stream, name)}_schedule"


def check_key(stream: str, name: StreamCheck) -> dg.AssetCheckKey:
    """Return the key of one of a stream's checks, on the asset that it checks.

    >>> check_key("payments", "restorable").to_user_string()
    'payments/drill:restorable'
    """
    return dg.AssetCheckKey(asset_key(stream, _CHECKED.get(name, "checkpoint")), name)


def checkpoint_key(stream: str) -> dg.AssetKey:
    """Return the key of the asset that has one partition per checkpoint."""
    return asset_key(stream, "checkpoint")


def source_key(stream: str) -> dg.AssetKey:
    """Return the key of the asset whose observations are the source's positions."""
    return asset_key(stream, "source")


def checkpoint_partitions(stream: str) -> dg.DynamicPartitionsDefinition:
    """Return the partitions for the checkpoints of one stream."""
    return dg.DynamicPartitionsDefinition(name=f"{stream}_checkpoints")


def partition_of(checkpoint_id: int) -> str:
    """Partition key, padded as in the store, so that the order of keys is the order of numbers.

    >>> partition_of(42)
    '0000000042'
    """
    return f"{checkpoint_id:010}"


def checkpoint_of(partition: str) -> CheckpointId:
    """Return the checkpoint of a partition key."""
    return CheckpointId(int(partition))


def driver_pool(stream: str) -> str:
    """Return the pool for users' runs that move a stream's detached driver: one at a time.

    Runs that a sensor requests must not use it: a killed run keeps its slot until a user ends it.
    """
    return f"{stream}_driver"
