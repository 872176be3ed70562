"""A completed checkpoint, and related records of the store."""

from dataclasses import dataclass

import pyarrow as pa

from laminar_core.codec.digest import sha256_hex
from laminar_core.errors import CorruptCheckpointError
from laminar_core.protocol.types import WATERMARK_END_US, CheckpointId, CheckpointKind
from laminar_core.records.commands import ControlCommand
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.records.manifest_fields import SubtaskEntry
from laminar_core.resources.names import partition_of
from laminar_core.state.segment_chain import runs_of
from laminar_core.state.splits import current, is_table_of_splits, rows_read, rows_total
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.command_log import ControlEntry, ControlLog
from laminar_core.store.records import bytes_in

_POSITIONS_BYTES_MAX = 1 << 20
_COMMANDS_MAX = 20
"""Number of newest commands that are searched for the one that requested a checkpoint."""

_ASKED_FOR = {
    CheckpointKind.MANUAL: "checkpoint",
    CheckpointKind.SAVEPOINT: "savepoint",
    CheckpointKind.STOP: "stop",
}


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A completed checkpoint on the timeline, and the digest of its manifest as it is stored."""

    manifest: CheckpointManifest
    sha256: str

    @property
    def partition(self) -> str:
        """The partition key."""
        return partition_of(self.manifest.checkpoint_id)


@dataclass(frozen=True, slots=True)
class Damaged:
    """A manifest that cannot be read: why, and the digest of what is there instead."""

    checkpoint_id: int
    problem: str
    sha256: str


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """Rows that a source has behind it at the cut; ``rows_total`` is None if it never ends."""

    operator_id: str
    rows_read: int
    rows_total: int | None


def read_stored(
    store: CheckpointStore, checkpoint_id: CheckpointId
) -> StoredCheckpoint | Damaged | None:
    """Read a manifest; None if the checkpoint never completed, or is deleted.

    Raises:
        StorageUnavailable: the store did not answer.
    """
    key = store.paths.manifest(checkpoint_id)
    try:
        manifest = store.manifests.find(checkpoint_id)
    except CorruptCheckpointError as error:
        return Damaged(checkpoint_id, str(error), sha256_hex(bytes_in(store.objects, key) or b""))
    if manifest is None:
        return None
    # What was written, byte for byte: whoever verifies compares with these.
    data = bytes_in(store.objects, key)
    return None if data is None else StoredCheckpoint(manifest, sha256_hex(data))


def source_positions(
    store: CheckpointStore, manifest: CheckpointManifest
) -> tuple[SourcePosition, ...]:
    """Return the position of each source at the cut.

    A source's state is the table of its splits. Unreadable ones are left out here, because the
    integrity check reports them.
    """
    tables: dict[str, list[pa.Table]] = {}
    for entry in manifest.subtasks:
        table = _splits_of(store, entry, manifest)
        if table is not None:
            tables.setdefault(entry.operator_id, []).append(table)
    return tuple(_position(operator_id, parts) for operator_id, parts in tables.items())


def watermark_us(manifest: CheckpointManifest) -> int | None:
    """Return the event time at the cut; None if unknown, or if all input had ended."""
    known = [a.watermark_us for a in manifest.alignment if a.watermark_us is not None]
    lowest = min(known, default=WATERMARK_END_US)
    return None if lowest >= WATERMARK_END_US else lowest


def chain_lengths(manifest: CheckpointManifest) -> dict[str, int]:
    """Return the number of segments that a restore merges, per subtask."""
    return {
        f"{entry.operator_id}[{entry.subtask_index}]": len(runs_of(entry.segments))
        for entry in manifest.subtasks
        if entry.segments
    }


def asked_by(store: CheckpointStore, manifest: CheckpointManifest) -> ControlCommand | None:
    """Return the command that requested the checkpoint; None: it was periodic, or unknown."""
    wanted = _ASKED_FOR.get(manifest.kind)
    if wanted is None:
        return None
    log = ControlLog(store.objects, store.paths)
    for number in reversed(log.numbers()[-_COMMANDS_MAX:]):
        entry = log.entry(number)
        if _asked_for(entry, wanted, manifest):
            return entry.command
    return None


def _asked_for(entry: ControlEntry, wanted: str, manifest: CheckpointManifest) -> bool:
    """A savepoint is still copied when its checkpoint is complete, and then has no result yet."""
    command = entry.command
    if command is None or command.generation != manifest.generation:
        return False
    if entry.result is not None:
        return entry.result.checkpoint_id == manifest.checkpoint_id
    return entry.begun is not None and command.action.kind == wanted


def _position(operator_id: str, parts: list[pa.Table]) -> SourcePosition:
    totals = [rows_total(part) for part in parts]
    known = [total for total in totals if total is not None]
    return SourcePosition(
        operator_id,
        sum(rows_read(part) for part in parts),
        sum(known) if len(known) == len(totals) else None,
    )


def _splits_of(
    store: CheckpointStore, entry: SubtaskEntry, manifest: CheckpointManifest
) -> pa.Table | None:
    is_connector = "connector" in manifest.operators_description.get(entry.operator_id, {})
    if not is_connector or len(entry.segments) != 1 or entry.size_bytes > _POSITIONS_BYTES_MAX:
        return None
    try:
        table = store.parts.read_state(entry.segments[0])
    except CorruptCheckpointError:
        return None
    return current(table) if is_table_of_splits(table.schema) else None
