"""Checkpoints under way, as the heartbeat describes them to those beside the driver."""

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress

from pydantic import BaseModel, ConfigDict, ValidationError

from laminar_core.driver.events import MissingSubtask
from laminar_core.driver.missing import missing_subtasks
from laminar_core.driver.publication import JobIdentity
from laminar_core.link.messages import WaitingCheckpoint
from laminar_core.protocol.coordinator_events import SubtaskId
from laminar_core.protocol.types import CheckpointKind
from laminar_core.records.manifest import TriggerRecord
from laminar_core.records.record import JsonObject


class CheckpointUnderWay(BaseModel):
    """A checkpoint that was triggered and has not ended."""

    # A newer driver's heartbeat may have more.
    model_config = ConfigDict(frozen=True, extra="ignore")
    checkpoint_id: int
    kind: CheckpointKind
    age_ms: float
    """Time since its trigger."""
    workers: int
    acknowledged: int
    """Workers that have written their part. If all have, its manifest is being written."""
    missing: tuple[MissingSubtask, ...] = ()
    """The first subtasks that it waits for; those that have reported why come first."""
    missing_count: int = 0
    """Number of all subtasks that it waits for."""


def described(
    identity: JobIdentity,
    trigger: TriggerRecord,
    age_ms: float,
    waiting: Mapping[int, WaitingCheckpoint],
    acknowledged: Collection[int],
    host_of: Callable[[int], str],
) -> CheckpointUnderWay:
    """Describe the checkpoint that ``trigger`` began.

    ``waiting`` are the last reports of the workers, ``acknowledged`` the workers that are done.
    """
    missing = [
        SubtaskId(vertex.vertex_id, worker)
        for vertex in identity.plan.vertices
        for worker in range(identity.parallelism)
        if worker not in acknowledged
    ]
    return CheckpointUnderWay(
        checkpoint_id=trigger.checkpoint_id,
        kind=trigger.kind,
        age_ms=age_ms,
        workers=identity.parallelism,
        acknowledged=len(acknowledged),
        missing=missing_subtasks(missing, identity.plan, waiting, host_of),
        missing_count=len(missing),
    )


def under_way_of(progress: JsonObject) -> list[CheckpointUnderWay]:
    """Return the checkpoints under way in a heartbeat, oldest first; an older driver has none.

    What cannot be read is left out.
    """
    found = progress.get("pending")
    read: list[CheckpointUnderWay] = []
    for each in found if isinstance(found, list) else []:
        with suppress(ValidationError):
            read.append(CheckpointUnderWay.model_validate(each, strict=False))
    return read
