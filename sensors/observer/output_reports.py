"""Events for a running stream's output: how much of it is visible."""

from typing import Any

import dagster as dg

from laminar_core.errors import CorruptCheckpointError
from laminar_core.resources.names import asset_key
from laminar_core.sensors.facts.stored_checkpoints import StoredCheckpoint, source_positions
from laminar_core.sensors.observer.checkpoint_metadata import (
    DATA_VERSION_TAG,
    event_time_metadata,
    sink_number_metadata,
)
from laminar_core.store.checkpoint_store import CheckpointStore

_ROWS_WRITTEN = "rows_written"
"""Property of a sink's part of a checkpoint: rows in all, with those before the checkpoint."""


def output_observation(
    store: CheckpointStore, stored: StoredCheckpoint
) -> dg.AssetObservation | None:
    """Return the output visible since this checkpoint's commit; None if it is not committed.

    Raises:
        StorageUnavailable: the store did not answer.
    """
    manifest = stored.manifest
    try:
        commit = store.attempts.read_commit(manifest.checkpoint_id)
    except CorruptCheckpointError:
        return None
    if commit is None:
        return None
    metadata: dict[str, Any] = {
        "committed_checkpoint": manifest.checkpoint_id,
        "generation": commit.generation,
        "committables": sum(commit.committables.values()),
        "completed_at": dg.MetadataValue.timestamp(manifest.completed_at_ms / 1000),
        **event_time_metadata(manifest),
        **sink_number_metadata(store, manifest),
    }
    positions = source_positions(store, manifest)
    if positions:
        metadata["rows_in"] = sum(each.rows_read for each in positions)
    written = [
        n for s in manifest.subtasks if isinstance(n := s.properties.get(_ROWS_WRITTEN), int)
    ]
    if written:
        metadata["rows_out"] = sum(written)
    return dg.AssetObservation(
        asset_key(store.job, "output"),
        description=f"visible up to checkpoint {manifest.checkpoint_id}",
        metadata=metadata,
        tags={DATA_VERSION_TAG: stored.sha256},
    )
