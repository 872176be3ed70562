"""Reading manifests of every format that was ever written."""

from typing import Literal, Self

from pydantic import Field, JsonValue, model_validator
from pydantic_core import from_json

from laminar_core.records.manifest import (
    CheckpointManifest,
    SubtaskEntry,
    parse_record,
    unreadable,
)
from laminar_core.records.record import (
    Count,
    DurationMs,
    FileRef,
    JsonObject,
    Many,
    Record,
    why_beyond_limits,
)
from laminar_core.records.seal import unseal
from laminar_core.records.segment import SegmentRef


class SubtaskEntryV1(Record):
    """One operator subtask's part in format 1: one file, or none."""

    operator_id: str
    subtask_index: Count
    state: FileRef | None = Field(description="None: this subtask holds no rows.")
    row_count: Count
    properties: JsonObject = Field(default_factory=dict)
    committables: Many[JsonObject] = ()
    sync_ms: DurationMs
    async_ms: DurationMs

    def upgraded(self) -> SubtaskEntry:
        """The same in the newest format: one segment, all of it written for this checkpoint."""
        fields = self.model_dump(exclude={"state", "row_count"})
        if self.state is None:
            return SubtaskEntry(**fields)
        segment = SegmentRef(row_count=self.row_count, **self.state.model_dump())
        return SubtaskEntry(**fields, segments=(segment,), written_bytes=segment.size_bytes)


class _ManifestV1(Record, extra="allow"):
    """What differs in format 1; the rest is as it is now and is checked as such."""

    format_version: Literal[1]
    subtasks: Many[SubtaskEntryV1]

    @model_validator(mode="after")
    def _has_nothing_newer(self) -> Self:
        if "imported_from" in (self.model_extra or {}):
            raise ValueError("imported_from came with format 2")
        return self


def parse_manifest(data: bytes) -> CheckpointManifest:
    """Read a manifest of any released version, as if it were of the newest.

    Raises:
        CorruptCheckpointError: not the bytes that were written, no JSON, a version this Laminar
            does not know, or fields that contradict each other. Fall back to an older checkpoint.
    """
    data = unseal(data)
    version = _version_of(data)
    # JSON's true and 1.0 equal 1 in Python, but no Laminar ever wrote them.
    match version if type(version) is int else None:
        case 1:
            return parse_record(CheckpointManifest, _upgraded(parse_record(_ManifestV1, data)))
        case 2:
            return parse_record(CheckpointManifest, data)
        case _:
            raise unreadable(
                f"manifest format {version!r} is not known, this Laminar reads 1 and 2: use the "
                "version that wrote it"
            )


def _upgraded(manifest: _ManifestV1) -> bytes:
    subtasks = tuple(entry.upgraded() for entry in manifest.subtasks)
    newest = manifest.model_copy(update={"format_version": 2, "subtasks": subtasks})
    return newest.model_dump_json(warnings=False, serialize_as_any=True).encode()


def _version_of(data: bytes) -> JsonValue:
    if (problem := why_beyond_limits(data)) is not None:
        raise unreadable(f"the manifest cannot be read: {problem}")
    try:
        value = from_json(data)
    except ValueError as error:
        raise unreadable(f"the manifest is no JSON ({error})") from error
    return value.get("format_version") if isinstance(value, dict) else None
