"""The fields of a manifest: those that are the same in memory and in a store."""

from typing import Annotated, Generic, Literal, TypeVar

from pydantic import Field

from laminar_core.protocol.types import CheckpointKind, ResolvedMode
from laminar_core.records.audit_ref import Audited
from laminar_core.records.channel_entries import AlignmentEntry, EdgeEntry, InflightEntry
from laminar_core.records.limits import ITEMS_MAX, RECORD_VALUES_MAX
from laminar_core.records.record import (
    CheckpointNumber,
    Count,
    DurationMs,
    FileRef,
    JsonObject,
    Many,
    Parallelism,
    PerOperator,
    Positive,
    Record,
    Sealed,
    Sha256,
    TimeMs,
    TimeUs,
)
from laminar_core.records.segment import SegmentRef, TableName, total_bytes, total_rows


class SubtaskEntry(Record):
    """One operator subtask's part of a checkpoint."""

    operator_id: str
    subtask_index: Count
    segments: Many[SegmentRef] = Field(
        default=(), description="Those of a table, merged in this order, are its rows."
    )
    expired_us: Annotated[dict[TableName, TimeUs], Field(max_length=ITEMS_MAX)] = Field(
        default_factory=dict,
        exclude_if=lambda expired: not expired,
        description="Table -> rows that expire then or before are void, though they are listed.",
    )
    written_bytes: Count = Field(
        default=0, description="State that was uploaded since the checkpoint before."
    )
    properties: JsonObject = Field(default_factory=dict)
    committables: Many[JsonObject] = ()
    sync_ms: DurationMs
    async_ms: DurationMs

    @property
    def row_count(self) -> int:
        """The rows of all segments. Overlapping segments make it larger than the number of keys."""
        return total_rows(self.segments)

    @property
    def size_bytes(self) -> int:
        """The bytes of all segments, including those that an earlier checkpoint wrote."""
        return total_bytes(self.segments)


class DiscoveryEntry(Record):
    """The state of a source's discovery when the checkpoint's trigger was sent.

    The splits themselves are in the positions of the source's subtasks.
    """

    state: JsonObject = Field(description="Opaque: the source continues its discovery from it.")
    next_split_id: Count
    complete: bool = Field(description="Nothing more will ever be found.")


class CarriedOperator(Record):
    """An operator that the pipeline no longer has, and that took no part in this checkpoint.

    Its entries are those of an earlier checkpoint. It continues with them when its source returns.
    """

    source: str = Field(description="The removed source that it is, or that it was chained to.")
    checkpoint_id: CheckpointNumber = Field(description="The last checkpoint that it took part in.")


F = TypeVar("F", bound=FileRef)


class ManifestFields(Sealed, Generic[F]):
    """All fields of a manifest; ``F`` is what it says of a file with in-flight data."""

    format_version: Literal[7] = 7
    job: str
    generation: Positive = Field(description="Fencing token of the writer.")
    checkpoint_id: CheckpointNumber
    parent_checkpoint_id: CheckpointNumber | None = Field(
        description="None: the first of a fresh start."
    )
    kind: CheckpointKind
    mode: ResolvedMode
    is_unaligned: bool = Field(default=False, description="The mode is not aligned.")
    triggered_at_ms: TimeMs
    completed_at_ms: TimeMs
    duration_ms: DurationMs
    max_parallelism: Parallelism
    parallelism: PerOperator[Parallelism] = Field(description="operator_id -> number of subtasks.")
    fingerprint: PerOperator[Sha256] = Field(
        description="operator_id -> digest of its description."
    )
    operators_description: PerOperator[JsonObject] = Field(description="Explains a mismatch.")
    edges: Many[EdgeEntry] = Field(
        default=(), description="Between vertices, in the order of the plan; inside one are none."
    )
    code_version: str
    subtasks: Many[SubtaskEntry]
    alignment: Many[AlignmentEntry] = ()
    inflight_files: Many[F] = Field(default=(), description="What workers wrote together.")
    inflight_data: Annotated[tuple[InflightEntry, ...], Field(max_length=RECORD_VALUES_MAX)] = ()
    discovery: PerOperator[DiscoveryEntry] = Field(
        default_factory=dict,
        description="Per source; a source without one was pinned, with nothing more to find.",
    )
    carried: PerOperator[CarriedOperator] = Field(
        default_factory=dict,
        exclude_if=lambda carried: not carried,
        description="Sources that were removed, and operators chained to them.",
    )
    imported_from: str | None = Field(default=None, description="URI of a savepoint.")
    audited: Audited = None
