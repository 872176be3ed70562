"""Reading a checkpoint's files so that damage is found before anything is decoded."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from laminar_core.checkpoint.types import CheckpointId
from laminar_core.errors import CorruptCheckpointError, ErrorCode
from laminar_core.state.arrow_codec import sha256_hex
from laminar_core.state.manifest import CheckpointManifest, FileRef
from laminar_core.state.paths import JobPaths
from laminar_core.storage.object_store import ObjectStore, address

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
    """What reading a whole checkpoint found, part by part."""

    checkpoint_id: CheckpointId
    parts: tuple[PartReport, ...]

    @property
    def problem(self) -> str | None:
        """The first problem, or None: the checkpoint can be restored."""
        return next((part.problem for part in self.parts if part.problem), None)


def read_verified(objects: ObjectStore, paths: JobPaths, ref: FileRef) -> bytes:
    """Read a file and make sure that it is the one that was written.

    Raises:
        CorruptCheckpointError: missing, or of another length or digest.
    """
    key = paths.absolute(ref.path)
    return checked(objects.get(key), ref, address(objects, key))


def checked(data: bytes | None, ref: FileRef, where: str) -> bytes:
    """What was read for ``ref``, if it is what was written; ``where`` is for the message.

    Raises:
        CorruptCheckpointError: missing, or of another length or digest.
    """
    if data is None:
        raise CorruptCheckpointError(ErrorCode.OBJECT_MISSING, f"{where} is missing")
    if len(data) != ref.size_bytes:
        raise CorruptCheckpointError(
            ErrorCode.LENGTH_DIFFERS,
            f"{where} has {len(data)} bytes instead of {ref.size_bytes}",
        )
    if sha256_hex(data) != ref.sha256:
        raise CorruptCheckpointError(
            ErrorCode.DIGEST_DIFFERS,
            f"{where} is not what was written (its sha256 differs)",
        )
    return data


def verify_files(
    objects: ObjectStore, paths: JobPaths, manifest: CheckpointManifest
) -> VerifyReport:
    """Read every byte of every file that ``manifest`` lists."""
    parts = tuple(_verify_part(objects, paths, ref) for ref in manifest.files())
    return VerifyReport(CheckpointId(manifest.checkpoint_id), parts)


def compare_sizes(
    objects: ObjectStore, paths: JobPaths, manifest: CheckpointManifest
) -> VerifyReport:
    """Ask for the length of every file that ``manifest`` lists, and read none of them."""
    files = tuple(manifest.files())
    with ThreadPoolExecutor(_REQUESTS) as pool:
        lengths = list(pool.map(objects.size, [paths.absolute(ref.path) for ref in files]))
    parts = (_compare_part(ref, length) for ref, length in zip(files, lengths, strict=True))
    return VerifyReport(CheckpointId(manifest.checkpoint_id), tuple(parts))


def _compare_part(ref: FileRef, length: int | None) -> PartReport:
    problem = None
    if length is None:
        problem = f"{ref.path} is missing"
    elif length != ref.size_bytes:
        problem = f"{ref.path} has {length} bytes instead of {ref.size_bytes}"
    return PartReport(ref.path, ref.size_bytes, problem)


def _verify_part(objects: ObjectStore, paths: JobPaths, ref: FileRef) -> PartReport:
    try:
        read_verified(objects, paths, ref)
    except CorruptCheckpointError as error:
        return PartReport(ref.path, ref.size_bytes, str(error))
    return PartReport(ref.path, ref.size_bytes, None)
