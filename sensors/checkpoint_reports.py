"""Completed checkpoints as Dagster events: each one once, whoever asks and however often.

A checkpoint is one partition of the external asset ``[stream, checkpoint]``. Whether it has been
reported is read from Dagster's own records, and its manifest's digest is part of them: a store that
was begun anew, with the same numbers, is reported anew.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import dagster as dg
import pyarrow as pa

from laminar_core.checkpoint.recovery import on_timeline
from laminar_core.checkpoint.types import WATERMARK_END_US, CheckpointId, Generation
from laminar_core.errors import CorruptCheckpointError, LaminarError
from laminar_core.state.arrow_codec import sha256_hex
from laminar_core.state.manifest import CheckpointManifest, SubtaskEntry, fingerprint_of
from laminar_core.storage.checkpoint_store import CheckpointStore
from laminar_core.storage.object_store import address
from laminar_core.storage.verification import VerifyReport
from resources.names import checkpoint_key, checkpoint_partitions, partition_of, source_key

INTEGRITY_CHECK = "manifest_integrity"
REPORTS_MAX = 50
"""At a time: a sensor has sixty seconds, and an event costs SQLite some milliseconds."""

_POSITIONS_BYTES_MAX = 1 << 20
_DATA_VERSION_TAG = "dagster/data_version"
_CODE_VERSION_TAG = "dagster/code_version"

Report = dg.AssetMaterialization | dg.AssetObservation
Emit = Callable[[Report], None]


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A completed checkpoint on the timeline, and the digest of its manifest as it is stored."""

    manifest: CheckpointManifest
    sha256: str

    @property
    def partition(self) -> str:
        """Its partition key."""
        return partition_of(self.manifest.checkpoint_id)


def report_new_checkpoints(
    instance: dg.DagsterInstance, store: CheckpointStore, emit: Emit, limit: int = REPORTS_MAX
) -> list[StoredCheckpoint]:
    """Emit an event for each checkpoint that Dagster has not seen, oldest first.

    Returns:
        The checkpoints reported now; call again if there are ``limit`` of them.

    Raises:
        StorageUnavailable: the store did not answer; nothing is lost, call again.
    """
    found = unreported(instance, store, limit)
    if found:
        partitions = checkpoint_partitions(store.job).name
        assert partitions is not None
        instance.add_dynamic_partitions(partitions, [each.partition for each in found])
        for report in reports_of(store, found):
            emit(report)
    return found


def unreported(
    instance: dg.DagsterInstance, store: CheckpointStore, limit: int = REPORTS_MAX
) -> list[StoredCheckpoint]:
    """Completed checkpoints that no materialisation tells of, oldest first.

    One whose manifest cannot be read is left out: it cannot be restored either.
    """
    key = checkpoint_key(store.job)
    seen = instance.get_materialized_partitions(key)
    newest = max(seen, default=partition_of(0))
    stored = _read(store, int(newest)) if seen else None
    # Numbers rise, so there is nothing new below the newest known, if it is still the same one.
    is_known = stored is not None and _is_reported(instance, key, stored)
    after_id = int(newest) if is_known else 0
    bases = store.bases()
    found: list[StoredCheckpoint] = []
    for checkpoint_id in store.attempted_ids():
        each = _read(store, checkpoint_id) if checkpoint_id > after_id else None
        if each is None or not on_timeline(
            checkpoint_id, Generation(each.manifest.generation), bases
        ):
            continue
        if each.partition not in seen or not _is_reported(instance, key, each):
            found.append(each)
        if len(found) == limit:
            break
    return found


def reports_of(store: CheckpointStore, found: list[StoredCheckpoint]) -> Iterator[Report]:
    """One materialisation for each, and what the newest says of the source."""
    for each in found:
        yield materialization(store, each)
    newest = found[-1]
    positions = source_positions(store, newest.manifest)
    if positions:
        yield dg.AssetObservation(
            source_key(store.job),
            metadata={"checkpoint_id": newest.manifest.checkpoint_id, **positions},
            tags={_DATA_VERSION_TAG: newest.sha256},
        )


def materialization(store: CheckpointStore, stored: StoredCheckpoint) -> dg.AssetMaterialization:
    """What Dagster shows of a checkpoint; numbers among the metadata are plotted."""
    manifest = stored.manifest
    location = store.paths.manifest(CheckpointId(manifest.checkpoint_id))
    metadata: dict[str, Any] = {
        "checkpoint_id": manifest.checkpoint_id,
        "generation": manifest.generation,
        "kind": manifest.kind.value,
        "mode": manifest.mode,
        "duration_ms": float(manifest.duration_ms),
        "start_delay_ms": max((float(a.start_delay_ms) for a in manifest.alignment), default=0.0),
        "alignment_ms": max((float(a.alignment_ms) for a in manifest.alignment), default=0.0),
        "sync_ms": max((float(s.sync_ms) for s in manifest.subtasks), default=0.0),
        "async_ms": max((float(s.async_ms) for s in manifest.subtasks), default=0.0),
        "size_bytes": manifest.size_bytes,
        "written_bytes": manifest.written_bytes,
        "inflight_bytes": manifest.inflight_bytes,
        "inflight_rows": manifest.inflight_rows,
        "state_rows": sum(s.row_count for s in manifest.subtasks),
        "completed_at": dg.MetadataValue.timestamp(manifest.completed_at_ms / 1000),
        "manifest": dg.MetadataValue.path(address(store.objects, location)),
        "manifest_sha256": stored.sha256,
        "operators": _operators_table(manifest),
        **source_positions(store, manifest),
    }
    watermarks = [a.watermark_us for a in manifest.alignment if a.watermark_us is not None]
    if watermarks and min(watermarks) < WATERMARK_END_US:
        metadata["watermark"] = dg.MetadataValue.timestamp(min(watermarks) / 1e6)
    return dg.AssetMaterialization(
        checkpoint_key(store.job),
        partition=stored.partition,
        metadata=metadata,
        tags={
            _DATA_VERSION_TAG: stored.sha256,
            _CODE_VERSION_TAG: fingerprint_of(dict(manifest.fingerprint))[:12],
        },
    )


def source_positions(store: CheckpointStore, manifest: CheckpointManifest) -> dict[str, int]:
    """Rows that each source has behind it at the cut: ``rows_read/{operator}``.

    A source's state is the table of its splits; what cannot be read is left out here, because the
    integrity check is there to say so.
    """
    rows: dict[str, int] = {}
    for entry in manifest.subtasks:
        table = _splits_of(store, entry, manifest)
        if table is not None:
            name = f"rows_read/{entry.operator_id}"
            rows[name] = rows.get(name, 0) + sum(table.column("next_row").to_pylist())
    return rows


def integrity(report: VerifyReport) -> dg.AssetCheckResult:
    """The verdict of reading a whole checkpoint, as ``laminar checkpoints verify`` has it."""
    damaged = [part for part in report.parts if part.problem]
    return dg.AssetCheckResult(
        passed=report.problem is None,
        severity=dg.AssetCheckSeverity.ERROR,
        description=report.problem or f"all {len(report.parts)} parts are whole",
        metadata={
            "parts": len(report.parts),
            "size_bytes": sum(part.size_bytes for part in report.parts),
            "damaged": dg.MetadataValue.json({part.path: part.problem for part in damaged}),
        },
    )


def check_integrity(store: CheckpointStore, checkpoint_id: int) -> dg.AssetCheckResult:
    """Read a checkpoint whole; what keeps it from being read is the verdict, not an error."""
    try:
        return integrity(store.verify(CheckpointId(checkpoint_id)))
    except LaminarError as error:
        return dg.AssetCheckResult(passed=False, description=str(error))


def integrity_evaluation(store: CheckpointStore, checkpoint_id: int) -> dg.AssetCheckEvaluation:
    """The same as an event, for whoever is not the check itself."""
    result = check_integrity(store, checkpoint_id)
    return dg.AssetCheckEvaluation(
        checkpoint_key(store.job),
        INTEGRITY_CHECK,
        passed=result.passed,
        metadata=result.metadata,
        description=result.description,
        partition=partition_of(checkpoint_id),
    )


def _read(store: CheckpointStore, checkpoint_id: int) -> StoredCheckpoint | None:
    """The checkpoint, or None if it never completed or its manifest is damaged."""
    known = CheckpointId(checkpoint_id)
    try:
        manifest = store.find_manifest(known)
    except CorruptCheckpointError:
        return None
    data = store.objects.get(store.paths.manifest(known))
    return (
        None if manifest is None or data is None else StoredCheckpoint(manifest, sha256_hex(data))
    )


def _is_reported(instance: dg.DagsterInstance, key: dg.AssetKey, stored: StoredCheckpoint) -> bool:
    wanted = dg.AssetRecordsFilter(asset_key=key, asset_partitions=[stored.partition])
    records = instance.fetch_materializations(wanted, limit=1).records
    reported = [record.asset_materialization for record in records]
    return any(
        each is not None and (each.tags or {}).get(_DATA_VERSION_TAG) == stored.sha256
        for each in reported
    )


def _splits_of(
    store: CheckpointStore, entry: SubtaskEntry, manifest: CheckpointManifest
) -> pa.Table | None:
    is_connector = "connector" in manifest.operators_description.get(entry.operator_id, {})
    if not is_connector or len(entry.segments) != 1 or entry.size_bytes > _POSITIONS_BYTES_MAX:
        return None
    try:
        table = store.read_state(entry.segments[0])
    except CorruptCheckpointError:
        return None
    return table if "next_row" in table.column_names else None


def _operators_table(manifest: CheckpointManifest) -> dg.TableMetadataValue:
    records: list[dg.TableRecord] = []
    for operator_id in manifest.parallelism:
        parts = [entry for entry in manifest.subtasks if entry.operator_id == operator_id]
        records.append(
            dg.TableRecord(
                {
                    "operator": operator_id,
                    "subtasks": len(parts),
                    "rows": sum(part.row_count for part in parts),
                    "size_bytes": sum(part.size_bytes for part in parts),
                    "sync_ms": max(float(part.sync_ms) for part in parts),
                    "async_ms": max(float(part.async_ms) for part in parts),
                }
            )
        )
    return dg.MetadataValue.table(records)
