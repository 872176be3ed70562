"""Check files that were written, and record which checkpoints have lost some.

Presence and length of everything that a manifest names are compared with one listing of its own
folder, and one of the shared files if it names any. After a stop or a savepoint it also names files
in the folder of the checkpoint that was restored. That costs no request per file. Digests need
the bytes, so they are left to a background that reads one file after the other (``driver.scrub``).
"""

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager

from laminar_core.errors import CorruptCheckpointError, DamagedFileError, ErrorCode
from laminar_core.objectstore.opening import ObjectStore
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.records.damage import FILES_NAMED_MAX, DamagedFile, DamageKind, DamageRecord
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.records.paths import JobPaths, checkpoints_in
from laminar_core.records.record import FileRef
from laminar_core.records.savepoint import is_own
from laminar_core.store.records import create_or_confirm, read_record
from laminar_core.store.verification import verify_file

_KINDS: Mapping[ErrorCode, DamageKind] = {
    ErrorCode.OBJECT_MISSING: "missing",
    ErrorCode.LENGTH_DIFFERS: "length",
    ErrorCode.OBJECT_TOO_LARGE: "digest",
    ErrorCode.DIGEST_DIFFERS: "digest",
    ErrorCode.NOT_A_FILE: "digest",
}


@contextmanager
def naming_damage(path: str) -> Generator[None]:
    """Name the file in the error if its bytes are not what was written.

    Bytes that are what was written, and cannot be decoded, are not damage: reading them once more
    would find them whole.

    Raises:
        DamagedFileError: the file is missing, or of another length or digest.
    """
    try:
        yield
    except CorruptCheckpointError as error:
        problem = _KINDS.get(error.code)
        if problem is None:
            raise
        raise DamagedFileError(ErrorCode.CHECKPOINT_CORRUPT, str(error), path, problem) from error


def damage_by_listing(
    objects: ObjectStore, paths: JobPaths, manifest: CheckpointManifest
) -> tuple[DamagedFile, ...]:
    """Return the files of ``manifest`` that are not there, or have another length.

    Raises:
        StorageUnavailable: the store did not answer.
    """
    files = list(manifest.files())
    folders = {paths.parts(manifest.checkpoint_id)}
    folders.update(_folder_of(paths, file.path) for file in files)
    sizes = {key: n for folder in sorted(folders) for key, n in objects.sizes(folder).items()}
    found = ((file, sizes.get(paths.absolute(file.path))) for file in files)
    return tuple(
        DamagedFile(path=file.path, problem="missing" if size is None else "length")
        for file, size in found
        if size != file.size_bytes
    )


def _folder_of(paths: JobPaths, path: str) -> str:
    """Return the folder to list for a file: the shared one, or what one checkpoint wrote."""
    if not is_own(path):
        return paths.shared
    checkpoints, number, parts, _ = path.split("/", 3)
    return paths.absolute(f"{checkpoints}/{number}/{parts}/")


def damage_by_reading(objects: ObjectStore, paths: JobPaths, file: FileRef) -> DamageKind | None:
    """Read one file; return what is wrong with it, None if it is what was written.

    Raises:
        StorageUnavailable: the store did not answer.
    """
    try:
        verify_file(objects, paths.absolute(file.path), file)
    except CorruptCheckpointError as error:
        return _KINDS.get(error.code, "digest")
    return None


def is_inherited(paths: JobPaths, manifest: CheckpointManifest, path: str) -> bool:
    """Return whether earlier checkpoints may name the file, too.

    These are shared files, and files of the checkpoint that a chain began with: after a restore a
    chain continues from the restored checkpoint, even from the folder of a full one.
    """
    own = paths.parts(manifest.checkpoint_id)
    return not paths.absolute(path).startswith(own)


class DamageLog:
    """Records of the checkpoints that are known to be damaged: one create-only record each."""

    def __init__(self, objects: ObjectStore, paths: JobPaths) -> None:
        self._objects = objects
        self._paths = paths

    def record(
        self,
        checkpoint_id: CheckpointId,
        generation: Generation,
        files: Collection[DamagedFile],
        found_at_ms: int,
    ) -> None:
        """Mark a checkpoint; what was found first stands.

        Raises:
            StorageUnavailable: the store did not answer.
        """
        record = DamageRecord(
            job=self._paths.job,
            checkpoint_id=checkpoint_id,
            generation=generation,
            found_at_ms=found_at_ms,
            file_count=len(files),
            files=tuple(files)[:FILES_NAMED_MAX],
        )
        create_or_confirm(self._objects, self._paths.damage(checkpoint_id), record.to_bytes())

    def ids(self) -> frozenset[CheckpointId]:
        """Return the checkpoints that are marked, from one listing."""
        return frozenset(checkpoints_in(self._objects.children(self._paths.damages)))

    def read(self, checkpoint_id: CheckpointId) -> DamageRecord | None:
        """Return what is known of the damage; None if nothing is.

        Raises:
            CorruptCheckpointError: the record cannot be read.
        """
        return read_record(self._objects, self._paths.damage(checkpoint_id), DamageRecord)

    def in_words(self) -> dict[CheckpointId, str]:
        """Return what is wrong with each marked checkpoint; a mark that is damaged marks, too."""
        return {checkpoint_id: self._sentence(checkpoint_id) for checkpoint_id in self.ids()}

    def _sentence(self, checkpoint_id: CheckpointId) -> str:
        try:
            record = self.read(checkpoint_id)
        except CorruptCheckpointError:
            record = None
        if record is None or not record.files:
            return "the job found it damaged while it ran"
        first = record.files[0]
        return f"the job found {first.path} damaged while it ran ({first.problem})"


def naming_any(
    paths: JobPaths, lineage: Iterable[CheckpointManifest], damage: Iterable[DamagedFile]
) -> Iterator[tuple[CheckpointManifest, tuple[DamagedFile, ...]]]:
    """Yield the checkpoints that name any of the files, each with those that it names.

    ``lineage``: a checkpoint and its ancestors, newest first. Checkpoints that follow each other
    name a shared file, so the search ends where none of them is named any more. Those that name
    files of their own only, as those for savepoints do, are stepped over.
    """
    by_path = {file.path: file for file in damage}
    for manifest in lineage:
        named = {file.path for file in manifest.files()}
        lost = tuple(file for path, file in by_path.items() if path in named)
        if lost:
            yield manifest, lost
        elif any(is_inherited(paths, manifest, path) for path in named):
            return
