"""Reading manifests of every format that was ever written."""

from collections.abc import Iterator, Mapping
from typing import Literal, Self

from pydantic import BaseModel, Field, JsonValue, ValidationError, model_validator

from laminar_core.protocol.edges import PartitioningKind
from laminar_core.records.channel_entries import EdgeEntry
from laminar_core.records.manifest import (
    CheckpointManifest,
    first_problem,
    no_such_record,
    parse_record,
    unreadable,
)
from laminar_core.records.manifest_fields import SubtaskEntry
from laminar_core.records.record import (
    Count,
    DurationMs,
    FileBytes,
    FileRef,
    JsonObject,
    Many,
    PerOperator,
    Record,
    Sha256,
    why_beyond_limits,
)
from laminar_core.records.seal import unseal
from laminar_core.records.segment import SegmentRef
from laminar_core.records.stored_manifest import StoredManifest


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
        """Return the entry in the newest format: one segment, written for this checkpoint."""
        fields = self.model_dump(exclude={"state", "row_count"})
        if self.state is None:
            return SubtaskEntry(**fields)
        segment = SegmentRef(row_count=self.row_count, **self.state.model_dump())
        return SubtaskEntry(**fields, segments=(segment,), written_bytes=segment.size_bytes)


class _ManifestV1(Record, extra="allow"):
    """The fields that differ in format 1; all others are checked as in the newest format."""

    format_version: Literal[1]
    subtasks: Many[SubtaskEntryV1]

    @model_validator(mode="after")
    def _has_nothing_newer(self) -> Self:
        if "imported_from" in (self.model_extra or {}):
            raise ValueError("imported_from came with format 2")
        return self


class _ManifestV2(Record, extra="allow"):
    """The fields that differ in format 2, which has edges only in the descriptions."""

    format_version: Literal[2]
    operators_description: PerOperator[JsonObject]

    @model_validator(mode="after")
    def _has_nothing_newer(self) -> Self:
        if "edges" in (self.model_extra or {}):
            raise ValueError("edges came with format 3")
        return self


class _ManifestV3(Record, extra="allow"):
    """The fields that differ in format 3, whose lists of splits were all pinned."""

    format_version: Literal[3]

    @model_validator(mode="after")
    def _has_nothing_newer(self) -> Self:
        for name in ("discovery", "carried"):
            if name in (self.model_extra or {}):
                raise ValueError(f"{name} came with format 4")
        return self


class _SegmentV4(Record, extra="allow"):
    """A segment in format 4, whose operators all had one table."""

    @model_validator(mode="after")
    def _has_nothing_newer(self) -> Self:
        if "table" in (self.model_extra or {}):
            raise ValueError("table came with format 5")
        return self


class _SubtaskEntryV4(Record, extra="allow"):
    """The fields of an entry that differ in format 4."""

    segments: Many[_SegmentV4] = ()

    @model_validator(mode="after")
    def _has_nothing_newer(self) -> Self:
        if "expired_us" in (self.model_extra or {}):
            raise ValueError("expired_us came with format 5")
        return self


class _ManifestV4(Record, extra="allow"):
    """The fields that differ in format 4: nothing in it is about several tables."""

    format_version: Literal[4]
    subtasks: Many[_SubtaskEntryV4]


class _InflightEntryV5(Record, extra="allow"):
    """The place of in-flight data in format 5: each queue had a file of its own."""

    path: str
    size_bytes: FileBytes
    sha256: Sha256

    @model_validator(mode="after")
    def _has_nothing_newer(self) -> Self:
        if "offset" in (self.model_extra or {}):
            raise ValueError("offset came with format 6")
        return self

    def file(self) -> FileRef:
        """Return the file, which is one part."""
        return FileRef(path=self.path, size_bytes=self.size_bytes, sha256=self.sha256)


class _ManifestV5(Record, extra="allow"):
    """The fields that differ in format 5, which lists no files with several parts."""

    format_version: Literal[5]
    inflight_data: Many[_InflightEntryV5] = ()

    @model_validator(mode="after")
    def _has_nothing_newer(self) -> Self:
        if "inflight_files" in (self.model_extra or {}):
            raise ValueError("inflight_files came with format 6")
        return self


class _ManifestV6(Record, extra="allow"):
    """The fields that differ in format 6, which has an entry for each channel, as in memory."""

    format_version: Literal[6]

    @model_validator(mode="after")
    def _has_nothing_newer(self) -> Self:
        if "event_times" in (self.model_extra or {}):
            raise ValueError("event_times came with format 7")
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
    if type(version) is not int or not 1 <= version <= NEWEST:
        raise unreadable(
            f"manifest format {version!r} is not known, this Laminar reads 1 to {NEWEST}: use the "
            "version that wrote it"
        )
    if version == NEWEST:
        return _unfolded(parse_record(StoredManifest, data))
    for upgrade in _UPGRADES[version - 1 :]:
        data = upgrade(data)
    return parse_record(CheckpointManifest, data)


def _unfolded(stored: StoredManifest) -> CheckpointManifest:
    try:
        return CheckpointManifest.model_validate(stored.unfolded())
    except ValidationError as error:
        raise no_such_record(CheckpointManifest.__name__, error) from error


def _from_1(data: bytes) -> bytes:
    manifest = parse_record(_ManifestV1, data)
    subtasks = tuple(entry.upgraded() for entry in manifest.subtasks)
    return _as_json(manifest, {"format_version": 2, "subtasks": subtasks})


def _from_2(data: bytes) -> bytes:
    manifest = parse_record(_ManifestV2, data)
    edges = tuple(_described_edges(manifest.operators_description))
    return _as_json(manifest, {"format_version": 3, "edges": edges})


def _from_3(data: bytes) -> bytes:
    return _as_json(parse_record(_ManifestV3, data), {"format_version": 4})


def _from_4(data: bytes) -> bytes:
    return _as_json(parse_record(_ManifestV4, data), {"format_version": 5})


def _from_5(data: bytes) -> bytes:
    manifest = parse_record(_ManifestV5, data)
    files = tuple(entry.file() for entry in manifest.inflight_data)
    parts = tuple(entry.model_copy(update={"offset": 0}) for entry in manifest.inflight_data)
    changes = {"format_version": 6, "inflight_files": files, "inflight_data": parts}
    return _as_json(manifest, changes)


def _from_6(data: bytes) -> bytes:
    return _as_json(parse_record(_ManifestV6, data), {"format_version": NEWEST})


_UPGRADES = (_from_1, _from_2, _from_3, _from_4, _from_5, _from_6)
"""The first one makes format 2 of format 1, and so on; the last one, the newest in memory."""
NEWEST = len(_UPGRADES) + 1


def _as_json(manifest: Record, changes: Mapping[str, object]) -> bytes:
    changed = manifest.model_copy(update=changes)
    return changed.model_dump_json(warnings=False, serialize_as_any=True).encode()


# --- edges, as formats 1 and 2 describe them -----------------------------------------------------

_WORDS = {
    "forward": PartitioningKind.FORWARD,
    "rebalanced": PartitioningKind.REBALANCE,
    "broadcast": PartitioningKind.BROADCAST,
}
_KEYED = "keyed by "
_FEEDBACK = ", feedback"


def _described_edges(descriptions: Mapping[str, JsonObject]) -> Iterator[EdgeEntry]:
    """Read the edges from ``inputs`` in the description of the first operator of each vertex.

    An input is described as ``in, keyed by merchant, region`` or ``again, forward, feedback``. For
    an edge inside a loop the description is complete only if it is the back edge to the head.
    Unknown descriptions are left out.
    """
    for operator_id, description in descriptions.items():
        inputs = description.get("inputs")
        for index, text in enumerate(inputs if isinstance(inputs, list) else ()):
            upstream, _, how = str(text).partition(", ")
            # Of keys, the last may be called feedback; only a loop has an edge back.
            feedback = description.get("kind") == "loop" and how.endswith(_FEEDBACK)
            partitioning = _described_partitioning(how.removesuffix(_FEEDBACK) if feedback else how)
            if partitioning is not None:
                yield EdgeEntry(
                    upstream=upstream,
                    downstream=operator_id,
                    input_index=index,
                    feedback=feedback,
                    partitioning=partitioning,
                    loop=operator_id if feedback else None,
                )


def _described_partitioning(words: str) -> PartitioningKind | None:
    return PartitioningKind.KEYED if words.startswith(_KEYED) else _WORDS.get(words)


class _AnyVersion(BaseModel):
    """The version, and nothing else, so that the rest is skipped."""

    format_version: JsonValue = None


def _version_of(data: bytes) -> JsonValue:
    if (problem := why_beyond_limits(data)) is not None:
        raise unreadable(f"the manifest cannot be read: {problem}")
    try:
        return _AnyVersion.model_validate_json(data).format_version
    except ValidationError as error:
        raise unreadable(f"the manifest is no JSON object ({first_problem(error)})") from error
