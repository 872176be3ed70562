"""Attempts at checkpoints as Dagster events, each reported once.

A completed checkpoint is one partition of the external asset ``[stream, checkpoint]``; the outcome
of another attempt is an observation of that asset. Dagster's records show whether an attempt was
reported: the data version of an event is the digest of the stored record. So a store that was begun
anew, with the same numbers, is reported anew.
"""

from collections.abc import Callable, Iterator
from typing import Any

import dagster as dg

from laminar_core.codec.digest import sha256_hex
from laminar_core.errors import ErrorCode, LaminarError
from laminar_core.protocol.types import CheckpointId
from laminar_core.records.paths import checkpoints_in
from laminar_core.resources.locked_database import until_unlocked
from laminar_core.resources.names import (
    StreamCheck,
    checkpoint_key,
    checkpoint_partitions,
    partition_of,
)
from laminar_core.sensors.facts.attempts import NEVER_COMPLETED, Attempts, Failed
from laminar_core.sensors.facts.integrity_records import DAMAGED, MANIFEST_SHA256
from laminar_core.sensors.facts.stored_checkpoints import StoredCheckpoint, read_stored
from laminar_core.sensors.observer.checkpoint_metadata import (
    DATA_VERSION_TAG,
    materialization,
    source_observation,
)
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.records import bytes_in
from laminar_core.store.verification import VerifyReport

__all__ = ["REPORTS_MAX", "StoredCheckpoint", "integrity_evaluation", "report_new_checkpoints"]

INTEGRITY_CHECK: StreamCheck = "manifest_integrity"
REPORTS_MAX = 50
"""Events at a time: a sensor has sixty seconds, and an event costs SQLite some milliseconds."""

Report = dg.AssetMaterialization | dg.AssetObservation
Emit = Callable[[Report], None]


def is_reported(instance: dg.DagsterInstance, key: dg.AssetKey, sha256: str) -> bool:
    """Return whether an event of the asset reports the record with this digest."""
    # Dagster has an index on this tag, whatever the kind of the event and its partition.
    return bool(instance.get_event_tags_for_asset(key, {DATA_VERSION_TAG: sha256}))


# --- the run that supervises a stream -------------------------------------------------------------


def report_new_checkpoints(
    instance: dg.DagsterInstance, store: CheckpointStore, emit: Emit, limit: int = REPORTS_MAX
) -> list[StoredCheckpoint]:
    """Emit an event for each completed checkpoint that Dagster has not seen, oldest first.

    Returns:
        The checkpoints reported now; call again if there are ``limit`` of them.

    Raises:
        StorageUnavailable: the store did not answer; nothing is lost, call again.
    """
    found = unreported(instance, store, limit)
    if found:
        partitions = checkpoint_partitions(store.job).name
        assert partitions is not None
        keys = [each.partition for each in found]
        until_unlocked(lambda: instance.add_dynamic_partitions(partitions, keys))
        for report in reports_of(store, found):
            emit(report)
    return found


def unreported(
    instance: dg.DagsterInstance, store: CheckpointStore, limit: int = REPORTS_MAX
) -> list[StoredCheckpoint]:
    """Return completed checkpoints without an event, oldest first.

    A checkpoint with an unreadable manifest is left out: it cannot be restored either.
    """
    key = checkpoint_key(store.job)
    found: list[StoredCheckpoint] = []
    newest = _newest_reported(instance, store)
    after_id = 0 if newest is None else newest.manifest.checkpoint_id
    same = newest is not None and newest.manifest.generation == store.claims.newest()
    for _, attempt in Attempts(store).after(after_id, is_same_generation=same):
        if isinstance(attempt, StoredCheckpoint) and not is_reported(instance, key, attempt.sha256):
            found.append(attempt)
        if len(found) == limit:
            break
    return found


def reports_of(store: CheckpointStore, found: list[StoredCheckpoint]) -> Iterator[Report]:
    """Yield one materialisation for each, and the source's position at the newest."""
    for each in found:
        yield materialization(store, each)
    if found and (observation := source_observation(store, found[-1])) is not None:
        yield observation


def _newest_reported(
    instance: dg.DagsterInstance, store: CheckpointStore
) -> StoredCheckpoint | None:
    """Numbers rise, so there is nothing new below the newest known, if it is still the same one."""
    key = checkpoint_key(store.job)
    folders = (f"{partition}/" for partition in instance.get_materialized_partitions(key))
    newest = max(checkpoints_in(folders), default=None)
    stored = None if newest is None else read_stored(store, newest)
    if isinstance(stored, StoredCheckpoint) and is_reported(instance, key, stored.sha256):
        return stored
    return None


# --- attempts that are no checkpoint --------------------------------------------------------------


def failure_observation(stream: str, failed: Failed) -> dg.AssetObservation:
    """Return the outcome of an unsuccessful attempt as an event."""
    metadata: dict[str, Any] = {
        "checkpoint_id": failed.checkpoint_id,
        "would_be_partition": partition_of(failed.checkpoint_id),
        "outcome": failed.outcome,
        "reason": failed.reason,
    }
    if (history := failed.history) is not None:
        metadata |= {
            "generation": history.generation,
            "kind": history.kind.value,
            "failed_after_ms": float(history.duration_ms),
            "triggered_at": dg.MetadataValue.timestamp(history.triggered_at_ms / 1000),
        }
    shown = failed.outcome in NEVER_COMPLETED
    return dg.AssetObservation(
        checkpoint_key(stream),
        partition=partition_of(failed.checkpoint_id) if shown else None,
        description=f"checkpoint {failed.checkpoint_id} {failed.outcome}: {failed.reason}",
        metadata=metadata,
        tags={DATA_VERSION_TAG: failed.sha256},
    )


# --- integrity ------------------------------------------------------------------------------------


def integrity(report: VerifyReport, sha256: str) -> dg.AssetCheckResult:
    """Return the verdict after reading a whole checkpoint, like ``laminar checkpoints verify``.

    ``sha256`` is the digest of its stored manifest.
    """
    damaged = [part for part in report.parts if part.problem]
    return dg.AssetCheckResult(
        passed=report.problem is None,
        severity=dg.AssetCheckSeverity.ERROR,
        description=report.problem or f"all {len(report.parts)} parts are intact",
        metadata={
            "parts": len(report.parts),
            "size_bytes": sum(part.size_bytes for part in report.parts),
            DAMAGED: dg.MetadataValue.json({part.path: part.problem for part in damaged}),
            MANIFEST_SHA256: sha256,
        },
    )


def check_integrity(store: CheckpointStore, checkpoint_id: CheckpointId) -> dg.AssetCheckResult:
    """Read a checkpoint whole; what keeps it from being read is the verdict, not an error.

    A checkpoint that retention deletes is no reason for an alert, so that is a warning.
    """
    try:
        key = store.paths.manifest(checkpoint_id)
        manifest = bytes_in(store.objects, key) or b""
        return integrity(store.verify(checkpoint_id), sha256_hex(manifest))
    except LaminarError as error:
        deleted = error.code is ErrorCode.BEING_DELETED
        severity = dg.AssetCheckSeverity.WARN if deleted else dg.AssetCheckSeverity.ERROR
        return dg.AssetCheckResult(passed=False, severity=severity, description=str(error))


def integrity_evaluation(
    store: CheckpointStore, checkpoint_id: CheckpointId
) -> dg.AssetCheckEvaluation:
    """Read a whole checkpoint; return the verdict as an event, for code outside the check."""
    return evaluation_of(store.job, checkpoint_id, check_integrity(store, checkpoint_id))


def evaluation_of(
    stream: str, checkpoint_id: int, result: dg.AssetCheckResult
) -> dg.AssetCheckEvaluation:
    """Return a verdict as an event."""
    return dg.AssetCheckEvaluation(
        checkpoint_key(stream),
        INTEGRITY_CHECK,
        passed=result.passed,
        severity=result.severity,
        metadata=result.metadata,
        description=result.description,
        partition=partition_of(checkpoint_id),
    )
