"""Records of retention: plans, decisions, results, markers, quarantine, pins.

Every record ends in the digest of itself (``seal``), and a reader insists on it: a plan that is not
what was written is never carried out.
"""

from typing import Literal, TypeVar

from pydantic import Field

from laminar_core.errors import CorruptCheckpointError, ErrorCode
from laminar_core.records.actor import ActorKind, Attributed, kind_by_name
from laminar_core.records.manifest import parse_record
from laminar_core.records.record import (
    CheckpointNumber,
    Count,
    JsonObject,
    Many,
    Positive,
    Prose,
    Record,
    TimeMs,
)
from laminar_core.records.seal import seal, unseal


class SealedRecord(Record):
    """A record that ends in the digest of itself."""

    def to_bytes(self) -> bytes:
        """Return the record as sealed JSON in UTF-8; see ``seal``."""
        return seal(super().to_bytes())


class PlannedCheckpoint(Record):
    """A checkpoint to delete: its files first, then its manifest.

    Paths are below the job's folder.
    """

    checkpoint_id: CheckpointNumber
    reasons: Many[str]
    files: Many[str]
    size_bytes: Count = Field(description="Of the files.")


class PlannedFile(Record):
    """A left-over file; ``checkpoint_id`` is the attempt that left it."""

    path: str
    reason: Prose
    size_bytes: Count
    checkpoint_id: CheckpointNumber | None = None


class RetentionPlanRecord(Attributed, SealedRecord):
    """The plan of one retention run, made before anything is deleted. Create-only."""

    format_version: Literal[1, 2] = 2
    number: Positive
    job: str
    generation: Positive = Field(description="The newest when this was planned.")
    actor: str
    actor_kind: ActorKind = Field(default_factory=kind_by_name)
    reason: Prose
    planned_at_ms: TimeMs
    policy: JsonObject
    checkpoints: Many[PlannedCheckpoint] = Field(description="Oldest first.")
    orphans: Many[PlannedFile] = ()
    abandoned: Many[CheckpointNumber] = Field(
        default=(), description="Attempts that can never complete any more: tombstones."
    )
    quarantine: Many[PlannedFile] = Field(default=(), description="Seen, not deleted.")
    released: Many[str] = Field(
        default=(), description="In quarantine, and nothing is stored there any more."
    )
    forgotten: Many[CheckpointNumber] = Field(default=(), description="Their history goes.")

    @property
    def deleted_bytes(self) -> int:
        """Return the bytes that the plan frees, without manifests and records."""
        return sum(part.size_bytes for part in (*self.checkpoints, *self.orphans))


class RetentionDecision(SealedRecord):
    """Whether a plan is carried out. Create-only: the first writer decides.

    A driver that claims the job, and a process that pins a checkpoint, abandon every undecided
    plan. So a later decision cannot concern a checkpoint that they rely on.
    """

    format_version: Literal[1] = 1
    number: Positive
    verdict: Literal["apply", "abandon"]
    by: str
    reason: Prose
    checkpoint_ids: Many[CheckpointNumber] = Field(default=(), description="What goes, if it does.")


class RetentionResult(SealedRecord):
    """A plan that was carried out to its end. Create-only."""

    format_version: Literal[1] = 1
    number: Positive
    finished_at_ms: TimeMs
    deleted_checkpoints: Count
    deleted_files: Count
    deleted_bytes: Count
    quarantined_files: Count


class DeletionMarker(SealedRecord):
    """Stands beside a checkpoint from before its first file is deleted. Create-only."""

    format_version: Literal[1] = 1
    checkpoint_id: CheckpointNumber
    plan: Positive
    actor: str
    reason: Prose


class Tombstone(SealedRecord):
    """Takes the place of a manifest, so that the checkpoint can never complete. Create-only."""

    format_version: Literal[1] = 1
    tombstone: Literal[True] = True
    checkpoint_id: CheckpointNumber
    plan: Positive


TOMBSTONE_LENGTH_MAX = 512
"""A manifest is longer: it describes at least one operator."""


class QuarantineRecord(SealedRecord):
    """A file that no manifest names was seen. Create-only; deleted with the file."""

    format_version: Literal[1] = 1
    path: str
    reason: Prose
    size_bytes: Count
    plan: Positive
    first_seen_at_ms: TimeMs


class PinRecord(SealedRecord):
    """A request to keep a checkpoint: for ever (a pin), or for a time (a hold)."""

    format_version: Literal[1] = 1
    checkpoint_id: CheckpointNumber
    name: str
    actor: str
    reason: Prose
    created_at_ms: TimeMs
    expires_at_ms: TimeMs | None = None


S = TypeVar("S", bound=SealedRecord)


def parse_sealed(record_type: type[S], data: bytes) -> S:
    """Read one record.

    Raises:
        CorruptCheckpointError: not the bytes that were written.
    """
    plain = unseal(data)
    if plain == data:
        raise CorruptCheckpointError(
            ErrorCode.MANIFEST_UNREADABLE,
            f"not readable as {record_type.__name__}: its digest is missing",
        )
    return parse_record(record_type, plain)


def is_tombstone(data: bytes) -> bool:
    """Return whether these bytes are a tombstone in place of a manifest."""
    if len(data) > TOMBSTONE_LENGTH_MAX:
        return False
    try:
        parse_sealed(Tombstone, data)
    except CorruptCheckpointError:
        return False
    return True
