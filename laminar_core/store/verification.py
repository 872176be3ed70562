"""Reading a checkpoint's files so that damage is found before anything is decoded."""

from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from laminar_core.codec.digest import sha256_hex
from laminar_core.errors import CorruptCheckpointError, ErrorCode
from laminar_core.objectstore.opening import ObjectStore, address
from laminar_core.protocol.types import CheckpointId
from laminar_core.records.channel_entries import InflightEntry
from laminar_core.records.manifest import CheckpointManifest, FileRef
from laminar_core.records.paths import JobPaths

WHOLE_BYTES_MAX = 256 << 20
"""Longer files are verified in pieces, so that a length in a manifest cannot take all memory."""

_CHANNELS_NAMED_MAX = 3
_REQUESTS = 16
"""At a time; the store may be far away."""


@dataclass(frozen=True, slots=True)
class PartReport:
    """One object of a checkpoint; ``problem`` is None if it is whole."""

    path: str
    size_bytes: int
    problem: str | None


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """The result of verifying a whole checkpoint, part by part."""

    checkpoint_id: CheckpointId
    parts: tuple[PartReport, ...]

    @property
    def problem(self) -> str | None:
        """The first problem; None: the checkpoint can be restored."""
        return next((part.problem for part in self.parts if part.problem), None)


def read_verified(objects: ObjectStore, paths: JobPaths, ref: FileRef) -> bytes:
    """Read a file and make sure that it is the one that was written.

    Raises:
        CorruptCheckpointError: missing, or of another length or digest.
    """
    return read_file(objects, paths.absolute(ref.path), ref)


def read_file(objects: ObjectStore, key: str, ref: FileRef) -> bytes:
    """Read the file at ``key`` and make sure that it is ``ref``; no more than its length is read.

    Raises:
        CorruptCheckpointError: missing, no file, or of another length or digest.
    """
    where = address(objects, key)
    with _length_in_words(objects, key, ref):
        data = objects.get(key, ref.size_bytes)
    _require(where, ref, None if data is None else len(data), None)
    assert data is not None
    _require(where, ref, len(data), sha256_hex(data))
    return data


def verify_file(objects: ObjectStore, key: str, ref: FileRef) -> None:
    """Make sure that the file at ``key`` is ``ref``, in memory that does not grow with it.

    Raises:
        CorruptCheckpointError: as ``read_file``.
    """
    if ref.size_bytes <= WHOLE_BYTES_MAX:
        read_file(objects, key, ref)
        return
    where = address(objects, key)
    _require(where, ref, objects.size(key), None)
    with _length_in_words(objects, key, ref):
        digest = objects.sha256(key, ref.size_bytes)
    _require(where, ref, None if digest is None else ref.size_bytes, digest)


def _require(where: str, ref: FileRef, size_bytes: int | None, digest: str | None) -> None:
    """Compare with ``ref`` what is known of a file; ``digest`` is None before it is."""
    if size_bytes is None:
        raise CorruptCheckpointError(ErrorCode.OBJECT_MISSING, f"{where} is missing")
    if size_bytes != ref.size_bytes:
        raise CorruptCheckpointError(
            ErrorCode.LENGTH_DIFFERS,
            f"{where} has {size_bytes} bytes instead of {ref.size_bytes}",
        )
    if digest is not None and digest != ref.sha256:
        raise CorruptCheckpointError(
            ErrorCode.DIGEST_DIFFERS,
            f"{where} is not what was written (its sha256 differs)",
        )


@contextmanager
def _length_in_words(objects: ObjectStore, key: str, ref: FileRef) -> Generator[None]:
    """Turn "too long to be read" into the length that is wrong."""
    try:
        yield
    except CorruptCheckpointError as error:
        if error.code is not ErrorCode.OBJECT_TOO_LARGE:
            raise
        _require(address(objects, key), ref, objects.size(key), None)
        raise


def verify_files(
    objects: ObjectStore, paths: JobPaths, manifest: CheckpointManifest
) -> VerifyReport:
    """Read every byte of every file that ``manifest`` lists."""
    parts = tuple(
        verify_part(objects, paths.absolute(ref.path), ref, manifest) for ref in manifest.files()
    )
    return VerifyReport(manifest.checkpoint_id, parts)


def compare_sizes(
    objects: ObjectStore, paths: JobPaths, manifest: CheckpointManifest
) -> VerifyReport:
    """Compare the length of every file that ``manifest`` lists, without reading any."""
    files = tuple(manifest.files())
    with ThreadPoolExecutor(_REQUESTS) as pool:
        lengths = list(pool.map(objects.size, [paths.absolute(ref.path) for ref in files]))
    parts = (_compare_part(ref, length) for ref, length in zip(files, lengths, strict=True))
    return VerifyReport(manifest.checkpoint_id, tuple(parts))


def _compare_part(ref: FileRef, length: int | None) -> PartReport:
    problem = None
    if length is None:
        problem = f"{ref.path} is missing"
    elif length != ref.size_bytes:
        problem = f"{ref.path} has {length} bytes instead of {ref.size_bytes}"
    return PartReport(ref.path, ref.size_bytes, problem)


def verify_part(
    objects: ObjectStore, key: str, ref: FileRef, manifest: CheckpointManifest
) -> PartReport:
    """Read a file of ``manifest``, which is at ``key``, and report whether it is whole.

    Of a file with in-flight data of many channels, the report names those that are damaged.
    """
    try:
        verify_file(objects, key, ref)
    except CorruptCheckpointError as error:
        entries = [entry for entry in manifest.inflight_data if entry.path == ref.path]
        damaged = _damaged_channels(objects, key, ref, entries)
        return PartReport(ref.path, ref.size_bytes, f"{error}{damaged}")
    return PartReport(ref.path, ref.size_bytes, None)


def _damaged_channels(
    objects: ObjectStore, key: str, ref: FileRef, entries: Sequence[InflightEntry]
) -> str:
    """Name the channels whose part of a damaged file is not what was written."""
    if len(entries) <= 1 or ref.size_bytes > WHOLE_BYTES_MAX:
        return ""
    try:
        data = objects.get(key, WHOLE_BYTES_MAX)
    except CorruptCheckpointError:
        return ""
    if data is None:
        return ""
    damaged = [e.channel for e in entries if sha256_hex(data[e.offset : e.end]) != e.sha256]
    more = len(damaged) - _CHANNELS_NAMED_MAX
    named = [*damaged[:_CHANNELS_NAMED_MAX], *([f"{more} more"] if more > 0 else [])]
    return f"; {len(damaged)} of its {len(entries)} parts are damaged: {'; '.join(named)}"
