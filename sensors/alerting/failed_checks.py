"""Lasting failures of checks: from the first failed evaluation until the check passes again.

All of them are one cause, independent of who evaluates the check, and how often. A check that fails
again for a new reason has a rising number; that is another cause.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import dagster as dg
from dagster._core.event_api import PartitionKeyFilter
from dagster._core.storage.asset_check_execution_record import (
    AssetCheckExecutionRecord,
    AssetCheckExecutionRecordStatus,
)

from laminar_core.resources.names import StreamCheck
from laminar_core.sensors.alerting.alerts import Incident
from laminar_core.sensors.judgements import NEWEST_MARK

ALERT_ON_WARNING: frozenset[StreamCheck] = frozenset({"files_present"})
"""Checks whose warnings raise alerts. Warnings of other checks have their own sensor."""

NO_ALERT: frozenset[StreamCheck] = frozenset({"running", "attempts"})
"""Checks that raise no alert: the recovery sensor alerts about a dead job, and ``freshness`` about
one that completes no checkpoint. Both wait to see whether the job helps itself."""

_FAILED_MAX = 20
"""Number of newest failures of one check that are read."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One evaluation of a check, and its partition if any.

    ``number`` is the number of Dagster's row.
    """

    number: int
    at: float
    partition: str | None
    is_severe: bool = False
    description: str = ""
    run_id: str | None = None
    newest_mark: int = 0
    """Rises with each new problem, if the check reports one."""


@dataclass(frozen=True, slots=True)
class Lasting:
    """A check that fails; ``passed`` is the number of the last evaluation that it passed."""

    check: dg.AssetCheckKey
    newest: Evaluation
    passed: int

    @property
    def cause(self) -> str:
        """The cause of all failures since the last pass that report the same problem."""
        which = self.newest.partition or ""
        cause = f"check:{self.check.to_user_string()}:{which}:{self.passed}"
        return f"{cause}:{self.newest.newest_mark}" if self.newest.newest_mark else cause

    @property
    def warning(self) -> str:
        """The cause remembered for a warning: the failure may still become severe."""
        return f"{self.cause}:mild"

    @property
    def reported_cause(self) -> str:
        """The cause remembered for the failure in its current state."""
        return self.cause if self.newest.is_severe else self.warning

    @property
    def is_alarming(self) -> bool:
        """Whether the failure raises an alert."""
        if self.check.name in NO_ALERT:
            return False
        return self.newest.is_severe or self.check.name in ALERT_ON_WARNING

    def incident(self) -> Incident:
        """Return the problem for an alert."""
        name, where = self.check.name, self.check.asset_key.to_user_string()
        partition = self.newest.partition
        which = f" of {partition.lstrip('0')}" if partition else ""
        return Incident(
            cause=self.reported_cause,
            anchor="check-failed",
            severity="error" if self.newest.is_severe else "warning",
            title=f"check {name}{which} failed",
            text=f"{name} of {where}{which}: {self.newest.description or 'it failed'}",
            facts={"check": name, "asset": where},
            run_id=self.newest.run_id,
        )


def lasting_failure(
    check: dg.AssetCheckKey, failed: Iterable[Evaluation], passed: Evaluation | None
) -> Lasting | None:
    """Return the failure of one check and partition since its last pass; None if there is none.

    Dagster creates a row when a check is planned, and fills it in later, so its number orders
    nothing.
    """
    since = -1.0 if passed is None else passed.at
    newest = max((e for e in failed if e.at > since), key=lambda e: e.at, default=None)
    if newest is None:
        return None
    return Lasting(check, newest, 0 if passed is None else passed.number)


def new_failures(
    lasting: Sequence[Lasting], alerted: Sequence[str] | None
) -> tuple[list[Incident], tuple[str, ...]]:
    """Return the failures that need an alert, and the causes to remember.

    ``alerted`` is None in the first tick, so no failure so far counts as new. A severe failure that
    becomes a warning is still the same one; a warning that becomes severe is new.
    """
    alarming = [each for each in lasting if each.is_alarming]
    known = {each.reported_cause for each in alarming} if alerted is None else set(alerted)
    news = [
        each.incident() for each in alarming if known.isdisjoint({each.cause, each.reported_cause})
    ]
    known |= {each.reported_cause for each in alarming}
    both = (cause for each in lasting for cause in (each.cause, each.warning))
    return news, tuple(cause for cause in both if cause in known)


def lasting_failures(
    instance: dg.DagsterInstance, checks: Iterable[dg.AssetCheckKey]
) -> Iterator[Lasting]:
    """Yield the lasting failures of the checks, according to Dagster's records."""
    for check in _suspicious(instance, list(checks)):
        by_partition: dict[str | None, list[Evaluation]] = {}
        status = AssetCheckExecutionRecordStatus.FAILED
        for each in _evaluations(instance, check, status, _FAILED_MAX):
            by_partition.setdefault(each.partition, []).append(each)
        for partition, failed in by_partition.items():
            found = lasting_failure(check, failed, _last_pass(instance, check, partition))
            if found is not None:
                yield found


def _suspicious(
    instance: dg.DagsterInstance, checks: Sequence[dg.AssetCheckKey]
) -> Sequence[dg.AssetCheckKey]:
    """Leave out, in one query, checks that never ran and those without partitions that pass now."""
    latest = instance.event_log_storage.get_latest_asset_check_execution_by_key(checks)
    found = {check: latest[check] for check in checks if check in latest}
    succeeded = AssetCheckExecutionRecordStatus.SUCCEEDED
    return [
        check
        for check, record in found.items()
        if record.partition is not None or record.status != succeeded
    ]


def _last_pass(
    instance: dg.DagsterInstance, check: dg.AssetCheckKey, partition: str | None
) -> Evaluation | None:
    status = AssetCheckExecutionRecordStatus.SUCCEEDED
    passed = _evaluations(instance, check, status, 1, PartitionKeyFilter(key=partition))
    return next(iter(passed), None)


def _evaluations(
    instance: dg.DagsterInstance,
    check: dg.AssetCheckKey,
    status: AssetCheckExecutionRecordStatus,
    limit: int,
    partition: PartitionKeyFilter | None = None,
) -> Sequence[Evaluation]:
    records = instance.event_log_storage.get_asset_check_execution_history(
        check, limit=limit, status={status}, partition_filter=partition
    )
    return [found for record in records if (found := _evaluation(record)) is not None]


def _evaluation(record: AssetCheckExecutionRecord) -> Evaluation | None:
    if record.event is None or record.event.dagster_event is None:
        return None
    data = record.event.dagster_event.asset_check_evaluation_data
    return Evaluation(
        number=record.id,
        at=record.event.timestamp,
        partition=record.partition,
        is_severe=data.severity is dg.AssetCheckSeverity.ERROR,
        description=data.description or "",
        run_id=record.run_id or None,
        newest_mark=_newest_mark(data.metadata.get(NEWEST_MARK)),
    )


def _newest_mark(figure: dg.MetadataValue | None) -> int:
    return (figure.value or 0) if isinstance(figure, dg.IntMetadataValue) else 0
