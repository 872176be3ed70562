"""The committer of the Parquet sink: it publishes all staged files of a checkpoint or none.

    {path}/_staging/{generation}-{subtask}-{sequence}.parquet      written, not visible
    {path}/part-{checkpoint}-{subtask}-{sequence}-g{generation}.parquet      visible
    {path}/_laminar/commits/{checkpoint}.json      the files of one committed checkpoint

I1. A file gets its final name by one rename, after it was synced: no reader sees a part of a file.
I2. The commit manifest is created after all its files have their final names: a reader of the
    manifests (``committed_files``) sees all of a checkpoint or nothing.
I3. Every name holds the generation, so no restart writes a name a second time.
I4. A file is listed once, also if several checkpoints offer it, or one offers it twice.
Checked by ``tests/connectors/test_parquet_recovery.py``; the reasons are in ADR-0009.
"""

import errno
import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq

from laminar_core.connectors.outlook import Committable, Committed, Lost, Outlook
from laminar_core.errors import (
    ConfigurationError,
    CorruptCheckpointError,
    ErrorCode,
    StorageUnavailable,
)
from laminar_core.host.durability import flush_to_disk
from laminar_core.operators.base import JsonObject
from laminar_core.protocol.types import CheckpointId, Generation

_STAGED = re.compile(r"(?P<generation>\d{10})-\d{5}-\d{6,}\.parquet")
_FINAL = re.compile(r"part-(?P<checkpoint>\d{10})-\d{5}-\d{6,}-g(?P<generation>\d+)\.parquet")
_MANIFEST = re.compile(r"(?P<checkpoint>\d{10})\.json")
_FORMAT_VERSION = 1
_REACTIONS = {
    errno.ENOSPC: (ErrorCode.STORE_FULL, "free some space"),
    errno.EDQUOT: (ErrorCode.STORE_FULL, "raise the quota"),
    errno.EROFS: (ErrorCode.STORE_READ_ONLY, "mount it writable"),
}


@dataclass(frozen=True, slots=True)
class OutputDirectory:
    """Every name below the directory of a sink, built in one place."""

    path: Path

    @property
    def staging(self) -> Path:
        """Folder of files that are not committed."""
        return self.path / "_staging"

    @property
    def commits(self) -> Path:
        """Folder of the commit manifests."""
        return self.path / "_laminar" / "commits"

    def manifest(self, checkpoint_id: int) -> Path:
        """Return the path of the commit manifest of a checkpoint."""
        return self.commits / f"{checkpoint_id:010d}.json"

    def create(self) -> None:
        """Create the directories, unless they are there."""
        self.staging.mkdir(parents=True, exist_ok=True)
        self.commits.mkdir(parents=True, exist_ok=True)

    def committed_ids(self) -> list[int]:
        """Return the checkpoints with a manifest, oldest first.

        Empty if the directory does not exist.
        """
        matches = (_MANIFEST.fullmatch(name) for name in _names(self.commits))
        return sorted(int(match["checkpoint"]) for match in matches if match)


@dataclass(frozen=True, slots=True)
class StagedOutput:
    """One committable: a synced file in the staging directory and the name it is to get.

    ``checkpoint_id`` is the first checkpoint that contains the rows. A later one commits them if
    that one was given up.
    """

    checkpoint_id: int
    staged: str
    final: str
    row_count: int
    size_bytes: int

    def to_json(self) -> JsonObject:
        """Return the form stored in a checkpoint."""
        return asdict(self)

    @classmethod
    def from_json(cls, committable: JsonObject) -> "StagedOutput":
        """Read a committable.

        Raises:
            CorruptCheckpointError: it is not one that a writer of this sink produced.
        """
        numbers = [committable.get(key) for key in ("checkpoint_id", "row_count", "size_bytes")]
        staged, final = str(committable.get("staged")), str(committable.get("final"))
        checkpoint_id, row_count, size_bytes = (n if isinstance(n, int) else -1 for n in numbers)
        # Names come out of storage and are joined to a path: nothing but the exact form will do.
        is_sound = _STAGED.fullmatch(staged) and _FINAL.fullmatch(final)
        if not is_sound or min(checkpoint_id, row_count, size_bytes) < 0:
            raise CorruptCheckpointError(
                ErrorCode.MANIFEST_UNREADABLE,
                f"not a committable of a Parquet sink: {json.dumps(committable)}",
            )
        return cls(checkpoint_id, staged, final, row_count, size_bytes)


@dataclass(frozen=True, slots=True)
class CommittedFile:
    """One line of a commit manifest."""

    name: str
    row_count: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ParquetCommitter:
    """Publishes staged files; one, in the driver, called in checkpoint order."""

    directory: OutputDirectory

    @property
    def repeat(self) -> Literal["withdrawn"]:
        """Say that output of later checkpoints is deleted before it is produced again."""
        return "withdrawn"

    def take_over(self, generation: Generation) -> None:
        """Do nothing: a directory cannot tell generations apart.

        A commit that a sleeper repeats is harmless (I3, I4). Once ``discard_uncommitted`` has
        deleted what older generations staged, it has nothing to publish.
        """

    def commit(self, checkpoint_id: CheckpointId, committables: Sequence[JsonObject]) -> None:
        """Rename the files to their final names, then create the manifest. Idempotent.

        Raises:
            StorageUnavailable: try again; the decision stands.
            CorruptCheckpointError: a file is missing, or not the one that was staged.
            ConfigurationError: the directory contains output of another run.
        """
        outputs = dict.fromkeys(StagedOutput.from_json(committable) for committable in committables)
        with storage_errors(self.directory.path):
            ours = [output for output in outputs if not self._is_in_older(output, checkpoint_id)]
            if ours and not self._is_recorded(checkpoint_id, ours):
                self.directory.create()
                for output in ours:
                    self._publish(output)
                sync_directory(self.directory.path)
                sync_directory(self.directory.staging)
                self._record(checkpoint_id, ours)

    def outlook(self, checkpoint_id: CheckpointId, committables: Sequence[JsonObject]) -> Outlook:
        """Return whether what is not committed yet is still staged, or has its final name.

        Raises:
            ConfigurationError: the directory holds output of another run.
            CorruptCheckpointError: a commit manifest cannot be read.
            StorageUnavailable: the directory cannot be read.
        """
        outputs = dict.fromkeys(StagedOutput.from_json(committable) for committable in committables)
        with storage_errors(self.directory.path):
            ours = [output for output in outputs if not self._is_in_older(output, checkpoint_id)]
            if all(self._is_listed(output, checkpoint_id) for output in ours):
                return Committed()
            lost = [output for output in ours if not self._is_there(output)]
        if not lost:
            return Committable()
        rows = sum(output.row_count for output in lost)
        return Lost(
            rows,
            f"{len(lost)} of {len(ours)} files that were staged for checkpoint {checkpoint_id} "
            f"in {self.directory.path} are gone or damaged ({rows:,} rows, first "
            f"{lost[0].staged}): put them back, or restore an older checkpoint, from which "
            "their rows are produced again",
            [output.to_json() for output in lost],
        )

    def discard_uncommitted(self, generation: Generation) -> None:
        """Delete what older generations staged. Commit again what is decided before this."""
        with storage_errors(self.directory.staging):
            for name in _names(self.directory.staging):
                match = _STAGED.fullmatch(name)
                if match and int(match["generation"]) < generation:
                    (self.directory.staging / name).unlink(missing_ok=True)

    def last_committed(self) -> CheckpointId | None:
        """Return the newest checkpoint with output here, None if there is none.

        A job that starts empty, or from an older checkpoint, would repeat that output. The
        checkpoint counts from its first rename on, before it has a manifest.
        """
        with storage_errors(self.directory.path):
            shown = (int(match["checkpoint"]) for match in self._shown())
            newest = max([*self.directory.committed_ids(), *shown], default=0)
            return CheckpointId(newest) or None

    def withdraw_after(self, checkpoint_id: CheckpointId, generation: Generation) -> None:
        """Remove the output after ``checkpoint_id``, because the job will produce it again.

        Needed when recovery fell back behind a checkpoint whose commit had begun; there may be
        files without a manifest. Manifests are removed first, newest first, so a reader by manifest
        sees the output of some checkpoint at any time. Output of ``generation`` and later ones
        stays: a suspended driver may call this after its successor has finished.
        """
        with storage_errors(self.directory.path):
            for withdrawn_id in reversed(self.directory.committed_ids()):
                if withdrawn_id > checkpoint_id and self._is_older(withdrawn_id, generation):
                    self.directory.manifest(withdrawn_id).unlink(missing_ok=True)
                    sync_directory(self.directory.commits)
            withdrawn = [
                self.directory.path / match.group()
                for match in self._shown()
                if int(match["checkpoint"]) > checkpoint_id
                and int(match["generation"]) < generation
            ]
            for file in withdrawn:
                file.unlink(missing_ok=True)
            if withdrawn:  # A file that comes back after a power failure would stay for ever.
                sync_directory(self.directory.path)

    def _shown(self) -> list[re.Match[str]]:
        """The names of all files that a reader of the plain directory sees, listed or not."""
        found = (_FINAL.fullmatch(name) for name in _names(self.directory.path))
        return [match for match in found if match]

    def _is_older(self, checkpoint_id: int, generation: Generation) -> bool:
        """Return whether the whole commit was written before ``generation``, or cannot be read."""
        try:
            files = read_manifest(self.directory.manifest(checkpoint_id))
        except CorruptCheckpointError:
            return True
        return all(_generation_of(file.name) < generation for file in files)

    def _is_in_older(self, output: StagedOutput, checkpoint_id: int) -> bool:
        """A checkpoint between the one that staged the file and this one has committed it."""
        return any(
            self._is_listed(output, older_id)
            for older_id in range(output.checkpoint_id, checkpoint_id)
        )

    def _is_recorded(self, checkpoint_id: int, outputs: Sequence[StagedOutput]) -> bool:
        """This very commit was completed before."""
        if not self.directory.manifest(checkpoint_id).exists():
            return False
        if not all(self._is_listed(output, checkpoint_id) for output in outputs):
            raise _of_another_run(self.directory.path, checkpoint_id)
        sync_directory(self.directory.commits)  # The attempt that created it may not have.
        return True

    def _is_listed(self, output: StagedOutput, checkpoint_id: int) -> bool:
        manifest = self.directory.manifest(checkpoint_id)
        listed = manifest.exists() and any(f.name == output.final for f in read_manifest(manifest))
        # A listed file has left the staging directory; one that is still there is a namesake.
        if listed and (self.directory.staging / output.staged).exists():
            raise _of_another_run(self.directory.path, checkpoint_id)
        return listed

    def _is_there(self, output: StagedOutput) -> bool:
        """Staged or published already, in its full length."""
        places = (self.directory.staging / output.staged, self.directory.path / output.final)
        return any(p.exists() and p.stat().st_size == output.size_bytes for p in places)

    def _publish(self, output: StagedOutput) -> None:
        staged = self.directory.staging / output.staged
        final = self.directory.path / output.final
        if staged.exists():
            _check_size(staged, output)
            if final.exists():
                raise _of_another_run(self.directory.path, output.checkpoint_id)
            staged.rename(final)
        elif final.exists():
            _check_size(final, output)
        else:
            raise CorruptCheckpointError(
                ErrorCode.OBJECT_MISSING,
                f"{staged} and {final} are both gone: {output.row_count} rows of checkpoint "
                f"{output.checkpoint_id} cannot be committed; recover from an older checkpoint",
            )

    def _record(self, checkpoint_id: int, outputs: Sequence[StagedOutput]) -> None:
        files = [
            asdict(CommittedFile(output.final, output.row_count, output.size_bytes))
            for output in outputs
        ]
        content = {
            "format_version": _FORMAT_VERSION,
            "checkpoint_id": checkpoint_id,
            "row_count": sum(output.row_count for output in outputs),
            "files": files,
        }
        manifest = self.directory.manifest(checkpoint_id)
        temporary = manifest.with_suffix(".tmp")
        with temporary.open("w") as file:
            json.dump(content, file, indent=1)
            file.flush()
            flush_to_disk(file.fileno())
        temporary.rename(manifest)
        sync_directory(manifest.parent)


def committed_files(path: str | os.PathLike[str]) -> list[Path]:
    """Return the files of all committed checkpoints in a sink's directory, oldest checkpoint first.

    Raises:
        ConfigurationError: no sink has written to ``path``.
        CorruptCheckpointError: a commit manifest is unreadable, or a file it lists is gone.
    """
    directory = OutputDirectory(Path(path))
    if not directory.commits.is_dir():
        raise ConfigurationError(
            ErrorCode.NO_SUCH_PATH, f"{path} is not the output directory of a Parquet sink"
        )
    with storage_errors(directory.path):
        manifests = [
            directory.manifest(checkpoint_id) for checkpoint_id in directory.committed_ids()
        ]
        files = [directory.path / f.name for manifest in manifests for f in read_manifest(manifest)]
    if missing := [file.name for file in files if not file.exists()]:
        raise CorruptCheckpointError(
            ErrorCode.OBJECT_MISSING, f"{path} lacks {missing[0]}, which was committed: restore it"
        )
    return files


def read_committed(path: str | os.PathLike[str]) -> pa.Table:
    """Return the rows of all committed checkpoints; without any, a table without columns.

    Raises:
        ConfigurationError: no sink has written to ``path``.
        CorruptCheckpointError: a manifest or a file is missing or unreadable.
    """
    files = committed_files(path)
    try:
        tables = [pq.ParquetFile(file).read() for file in files]
    except (OSError, pa.ArrowException) as error:
        raise CorruptCheckpointError(
            ErrorCode.OBJECT_MISSING, f"cannot read the committed output in {path}: {error}"
        ) from error
    return pa.concat_tables(tables) if tables else pa.table({})


def read_manifest(manifest: Path) -> list[CommittedFile]:
    """Return the files that a commit manifest lists.

    Raises:
        CorruptCheckpointError: it is not a commit manifest.
    """
    try:
        content = json.loads(manifest.read_bytes())
        version = content["format_version"]
        files = [CommittedFile(**file) for file in content["files"]]
    except (ValueError, KeyError, TypeError) as error:
        raise _unreadable(manifest, str(error)) from error
    if version != _FORMAT_VERSION:
        raise _unreadable(manifest, f"its format version is {version}, not {_FORMAT_VERSION}")
    return files


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn failures of the file system into StorageUnavailable, by cause."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        number = (error.errno or 0) if isinstance(error, OSError) else 0
        code, advice = _REACTIONS.get(number, (ErrorCode.STORE_IO, "is it there and writable?"))
        raise StorageUnavailable(code, f"{path} failed: {error}; {advice}") from error


def sync_directory(path: Path) -> None:
    """Make the names in ``path`` durable, not only the files behind them."""
    handle = os.open(path, os.O_RDONLY)
    try:
        flush_to_disk(handle)
    finally:
        os.close(handle)


def _generation_of(final: str) -> int:
    match = _FINAL.fullmatch(final)
    return 0 if match is None else int(match["generation"])


def _names(path: Path) -> list[str]:
    return [entry.name for entry in path.iterdir()] if path.is_dir() else []


def _unreadable(manifest: Path, why: str) -> CorruptCheckpointError:
    return CorruptCheckpointError(
        ErrorCode.MANIFEST_UNREADABLE, f"{manifest} is not a readable commit manifest: {why}"
    )


def _check_size(file: Path, output: StagedOutput) -> None:
    size_bytes = file.stat().st_size
    if size_bytes != output.size_bytes:
        raise CorruptCheckpointError(
            ErrorCode.LENGTH_DIFFERS,
            f"{file} has {size_bytes} bytes, {output.size_bytes} were staged: it was damaged; "
            f"recover from an older checkpoint",
        )


def _of_another_run(path: Path, checkpoint_id: int) -> ConfigurationError:
    return ConfigurationError(
        ErrorCode.INVALID_OPTION,
        f"{path} already holds checkpoint {checkpoint_id} of another run: "
        f"give this one a directory of its own, or delete that one",
    )
