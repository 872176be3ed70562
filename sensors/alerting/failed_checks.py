"""Failures of checks that last: from the first failed evaluation until the check passes again.

All of them are one cause, whoever evaluates the check, and however often.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import dagster as dg
from dagster._core.event_api import PartitionKeyFilter
from dagster._core.storage.asset_check_execution_record import (
    AssetCheckExecutionRecord,
    AssetCheckExecutionRecordStatus,
)

from sensors.alerting.alerts import Concern

_FAILED_MAX = 20
"""So many of the newest failures of one check are looked at."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Of one check, and of one partition if it has any. ``number`` is that of Dagster's row."""

    number: int
    at: float
    partition: str | None
    is_severe: bool = False
    description: str = ""
    run_id: str | None = None


@dataclass(frozen=True, slots=True)
class Lasting:
    """A check that fails; ``passed`` is the number of the last evaluation that it passed."""

    check: dg.AssetCheckKey
    newest: Evaluation
    passed: int

    @property
    def cause(self) -> str:
        """The same for all failures since."""
        which = self.newest.partition or ""
        return f"check:{self.check.to_user_string()}:{which}:{self.passed}"

    def concern(self) -> Concern:
        """What people are told."""
        name, where = self.check.name, self.check.asset_key.to_user_string()
        partition = self.newest.partition
        which = f" of {partition.lstrip('0')}" if partition else ""
        return Concern(
            cause=self.cause,
            anchor="check-failed",
            severity="error",
            title=f"check {name}{which} failed",
            text=f"{name} of {where}{which}: {self.newest.description or 'it failed'}",
            facts={"check": name, "asset": where},
            run_id=self.newest.run_id,
        )


def lasting_failure(
    check: dg.AssetCheckKey, failed: Iterable[Evaluation], passed: Evaluation | None
) -> Lasting | None:
    """What has failed of one check and partition, and has not been passed since.

    A row is made when a check is planned, and filled in later: its number orders nothing.
    """
    since = -1.0 if passed is None else passed.at
    newest = max((e for e in failed if e.at > since), key=lambda e: e.at, default=None)
    if newest is None:
        return None
    return Lasting(check, newest, 0 if passed is None else passed.number)


def untold_failures(
    lasting: Sequence[Lasting], told: Sequence[str] | None
) -> tuple[list[Concern], tuple[str, ...]]:
    """Severe failures that nobody has been told of, and the causes to remember.

    ``told`` None: nobody has looked yet, or it is forgotten; then no failure so far is news.
    A failure that is severe and then mild is still the same one.
    """
    severe = [each for each in lasting if each.newest.is_severe]
    known = {each.cause for each in severe} if told is None else set(told)
    news = [each.concern() for each in severe if each.cause not in known]
    known |= {each.cause for each in severe}
    return news, tuple(each.cause for each in lasting if each.cause in known)


def lasting_failures(
    instance: dg.DagsterInstance, checks: Iterable[dg.AssetCheckKey]
) -> Iterator[Lasting]:
    """Those of the checks, by what Dagster has recorded."""
    for check in checks:
        by_partition: dict[str | None, list[Evaluation]] = {}
        status = AssetCheckExecutionRecordStatus.FAILED
        for each in _evaluations(instance, check, status, _FAILED_MAX):
            by_partition.setdefault(each.partition, []).append(each)
        for partition, failed in by_partition.items():
            found = lasting_failure(check, failed, _last_pass(instance, check, partition))
            if found is not None:
                yield found


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
    )
