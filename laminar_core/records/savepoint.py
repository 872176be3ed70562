"""A savepoint: a checkpoint that belongs to a user, in a directory of its own.

    {savepoint}/savepoint.json            written last: without it there is none
    {savepoint}/operators/{operator-id}/state_{subtask}.seg
    {savepoint}/operators/inflight_{worker}.buf

Names are relative to the directory, so it can be copied anywhere. A canonical one holds the state
of each subtask in one table, uncompressed and sorted: the same state gives the same bytes, whatever
kept it while the job ran.
"""

import json
import re
from collections.abc import Iterable
from typing import Literal

from pydantic import Field

from laminar_core.errors import CorruptCheckpointError
from laminar_core.records.channel_entries import InflightEntry
from laminar_core.records.manifest import CheckpointManifest, parse_record, unreadable
from laminar_core.records.manifest_fields import SubtaskEntry
from laminar_core.records.manifest_versions import parse_manifest
from laminar_core.records.record import (
    CheckpointNumber,
    FileRef,
    JsonObject,
    Positive,
    Prose,
    Record,
    Sha256,
    TimeMs,
)
from laminar_core.records.seal import seal, unseal

RECORD = "savepoint.json"
MARKER = "deletion.json"
"""There while a job that claimed the savepoint deletes it."""

_FOLDER = re.compile(r"checkpoints/[0-9]{10}/")


class SavepointOrigin(Record):
    """The job that made the savepoint.

    The digest of its claim distinguishes jobs of the same name.
    """

    job: str
    store: str = Field(description="URI at the time.")
    generation: Positive
    checkpoint_id: CheckpointNumber
    claim_sha256: Sha256 | None = Field(description="Of the claim of that generation.")


class SavepointRecord(Record):
    """The record that makes a directory a savepoint."""

    format_version: Literal[1] = 1
    origin: SavepointOrigin
    canonical: bool
    actor: str
    reason: Prose
    created_at_ms: TimeMs
    code_version: str
    manifest: JsonObject = Field(description="Of any released format; paths: of the savepoint.")

    def to_bytes(self) -> bytes:
        """Return the record as JSON in UTF-8 that ends in its own digest."""
        return seal(super().to_bytes())

    def cut(self) -> CheckpointManifest:
        """Return the manifest of the savepoint's checkpoint.

        Raises:
            CorruptCheckpointError: it is none, or reaches out of the directory.
        """
        manifest = parse_manifest(json.dumps(self.manifest).encode())
        outside = [file.path for file in manifest.files() if not file.path.startswith("operators/")]
        if outside:
            raise unreadable(f"a savepoint has its files in operators/, not {outside[0]}")
        return manifest


class SavepointDeletion(Record):
    """A job claimed the savepoint and deletes it, now that it has a checkpoint of its own."""

    format_version: Literal[1] = 1
    job: str
    generation: Positive = Field(description="Which started from it.")
    savepoint_sha256: Sha256


def parse_savepoint(data: bytes) -> SavepointRecord:
    """Read the record of a savepoint.

    Raises:
        CorruptCheckpointError: not the bytes that were written.
    """
    plain = unseal(data)
    if plain == data:
        raise CorruptCheckpointError(
            unreadable("").code, "it is not what was written: its own digest is missing"
        )
    record = parse_record(SavepointRecord, plain)
    record.cut()
    return record


def manifest_as_json(manifest: CheckpointManifest) -> JsonObject:
    """Return the manifest as a JSON value for use in another record, without its own seal."""
    return json.loads(unseal(manifest.to_bytes()))


def outside_checkpoint(path: str) -> str:
    """Return the name, in a savepoint, of a file that only one checkpoint names.

    >>> outside_checkpoint("checkpoints/0000000012/operators/window/state_0.seg")
    'operators/window/state_0.seg'
    """
    return _FOLDER.sub("", path, count=1)


def is_own(path: str) -> bool:
    """Return whether the file is in a checkpoint's own folder, not shared with others."""
    return _FOLDER.match(path) is not None


def relocated(manifest: CheckpointManifest, folder: str) -> CheckpointManifest:
    """Return the manifest with every path moved below ``folder``.

    ``folder`` is empty or ends with ``/``.
    """

    def moved(places: Iterable[FileRef | InflightEntry]) -> tuple[FileRef | InflightEntry, ...]:
        return tuple(p.model_copy(update={"path": f"{folder}{p.path}"}) for p in places)

    def entry(subtask: SubtaskEntry) -> SubtaskEntry:
        return subtask.model_copy(update={"segments": moved(subtask.segments)})

    return manifest.model_copy(
        update={
            "subtasks": tuple(map(entry, manifest.subtasks)),
            "inflight_files": moved(manifest.inflight_files),
            "inflight_data": moved(manifest.inflight_data),
        }
    )
