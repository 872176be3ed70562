"""Events for checkpoints that have lost files while their job ran."""

import dagster as dg

from laminar_core.codec.digest import sha256_hex
from laminar_core.records.damage import DamageRecord
from laminar_core.resources.names import checkpoint_key, partition_of
from laminar_core.sensors.facts.lost_files import damage_in_words
from laminar_core.sensors.observer.checkpoint_metadata import DATA_VERSION_TAG

_FILES_SHOWN = 20


def damage_observation(stream: str, record: DamageRecord) -> dg.AssetObservation:
    """Return the event for the mark, on the checkpoint's own partition."""
    return dg.AssetObservation(
        checkpoint_key(stream),
        partition=partition_of(record.checkpoint_id),
        description=f"checkpoint {record.checkpoint_id} cannot be restored: the job found damage "
        f"while it ran, {damage_in_words(record)}",
        metadata={
            "checkpoint_id": record.checkpoint_id,
            "found_by_generation": record.generation,
            "found_at": dg.MetadataValue.timestamp(record.found_at_ms / 1000),
            "lost_files": record.file_count,
            "files": dg.MetadataValue.json(
                {file.path: file.problem for file in record.files[:_FILES_SHOWN]}
            ),
        },
        tags={DATA_VERSION_TAG: sha256_hex(record.to_bytes())},
    )
