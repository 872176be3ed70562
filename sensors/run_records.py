"""Dagster's records of runs that act on a stream."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal, cast

import dagster as dg

from laminar_core.resources.names import (
    ACT_TAG,
    ACTS_ON_TAG,
    RECOVERS_CLAIM_TAG,
    RECOVERS_TAG,
    STREAM_FIELD,
    STREAM_TAG,
    StreamJob,
)

_SUBMITTED = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
_AGAIN_TAG = "dagster/parent_run_id"
"""Tag of a run that a user re-executed: it has the tags of the first one."""
STARTING_OR_ENDING: tuple[StreamJob, ...] = (
    "start",
    "stop",
    "recover",
    "rollback",
    "rescale",
    "import_savepoint",
)
"""Jobs during which it is no accident that a driver is gone."""

MOVES: tuple[StreamJob, ...] = ("recover", "rollback", "rescale", "import_savepoint")
"""Jobs that wait for each other, if users run them for the same stream."""

HANGS_MS = 900_000
"""A longer act has most likely lost its process: Dagster's record of a run outlives it, and is not
corrected when a code server is killed. A run that starts a driver may take longer, if the start
may.
"""

_UNFINISHED_MAX = 500

LEFT_TO_RUN_MS = 60_000
"""How long a completed checkpoint is left for the supervising run to report. Its process may be
dead while Dagster still shows the run.
"""

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
        """Whether it should have ended long ago."""
        return self.status == "in progress" and self.created_ms_ago > self.patience_ms


def newest_run(
    instance: dg.DagsterInstance, stream: str, job: StreamJob, now_ms: int
) -> KnownRun | None:
    """Return the newest run of one of the stream's jobs, or None."""
    runs = dg.RunsFilter(tags={ACTS_ON_TAG: stream, ACT_TAG: job})
    return next(iter(_known(instance.get_run_records(runs, limit=1), now_ms)), None)


def supervising_run(instance: dg.DagsterInstance, stream: str) -> str | None:
    """Return the id of the run that owns the stream's driver, even if its process was killed.

    Or None.
    """
    running = dg.RunsFilter(
        tags={STREAM_TAG: stream},
        statuses=[dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING],
    )
    records = instance.get_run_records(running, limit=1)
    return records[0].dagster_run.run_id if records else None


def acting_run(instance: dg.DagsterInstance, stream: str, now_ms: int) -> KnownRun | None:
    """Return a run in progress that starts or ends the stream's driver without owning it, or None.

    A run that was created but never submitted does not count: it may never be.
    """
    records = _unfinished(instance, stream, STARTING_OR_ENDING)
    return next(iter(_known(records, now_ms)), None)


def earlier_move(
    instance: dg.DagsterInstance, stream: str, run_id: str, now_ms: int, patience_ms: float
) -> KnownRun | None:
    """Return a run of a user that moves the stream's driver, older than this run, or None.

    One that hangs, because it lost its process, does not count.
    """
    records = _unfinished(instance, stream, MOVES)
    ours = next((r.storage_id for r in records if r.dagster_run.run_id == run_id), None)
    older = [
        r
        for r in records
        if (ours is None or r.storage_id < ours) and RECOVERS_TAG not in r.dagster_run.tags
    ]
    known = (replace(run, patience_ms=max(HANGS_MS, patience_ms)) for run in _known(older, now_ms))
    return next((run for run in known if not run.hangs and run.run_id != run_id), None)


def stream_of(run: dg.DagsterRun) -> str | None:
    """Return the stream that a run of a shared job acts on, by its tag, or else by its form.

    A run that a user has requested gets the tag when it begins.
    """
    if (tagged := run.tags.get(ACTS_ON_TAG)) is not None:
        return tagged
    found: Any = run.run_config
    for key in ("ops", run.job_name, "config", STREAM_FIELD):
        found = cast("Mapping[str, Any]", found).get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, str) else None


def _unfinished(
    instance: dg.DagsterInstance, stream: str, jobs: Sequence[StreamJob]
) -> list[dg.RunRecord]:
    """Return submitted runs of these jobs for the stream that own no driver, newest first."""
    runs = dg.RunsFilter(tags={ACT_TAG: list(jobs)}, statuses=_SUBMITTED)
    return [
        record
        for record in instance.get_run_records(runs, limit=_UNFINISHED_MAX)
        if stream_of(record.dagster_run) == stream and STREAM_TAG not in record.dagster_run.tags
    ]


def was_terminated(instance: dg.DagsterInstance, stream: str, run_id: str | None) -> bool:
    """Return whether this run owned the stream's driver, and was terminated by a user."""
    run = None if run_id is None else instance.get_run_by_id(run_id)
    if run is None or run.tags.get(STREAM_TAG) != stream:
        return False
    return run.status in (dg.DagsterRunStatus.CANCELED, dg.DagsterRunStatus.CANCELING)


@dataclass(frozen=True, slots=True)
class Death:
    """The death of a generation that a recovery run answers, as written in its tags."""

    stream: str
    generation: int
    claimed_at_ms: int

    @property
    def tags(self) -> dict[str, str]:
        """The tags of the recovery run."""
        return {
            ACTS_ON_TAG: self.stream,
            RECOVERS_TAG: str(self.generation),
            RECOVERS_CLAIM_TAG: str(self.claimed_at_ms),
        }


def recoveries_of(instance: dg.DagsterInstance, death: Death, now_ms: int) -> list[KnownRun]:
    """Return the recovery runs for this death, oldest first, without re-executions by users."""
    runs = dg.RunsFilter(tags=death.tags)
    records = instance.get_run_records(runs, limit=100, ascending=True)
    return _known([r for r in records if _AGAIN_TAG not in r.dagster_run.tags], now_ms)


def recoveries_since(
    instance: dg.DagsterInstance, stream: str, age_ms: int, now_ms: int
) -> list[KnownRun]:
    """Return the stream's recovery runs of the last ``age_ms``, newest first."""
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
