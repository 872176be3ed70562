"""The status of retention for display: past runs, and the current plan."""

from dataclasses import dataclass
from typing import Literal

from laminar_core.errors import CorruptCheckpointError
from laminar_core.records.retention import (
    QuarantineRecord,
    RetentionDecision,
    RetentionPlanRecord,
    RetentionResult,
)
from laminar_core.records.retention_paths import RetentionPaths
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.pins import Pins, StoredPin
from laminar_core.store.retention_log import RetentionLog

PlanState = Literal["undecided", "given-up", "unfinished", "done", "unreadable"]


@dataclass(frozen=True, slots=True)
class PlanStatus:
    """One plan. Unreadable records are None, and ``problem`` has the reason."""

    number: int
    state: PlanState
    record: RetentionPlanRecord | None
    decision: RetentionDecision | None = None
    result: RetentionResult | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class RetentionStatus:
    """Plans by number, files in quarantine by path, pins by checkpoint."""

    plans: tuple[PlanStatus, ...]
    quarantine: tuple[QuarantineRecord, ...]
    pins: tuple[StoredPin, ...]


def read_status(store: CheckpointStore) -> RetentionStatus:
    """Read everything that retention has written down.

    Raises:
        StorageUnavailable: the store did not answer.
    """
    log = RetentionLog(store.objects, store.paths)
    return RetentionStatus(
        plans=tuple(_plan(log, n) for n, steps in log.steps().items() if "plan" in steps),
        quarantine=tuple(_quarantine(log, store)),
        pins=tuple(Pins(store).list()),
    )


def _plan(log: RetentionLog, number: int) -> PlanStatus:
    try:
        record = log.read_plan(number)
        decision = log.read(RetentionDecision, log.paths.decision(number))
        result = log.read_result(number)
    except CorruptCheckpointError as error:
        return PlanStatus(number, "unreadable", None, problem=str(error))
    state: PlanState = "unfinished"
    if result is not None:
        state = "done"
    elif decision is None:
        state = "undecided"
    elif decision.verdict == "abandon":
        state = "given-up"
    return PlanStatus(number, state, record, decision, result)


def _quarantine(log: RetentionLog, store: CheckpointStore) -> list[QuarantineRecord]:
    paths = RetentionPaths(store.paths)
    found: list[QuarantineRecord] = []
    for key in store.objects.list(paths.quarantine):
        try:
            record = log.read(QuarantineRecord, key)
        except CorruptCheckpointError as error:
            path = paths.path_in_quarantine(key)
            record = QuarantineRecord(
                path=path, reason=str(error), size_bytes=0, plan=1, first_seen_at_ms=0
            )
        if record is not None:
            found.append(record)
    return found
