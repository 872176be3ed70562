"""Dagster's records of checkpoints that were read whole: the check ``manifest_integrity``.

A verdict applies to the manifest with one digest, so verdicts about another store, or an earlier
checkpoint with the same number, do not count.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import dagster as dg
from dagster._core.storage.asset_check_execution_record import (
    COMPLETED_ASSET_CHECK_EXECUTION_RECORD_STATUSES,
    AssetCheckExecutionRecord,
)

from laminar_core.resources.names import check_key

MANIFEST_SHA256 = "manifest_sha256"
DAMAGED = "damaged"
"""Metadata key of a verdict: the manifest, and each damaged file with its problem."""

_RECORDS_MAX = 200
"""Back from the newest; what is damaged and older is found by reading it."""


@dataclass(frozen=True, slots=True)
class FoundDamage:
    """Damage found by reading a checkpoint; ``paths`` are the damaged files."""

    problem: str
    paths: frozenset[str]
    run_id: str


def damage_on_record(instance: dg.DagsterInstance, stream: str) -> dict[str, FoundDamage]:
    """Return the checkpoints whose newest verdict is damage, by manifest digest."""
    verdicts: dict[str, FoundDamage | None] = {}
    for record in _newest_first(instance, stream):
        sha256 = _manifest_of(record)
        if sha256 is not None and sha256 not in verdicts:
            verdicts[sha256] = None if _passed(record) else _damage_of(record)
    return {sha256: found for sha256, found in verdicts.items() if found is not None}


def found_whole_in(
    instance: dg.DagsterInstance, stream: str, run_id: str, partition: str
) -> str | None:
    """Return the digest of the manifest that this run last found whole; None if it did not."""
    for record in _newest_first(instance, stream):
        if (record.run_id, record.partition) == (run_id, partition):
            return _manifest_of(record) if _passed(record) else None
    return None


def _newest_first(instance: dg.DagsterInstance, stream: str) -> list[AssetCheckExecutionRecord]:
    records = instance.event_log_storage.get_asset_check_execution_history(
        check_key(stream, "manifest_integrity"),
        limit=_RECORDS_MAX,
        status=COMPLETED_ASSET_CHECK_EXECUTION_RECORD_STATUSES,
    )
    return [record for record in records if record.evaluation is not None]


def _passed(record: AssetCheckExecutionRecord) -> bool:
    return record.evaluation is not None and record.evaluation.passed


def _manifest_of(record: AssetCheckExecutionRecord) -> str | None:
    """None: the store did not answer, so nothing was found out."""
    value = _metadata(record).get(MANIFEST_SHA256)
    return value.value if isinstance(value, dg.TextMetadataValue) else None


def _damage_of(record: AssetCheckExecutionRecord) -> FoundDamage:
    value = _metadata(record).get(DAMAGED)
    damaged = value.value if isinstance(value, dg.JsonMetadataValue) else None
    paths = cast("dict[str, str]", damaged) if isinstance(damaged, dict) else {}
    said = None if record.evaluation is None else record.evaluation.description
    return FoundDamage(said or "it is damaged", frozenset(paths), record.run_id)


def _metadata(record: AssetCheckExecutionRecord) -> Mapping[str, dg.MetadataValue]:
    return {} if record.evaluation is None else record.evaluation.metadata
