"""What Dagster knows of runs that act on a stream."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

import dagster as dg

from laminar_core.resources.names import (
    ACTS_ON_TAG,
    RECOVERS_CLAIM_TAG,
    RECOVERS_TAG,
    STREAM_TAG,
    StreamJob,
    job_name,
)

_SUBMITTED = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
_AGAIN_TAG = "dagster/parent_run_id"
"""On a run that somebody started again by hand: it has the tags of the first one."""
STARTING_OR_ENDING: tuple[StreamJob, ...] = (
    "start",
    "stop",
    "recover",
    "recovery",
    "rollback",
    "rescale",
    "import_savepoint",
)
"""Jobs during which it is no accident that a driver is gone."""

HANGS_MS = 900_000
"""An act that has been under way for longer has most likely lost its process: Dagster's record of a
run outlives it, and nobody corrects that when a code server is killed. One that starts a driver may
take longer, if the start itself may."""

RunStatus = Literal["created", "in progress", "succeeded", "failed", "cancelled"]
"""``created``: its tick died before it was submitted; the same request submits it."""


@dataclass(frozen=True, slots=True)
class KnownRun:
    """A run that acts on a stream; ``ended_ms_ago`` is None while it has not ended.

    One that takes longer than ``patience_ms`` hangs.
    """

    run_id: str
    job: str
    status: RunStatus
    created_ms_ago: float
    ended_ms_ago: float | None = None
    patience_ms: float = HANGS_MS

    @property
    def hangs(self) -> bool:
        """It has not ended, and should have."""
        return self.status == "in progress" and self.created_ms_ago > self.patience_ms


def newest_run(
    instance: dg.DagsterInstance, stream: str, job: StreamJob, now_ms: int
) -> KnownRun | None:
    """The newest run of one of the stream's jobs."""
    runs = dg.RunsFilter(job_name=job_name(stream, job))
    return next(iter(_known(instance.get_run_records(runs, limit=1), now_ms)), None)


def supervising_run(instance: dg.DagsterInstance, stream: str) -> str | None:
    """Id of the run that owns the stream's driver, or did when its process was killed; or None."""
    running = dg.RunsFilter(
        tags={STREAM_TAG: stream},
        statuses=[dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING],
    )
    records = instance.get_run_records(running, limit=1)
    return records[0].dagster_run.run_id if records else None


def acting_run(instance: dg.DagsterInstance, stream: str, now_ms: int) -> KnownRun | None:
    """A run in progress that starts or ends the stream's driver, and does not own it, or None.

    Not one that was created and never submitted: nobody knows whether it ever will be.
    """
    runs = dg.RunsFilter(tags={ACTS_ON_TAG: stream}, statuses=_SUBMITTED)
    names = {job_name(stream, job) for job in STARTING_OR_ENDING}
    records = instance.get_run_records(runs, limit=50)
    found = _known([r for r in records if STREAM_TAG not in r.dagster_run.tags], now_ms)
    return next((run for run in found if run.job in names), None)


def was_terminated(instance: dg.DagsterInstance, stream: str, run_id: str | None) -> bool:
    """Whether this run owned the stream's driver, and somebody terminated it."""
    run = None if run_id is None else instance.get_run_by_id(run_id)
    if run is None or run.tags.get(STREAM_TAG) != stream:
        return False
    return run.status in (dg.DagsterRunStatus.CANCELED, dg.DagsterRunStatus.CANCELING)


@dataclass(frozen=True, slots=True)
class Death:
    """What a recovery run answers; its tags say so."""

    stream: str
    generation: int
    claimed_at_ms: int

    @property
    def tags(self) -> dict[str, str]:
        """Of the recovery run."""
        return {
            ACTS_ON_TAG: self.stream,
            RECOVERS_TAG: str(self.generation),
            RECOVERS_CLAIM_TAG: str(self.claimed_at_ms),
        }


def recoveries_of(instance: dg.DagsterInstance, death: Death, now_ms: int) -> list[KnownRun]:
    """The recovery runs that answered it, oldest first; not those that a person started again."""
    runs = dg.RunsFilter(tags=death.tags)
    records = instance.get_run_records(runs, limit=100, ascending=True)
    return _known([r for r in records if _AGAIN_TAG not in r.dagster_run.tags], now_ms)


def recoveries_since(
    instance: dg.DagsterInstance, stream: str, age_ms: int, now_ms: int
) -> list[KnownRun]:
    """All recovery runs of the stream that are no older, newest first."""
    after = datetime.fromtimestamp((now_ms - age_ms) / 1000, UTC)
    runs = dg.RunsFilter(tags={ACTS_ON_TAG: stream}, created_after=after)
    records = instance.get_run_records(runs, limit=500)
    automatic = [
        r
        for r in records
        if RECOVERS_TAG in r.dagster_run.tags and _AGAIN_TAG not in r.dagster_run.tags
    ]
    return _known(automatic, now_ms)


def _known(records: Sequence[dg.RunRecord], now_ms: int) -> list[KnownRun]:
    return [_known_run(record, now_ms) for record in records]


def _known_run(record: dg.RunRecord, now_ms: int) -> KnownRun:
    run = record.dagster_run
    ended_ms = None
    if run.is_finished:
        ended_s = record.end_time or record.update_timestamp.timestamp()
        ended_ms = now_ms - 1000 * ended_s
    return KnownRun(
        run.run_id,
        run.job_name,
        _status(run.status),
        now_ms - 1000 * record.create_timestamp.timestamp(),
        ended_ms,
    )


def _status(status: dg.DagsterRunStatus) -> RunStatus:
    match status:
        case dg.DagsterRunStatus.SUCCESS:
            return "succeeded"
        case dg.DagsterRunStatus.FAILURE:
            return "failed"
        case dg.DagsterRunStatus.CANCELED:
            return "cancelled"
        case dg.DagsterRunStatus.NOT_STARTED:
            return "created"
        case _:
            return "in progress"
