"""The index of checkpoints: one record for each 256 numbers, made from their manifests.

A list of many checkpoints needs little of each manifest. The index has it, so that a reader needs
one object instead of 256. It is derived: deleting it loses nothing, and it is made again.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Self

from pydantic import model_validator

from laminar_core.protocol.types import CheckpointId, CheckpointKind, Generation, ResolvedMode
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.records.record import (
    CheckpointNumber,
    Count,
    DurationMs,
    Many,
    Positive,
    Record,
    Sha256,
    TimeMs,
)
from laminar_core.records.retention import SealedRecord
from laminar_core.records.staged import staged_files

BLOCK = 256
"""Checkpoint numbers of one record: block 1 has the numbers 1 to 256."""


def block_of(checkpoint_id: CheckpointId) -> int:
    """Return the number of the block that a checkpoint belongs to.

    >>> block_of(CheckpointId(1)), block_of(CheckpointId(256)), block_of(CheckpointId(257))
    (1, 1, 2)
    """
    return (checkpoint_id - 1) // BLOCK + 1


@dataclass(frozen=True, slots=True)
class KnownCheckpoint:
    """The part of a manifest that lists and plans need."""

    checkpoint_id: CheckpointId
    generation: Generation
    kind: CheckpointKind
    mode: ResolvedMode
    triggered_at_ms: int
    completed_at_ms: int
    duration_ms: float
    size_bytes: int
    written_bytes: int
    inflight_bytes: int
    files: Mapping[str, int]
    """Length in bytes of each file that the manifest names, by its path."""
    staged: frozenset[str]
    """Paths of files with rows that the checkpoint commits."""

    @classmethod
    def of(cls, manifest: CheckpointManifest) -> "KnownCheckpoint":
        """Take it out of a manifest."""
        files = {file.path: file.size_bytes for file in manifest.files()}
        return cls(
            checkpoint_id=manifest.checkpoint_id,
            generation=Generation(manifest.generation),
            kind=manifest.kind,
            mode=manifest.mode,
            triggered_at_ms=manifest.triggered_at_ms,
            completed_at_ms=manifest.completed_at_ms,
            duration_ms=manifest.duration_ms,
            size_bytes=sum(files.values()),
            written_bytes=manifest.written_bytes,
            inflight_bytes=manifest.inflight_bytes,
            files=files,
            staged=frozenset(
                file.path
                for entry in manifest.subtasks
                for file in staged_files(entry.committables)
            ),
        )


class IndexedCheckpoint(Record):
    """One checkpoint. ``files`` are positions in the block's lists of paths and sizes."""

    checkpoint_id: CheckpointNumber
    manifest_bytes: Count
    generation: Positive
    kind: CheckpointKind
    mode: ResolvedMode
    triggered_at_ms: TimeMs
    completed_at_ms: TimeMs
    duration_ms: DurationMs
    written_bytes: Count
    inflight_bytes: Count
    files: Many[Count]
    staged: Many[str] = ()


class IndexBlock(SealedRecord):
    """The manifests of one block, as they were when it was written.

    ``store_sha256`` is the digest of the job's first claim. A store that was begun anew has another
    one, and its checkpoints use the same numbers.
    """

    format_version: Literal[1] = 1
    job: str
    number: Positive
    store_sha256: Sha256
    paths: Many[str]
    sizes: Many[Count]
    checkpoints: Many[IndexedCheckpoint]

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if len(self.paths) != len(self.sizes):
            raise ValueError("each path has a size")
        ids = [each.checkpoint_id for each in self.checkpoints]
        if ids != sorted(set(ids)) or any(block_of(each) != self.number for each in ids):
            raise ValueError("a block lists checkpoints of its own numbers, each once, ascending")
        count = len(self.paths)
        for each in self.checkpoints:
            if each.files and not (min(each.files) >= 0 and max(each.files) < count):
                raise ValueError(f"checkpoint {each.checkpoint_id} names a file without a path")
        return self

    @classmethod
    def of(
        cls,
        job: str,
        number: int,
        store_sha256: str,
        checkpoints: Iterable[tuple[KnownCheckpoint, int]],
    ) -> "IndexBlock":
        """Make the block of these checkpoints, each with the length of its manifest in bytes."""
        positions: dict[tuple[str, int], int] = {}
        indexed = tuple(
            _indexed(known, manifest_bytes, positions) for known, manifest_bytes in checkpoints
        )
        return cls(
            job=job,
            number=number,
            store_sha256=store_sha256,
            paths=tuple(path for path, _ in positions),
            sizes=tuple(size_bytes for _, size_bytes in positions),
            checkpoints=indexed,
        )

    def known(self, indexed: IndexedCheckpoint) -> KnownCheckpoint:
        """Return one of the checkpoints with its files."""
        paths, sizes = self.paths, self.sizes
        files = {paths[position]: sizes[position] for position in indexed.files}
        return KnownCheckpoint(
            checkpoint_id=indexed.checkpoint_id,
            generation=Generation(indexed.generation),
            kind=indexed.kind,
            mode=indexed.mode,
            triggered_at_ms=indexed.triggered_at_ms,
            completed_at_ms=indexed.completed_at_ms,
            duration_ms=indexed.duration_ms,
            size_bytes=sum(files.values()),
            written_bytes=indexed.written_bytes,
            inflight_bytes=indexed.inflight_bytes,
            files=files,
            staged=frozenset(indexed.staged),
        )


def _indexed(
    known: KnownCheckpoint, manifest_bytes: int, positions: dict[tuple[str, int], int]
) -> IndexedCheckpoint:
    files: Sequence[int] = [
        positions.setdefault(file, len(positions)) for file in known.files.items()
    ]
    return IndexedCheckpoint(
        checkpoint_id=known.checkpoint_id,
        manifest_bytes=manifest_bytes,
        generation=known.generation,
        kind=known.kind,
        mode=known.mode,
        triggered_at_ms=known.triggered_at_ms,
        completed_at_ms=known.completed_at_ms,
        duration_ms=known.duration_ms,
        written_bytes=known.written_bytes,
        inflight_bytes=known.inflight_bytes,
        files=tuple(files),
        staged=tuple(sorted(known.staged)),
    )
