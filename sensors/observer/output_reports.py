"""Events for a running stream's output: how much of it is visible."""

from collections.abc import Sequence
from typing import Any

import dagster as dg

from laminar_core.errors import CorruptCheckpointError
from laminar_core.protocol.types import CheckpointId
from laminar_core.records.manifest import CommitRecord
from laminar_core.records.sink_outputs import Columns, SinkOutput, combined, outputs_of
from laminar_core.resources.names import asset_key
from laminar_core.sensors.facts.stored_checkpoints import StoredCheckpoint, source_positions
from laminar_core.sensors.observer.checkpoint_metadata import (
    DATA_VERSION_TAG,
    event_time_metadata,
    sink_number_metadata,
)
from laminar_core.store.checkpoint_store import CheckpointStore

_COLUMNS_MAX = 100
"""Columns of a sink that an event shows: it is kept for ever."""


def read_commit(store: CheckpointStore, checkpoint_id: CheckpointId) -> CommitRecord | None:
    """Return the record that this checkpoint's output is visible; None if there is none."""
    try:
        return store.attempts.read_commit(checkpoint_id)
    except CorruptCheckpointError:
        return None


def output_observation(
    store: CheckpointStore, stored: StoredCheckpoint
) -> dg.AssetObservation | None:
    """Return the output visible since this checkpoint's commit; None if it is not committed.

    Raises:
        StorageUnavailable: the store did not answer.
    """
    if (commit := read_commit(store, stored.manifest.checkpoint_id)) is None:
        return None
    return dg.AssetObservation(
        asset_key(store.job, "output"),
        description=f"visible up to checkpoint {stored.manifest.checkpoint_id}",
        metadata=output_metadata(store, stored, commit),
        tags={DATA_VERSION_TAG: stored.sha256},
    )


def output_metadata(
    store: CheckpointStore, stored: StoredCheckpoint, commit: CommitRecord
) -> dict[str, Any]:
    """Return what an event says of the output that is visible since this commit."""
    manifest = stored.manifest
    metadata: dict[str, Any] = {
        "committed_checkpoint": manifest.checkpoint_id,
        "generation": manifest.generation,
        "committables": sum(commit.committables.values()),
        "completed_at": dg.MetadataValue.timestamp(manifest.completed_at_ms / 1000),
        **event_time_metadata(manifest),
        **sink_number_metadata(store, manifest),
        **sink_metadata(outputs_of(manifest)),
    }
    positions = source_positions(store, manifest)
    if positions:
        metadata["rows_in"] = sum(each.rows_read for each in positions)
    return metadata


def sink_metadata(outputs: Sequence[SinkOutput]) -> dict[str, Any]:
    """Return rows, columns and places; under Dagster's own names if there is a single sink."""
    if not outputs:
        return {}
    found: dict[str, Any] = {"rows_out": sum(each.rows for each in outputs)}
    time = combined(each.time for each in outputs)
    if time.watermark_us is not None:
        found["output_watermark"] = dg.MetadataValue.timestamp(time.watermark_us / 1e6)
    for each in outputs:
        of_it = _about(each)
        if len(outputs) == 1:
            found |= {f"dagster/{name}": value for name, value in of_it.items()}
        else:
            found |= {f"{name}/{each.operator_id}": value for name, value in of_it.items()}
    return found


def _about(output: SinkOutput) -> dict[str, Any]:
    found: dict[str, Any] = {"row_count": output.rows}
    if output.uri is not None:
        found["uri"] = output.uri
    if 0 < len(output.columns) <= _COLUMNS_MAX:
        found["column_schema"] = dg.MetadataValue.table_schema(table_schema(output.columns))
    return found


def table_schema(columns: Columns) -> dg.TableSchema:
    """Return the columns of a sink as Dagster shows them, with Arrow's names of the types."""
    return dg.TableSchema([dg.TableColumn(name, kind) for name, kind in columns])
