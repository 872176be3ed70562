"""Events for savepoints."""

from typing import Any

import dagster as dg

from laminar_core.errors import LaminarError
from laminar_core.objectstore.opening import open_object_store
from laminar_core.resources.names import asset_key
from laminar_core.store.savepoints import FoundSavepoint, read_savepoint

_DATA_VERSION_TAG = "dagster/data_version"


def savepoint_materialization(stream: str, uri: str) -> dg.AssetMaterialization:
    """Return the savepoint at ``uri`` as an event; its data version is the digest of its record.

    The driver wrote it, and this process may not have access: then the event has only the URI.
    """
    key = asset_key(stream, "savepoint")
    try:
        found = read_savepoint(open_object_store(uri))
    except LaminarError as error:
        metadata = {"savepoint": dg.PathMetadataValue(uri), "not_readable_from_here": str(error)}
        return dg.AssetMaterialization(key, metadata=metadata)
    return dg.AssetMaterialization(
        key, metadata=savepoint_metadata(found), tags={_DATA_VERSION_TAG: found.sha256}
    )


def savepoint_metadata(found: FoundSavepoint) -> dict[str, Any]:
    """Return origin and contents of a savepoint."""
    record, cut = found.record, found.record.cut()
    return {
        "savepoint": dg.PathMetadataValue(found.objects.uri),
        "savepoint_sha256": found.sha256,
        "checkpoint_id": record.origin.checkpoint_id,
        "of_job": record.origin.job,
        "of_generation": record.origin.generation,
        "of_store": dg.PathMetadataValue(record.origin.store),
        "canonical": record.canonical,
        "alignment": cut.mode,
        "size_bytes": cut.size_bytes,
        "inflight_bytes": cut.inflight_bytes,
        "state_rows": sum(entry.row_count for entry in cut.subtasks),
        "made_at": dg.MetadataValue.timestamp(record.created_at_ms / 1000),
        "made_by": record.actor,
        "reason": record.reason,
        "operators": _operators(found),
    }


def _operators(found: FoundSavepoint) -> dg.TableMetadataValue:
    cut = found.record.cut()
    records: list[dg.TableRecord] = []
    for operator_id, parallelism in cut.parallelism.items():
        parts = [entry for entry in cut.subtasks if entry.operator_id == operator_id]
        facts = {
            "operator": operator_id,
            "subtasks": parallelism,
            "rows": sum(part.row_count for part in parts),
            "size_bytes": sum(part.size_bytes for part in parts),
        }
        records.append(dg.TableRecord(facts))
    return dg.MetadataValue.table(records)
