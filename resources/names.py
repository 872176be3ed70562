"""Names that Dagster stores: asset keys, partitions, jobs, tags.

Histories and bookmarks depend on them. Assets belong to one stream: ``{stream}`` is the job's name
in the checkpoint store. Jobs, sensors and schedules are shared by all streams of a group.
"""

from typing import Literal

import dagster as dg

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.protocol.types import CheckpointId
from laminar_core.records.paths import number_in

STREAM_TAG = "laminar/stream"
"""Tag of a run that supervises a stream.

While such a run is active, it reports the stream's checkpoints itself.
"""

ACTS_ON_TAG = "laminar/acts-on"
"""Tag of a run of any other job: the stream that it acts on."""

ACT_TAG = "laminar/act"
"""Tag of each job with which one acts on a stream: the name of the act, whatever the group."""

STREAM_FIELD = "stream"
"""Field of the form of a shared job: the stream that the run acts on."""

GROUP = "laminar"
"""The prefix of jobs, sensors and schedules, unless a group of streams has another one."""

ACTOR_TAG = "laminar/actor"
"""Tag of a run: the actor that it acts for. See ``laminar_core.resources.run_actor``."""

RECOVERS_TAG = "laminar/recovers-generation"
"""Tag of a recovery run: the dead generation that it recovers."""

RETENTION_PLAN_TAG = "laminar/retention-plan"
"""Tag of a retention event: the number of the plan."""

DRILL_TAG = "laminar/drill"
"""Tag of a restore drill's event: its number."""

OUTPUT_OF_TAG = "laminar/output-of"
"""Tag of a report of output: the identity of the store that shows it as committed."""

DRILL_POOL = "laminar_drill"
"""Drills need as much of a host as a job does: one at a time."""

CHECKPOINTS_KEY = "laminar_checkpoints"
"""Key of the resource with the checkpoint store.

Where Dagster takes a resource by the name of a parameter, the parameter has this name. It begins
with ``laminar_``, because a project may have resources of its own that are called ``checkpoints``,
``driver`` or ``launcher``.
"""

DRIVER_KEY = "laminar_driver"
"""Key of the resource that supervises drivers."""

LAUNCHER_KEY = "laminar_launcher"
"""Key of the resource that starts detached drivers."""

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
    "rollback",
    "rescale",
    "pin",
    "unpin",
    "pause",
    "resume",
    "import_savepoint",
    "export_savepoint",
    "retention",
    "drill",
    "audit",
    "orphans",
    "costs",
    "checks",
]

GroupSensor = Literal[
    "checkpoint_reporter",
    "alignment",
    "recovery",
    "standby",
    "source_retention",
    "sink_transactions",
    "run_failures",
    "check_failures",
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
    "running",
    "attempts",
]

# A result is shown until its asset is materialised again, which checkpoints are all the time.
_CHECKED: dict[StreamCheck, StreamAsset] = {
    "freshness": "deployment",
    "restorable": "drill",
    "audit_chain": "audit",
    "source_retention": "source",
    "sink_transactions": "output",
    "running": "deployment",
    "attempts": "deployment",
}


def asset_key(stream: str, name: StreamAsset) -> dg.AssetKey:
    """Return the key of one of a stream's assets."""
    return dg.AssetKey([stream, name])


def job_name(name: StreamJob, group: str = GROUP) -> str:
    """Name of a Dagster job that the streams of a group share, and of its op.

    >>> job_name("rollback")
    'laminar_rollback'
    """
    return f"{group}_{name}"


def sensor_name(name: GroupSensor, group: str = GROUP) -> str:
    """Name of a sensor that the streams of a group share.

    >>> sensor_name("recovery")
    'laminar_recovery'
    """
    return f"{group}_{name}"


def schedule_name(name: StreamJob, group: str = GROUP) -> str:
    """Name of the schedule of a job.

    >>> schedule_name("drill")
    'laminar_drill_schedule'
    """
    return f"{job_name(name, group)}_schedule"


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
    """Return the checkpoint of a partition key.

    Raises:
        ConfigurationError: it is the key of none; users can add such partitions in Dagster.
    """
    number = number_in(f"{partition}/")  # As the folder in the store.
    if number is None:
        raise ConfigurationError(
            ErrorCode.NO_SUCH_CHECKPOINT,
            f"partition {partition!r} is no checkpoint: choose one such as {partition_of(42)}",
        )
    return CheckpointId(number)
