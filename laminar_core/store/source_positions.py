"""Where the sources of a job stand in a checkpoint."""

# pyarrow ships no types.
# pyright: standard

import pyarrow as pa

from laminar_core.records.manifest import CheckpointManifest
from laminar_core.state.splits import current
from laminar_core.store.checkpoint_store import CheckpointStore


def positions_of(
    source: str, store: CheckpointStore, manifest: CheckpointManifest
) -> pa.Table | None:
    """Return the splits of all subtasks of a source; None if the checkpoint has none.

    Raises:
        CorruptCheckpointError: they cannot be read.
        StorageUnavailable: the store did not answer.
    """
    parts = [
        current(store.parts.read_state(segment))
        for entry in manifest.subtasks
        if entry.operator_id == source
        for segment in entry.segments
    ]
    return pa.concat_tables(parts) if parts else None
