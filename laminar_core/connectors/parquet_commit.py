"""The committer of the Parquet sink: it publishes all staged files of a checkpoint or none.

I1. A file is shown under its final name in one step, after it was durable: no reader sees a part.
I2. The commit manifest is created after all its files have their final names: a reader of the
    manifests (``committed_files``) sees all of a checkpoint or nothing.
I3. Every name holds the generation, so no restart writes a name a second time.
I4. A file counts once, also if several checkpoints offer it, or one offers it twice: no manifest
    repeats what an older one lists, and readers pass over repetitions. There are some if a driver
    falls asleep within a commit, and its successor commits these files with a later checkpoint.
I5. Files that were taken back stay so. A withdrawal that covers them is recorded before they are
    removed, and readers pass over what it covers: a driver that slept may list them later.
Checked by ``tests/connectors/test_parquet_recovery.py``; the reasons are in ADR-0009, and for
buckets in ADR-0104.
"""

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, Self

import pyarrow as pa
import pyarrow.parquet as pq

from laminar_core.connectors.locations import location_text
from laminar_core.connectors.outlook import Committable, Committed, Lost, Outlook
from laminar_core.connectors.output_directory import OutputDirectory
from laminar_core.connectors.output_place import (
    OutputPlace,
    StagedOutput,
    Withdrawal,
    checkpoint_of,
    generation_of,
    is_withdrawn,
    of_another_run,
    storage_errors,
)
from laminar_core.connectors.output_places import output_place
from laminar_core.errors import ConfigurationError, CorruptCheckpointError, ErrorCode
from laminar_core.operators.base import JsonObject
from laminar_core.protocol.types import CheckpointId, Generation

_FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class CommittedFile:
    """One line of a commit manifest."""

    name: str
    row_count: int
    size_bytes: int

    @classmethod
    def parsed(cls, name: object, row_count: object, size_bytes: object) -> Self:
        """Return the line with these values.

        Raises:
            TypeError: one has another type.
        """
        match name, row_count, size_bytes:
            case str(), int(), int():
                return cls(name, row_count, size_bytes)
            case _:
                raise TypeError("a name is no text, or a number is none")


@dataclass(frozen=True, slots=True)
class ParquetCommitter:
    """Publishes staged files; one, in the driver, called in checkpoint order."""

    place: OutputPlace

    @property
    def repeat(self) -> Literal["withdrawn"]:
        """Say that output of later checkpoints is deleted before it is produced again."""
        return "withdrawn"

    def take_over(self, generation: Generation) -> None:
        """Do nothing: a place cannot tell generations apart.

        A commit that a sleeper repeats is harmless (I3, I4). Once ``discard_uncommitted`` has
        deleted what older generations staged, it has nothing to publish.
        """

    def commit(self, checkpoint_id: CheckpointId, committables: Sequence[JsonObject]) -> None:
        """Give the files their final names, then create the manifest. Idempotent.

        Raises:
            StorageUnavailable: try again; the decision stands.
            CorruptCheckpointError: a file is missing, not the one that was staged, or withdrawn.
            ConfigurationError: the place contains output of another run.
        """
        outputs = dict.fromkeys(StagedOutput.from_json(committable) for committable in committables)
        with storage_errors(self.place.name):
            for output in self._withdrawn(outputs):
                raise _withdrawn(output)
            while not self._committed_the_rest(checkpoint_id, outputs):
                pass  # Another driver that carries out the same decision was faster: look again.

    def _committed_the_rest(self, checkpoint_id: int, outputs: Iterable[StagedOutput]) -> bool:
        """Commit what no manifest lists; False if this one's was created in the meantime."""
        ours = [output for output in outputs if not self._is_in_older(output, checkpoint_id)]
        if not ours or self._is_recorded(checkpoint_id, ours):
            return True
        self.place.publish(ours)
        return self.place.write_manifest(checkpoint_id, _manifest_of(checkpoint_id, ours))

    def outlook(self, checkpoint_id: CheckpointId, committables: Sequence[JsonObject]) -> Outlook:
        """Return whether what is not committed yet is still staged, or has its final name.

        Raises:
            ConfigurationError: the place holds output of another run.
            CorruptCheckpointError: a commit manifest cannot be read.
            StorageUnavailable: the place cannot be read.
        """
        outputs = dict.fromkeys(StagedOutput.from_json(committable) for committable in committables)
        with storage_errors(self.place.name):
            lost = self._withdrawn(outputs)
            rest = [output for output in outputs if output not in lost]
            ours = [output for output in rest if not self._is_in_older(output, checkpoint_id)]
            if not lost and all(self._is_listed(output, checkpoint_id) for output in ours):
                return Committed()
            lost += [output for output in ours if not self.place.is_there(output)]
        if not lost:
            return Committable()
        rows = sum(output.row_count for output in lost)
        return Lost(
            rows,
            f"{len(lost)} of {len(outputs)} files that were staged for checkpoint {checkpoint_id} "
            f"in {self.place.name} are gone or damaged ({rows:,} rows, first "
            f"{lost[0].staged}): put them back, or restore an older checkpoint, from which "
            "their rows are produced again",
            [output.to_json() for output in lost],
        )

    def discard_uncommitted(self, generation: Generation) -> None:
        """Delete what older generations staged. Commit again what is decided before this."""
        with storage_errors(self.place.name):
            self.place.discard_staged(generation)

    def last_committed(self) -> CheckpointId | None:
        """Return the newest checkpoint with output here, None if there is none.

        A job that starts empty, or from an older checkpoint, would repeat that output. The
        checkpoint counts from its first file on, before it has a manifest. Output that was
        withdrawn does not count, nor does a manifest that lists nothing else.
        """
        with storage_errors(self.place.name):
            withdrawals = self.place.withdrawals()
            shown = [name for name in self.place.shown() if not is_withdrawn(name, withdrawals)]
            ids = reversed(self.place.manifest_ids())
            listed = next((at for at in ids if not self._is_all_withdrawn(at, withdrawals)), 0)
            return CheckpointId(max([listed, *map(checkpoint_of, shown)])) or None

    def withdraw_after(self, checkpoint_id: CheckpointId, generation: Generation) -> None:
        """Remove the output after ``checkpoint_id``, because the job will produce it again.

        Needed when recovery fell back behind a checkpoint whose commit had begun; there may be
        files without a manifest. The withdrawal is recorded first (I5). Then manifests are removed,
        newest first, so a reader by manifest sees the output of some checkpoint at any time. Output
        of ``generation`` and later ones stays: a suspended driver may call this after its successor
        has finished.
        """
        with storage_errors(self.place.name):
            later = [at for at in reversed(self.place.manifest_ids()) if at > checkpoint_id]
            manifests = [at for at in later if self._is_older(at, generation)]
            shown = [name for name in self.place.shown() if checkpoint_of(name) > checkpoint_id]
            files = [name for name in shown if generation_of(name) < generation]
            if last_id := max([*manifests, *map(checkpoint_of, files)], default=0):
                self._record(Withdrawal(generation, checkpoint_id, last_id))
            for withdrawn_id in manifests:
                self.place.remove_manifest(withdrawn_id)
            self.place.remove_shown(files)

    def _record(self, new: Withdrawal) -> None:
        """Make the withdrawal durable, and forget those that it implies."""
        known = self.place.withdrawals()
        # Who recorded one that is there may have died before it was durable.
        kept = next((withdrawal for withdrawal in known if withdrawal.implies(new)), new)
        self.place.add_withdrawal(kept)
        for withdrawal in known:
            if withdrawal != kept and kept.implies(withdrawal):
                self.place.remove_withdrawal(withdrawal)

    def _withdrawn(self, outputs: Iterable[StagedOutput]) -> list[StagedOutput]:
        withdrawals = self.place.withdrawals()
        return [output for output in outputs if is_withdrawn(output.final, withdrawals)]

    def _is_all_withdrawn(self, checkpoint_id: int, withdrawals: Sequence[Withdrawal]) -> bool:
        """Return whether all that a manifest lists was taken back; False if it cannot be read."""
        if not withdrawals:
            return False
        try:
            files = listed_files(self.place, checkpoint_id)
        except CorruptCheckpointError:
            return False
        return all(is_withdrawn(file.name, withdrawals) for file in files)

    def _is_older(self, checkpoint_id: int, generation: Generation) -> bool:
        """Return whether the whole commit was written before ``generation``, or cannot be read."""
        try:
            files = listed_files(self.place, checkpoint_id)
        except CorruptCheckpointError:
            return True
        return all(generation_of(file.name) < generation for file in files)

    def _is_in_older(self, output: StagedOutput, checkpoint_id: int) -> bool:
        """A checkpoint between the one that staged the file and this one has committed it."""
        return any(
            self._is_listed(output, older_id)
            for older_id in range(output.checkpoint_id, checkpoint_id)
        )

    def _is_recorded(self, checkpoint_id: int, outputs: Sequence[StagedOutput]) -> bool:
        """This very commit was completed before."""
        if self.place.manifest(checkpoint_id) is None:
            return False
        # Whoever created it may have listed files with older checkpoints just before.
        listed = (
            self._is_listed(output, checkpoint_id) or self._is_in_older(output, checkpoint_id)
            for output in outputs
        )
        if not all(listed):
            raise of_another_run(self.place.name, checkpoint_id)
        self.place.sync_manifests()  # The attempt that created it may not have.
        return True

    def _is_listed(self, output: StagedOutput, checkpoint_id: int) -> bool:
        files = listed_files(self.place, checkpoint_id)
        is_listed = any(file.name == output.final for file in files)
        # A listed file is no longer staged; one that still is, is a namesake.
        if is_listed and self.place.is_staged(output):
            raise of_another_run(self.place.name, checkpoint_id)
        return is_listed


def committed_files(path: str | os.PathLike[str]) -> list[Path]:
    """Return the files of all committed checkpoints in a sink's directory, oldest checkpoint first.

    Raises:
        ConfigurationError: no sink has written to ``path``.
        CorruptCheckpointError: a commit manifest is unreadable, or a file it lists is gone.
    """
    directory = OutputDirectory(Path(location_text(path)))
    return [directory.path / file.name for file in _committed(directory)]


def committed_objects(uri: str) -> list[str]:
    """Return ``s3://bucket/key`` of all committed files of a sink in a bucket, oldest first.

    Keys are as they are, not quoted as in a URI.

    Raises:
        ConfigurationError: no sink has written to ``uri``.
        CorruptCheckpointError: a commit manifest is unreadable, or a file it lists is gone.
        MissingExtraError: boto3 is not installed.
    """
    place = output_place(location_text(uri))
    return [place.address(file.name) for file in _committed(place)]


def read_committed(path: str | os.PathLike[str]) -> pa.Table:
    """Return the rows of all committed checkpoints; without any, a table without columns.

    ``path``: the directory of a sink, or its ``s3://bucket/prefix?region=…``. A column that files
    lack, because it came later, is null in their rows.

    Raises:
        ConfigurationError: no sink has written to ``path``, or a column has had types that do not
            fit together.
        CorruptCheckpointError: a manifest or a file is missing, unreadable or not what was written.
    """
    place = output_place(location_text(path))
    files = _committed(place)
    try:
        tables = [_rows_of(place, file) for file in files]
    except (OSError, pa.ArrowException) as error:
        raise CorruptCheckpointError(
            ErrorCode.OBJECT_MISSING, f"cannot read the committed output in {path}: {error}"
        ) from error
    try:
        return pa.concat_tables(tables, promote_options="permissive") if tables else pa.table({})
    except pa.ArrowException as error:
        raise ConfigurationError(
            ErrorCode.WRONG_SCHEMA,
            f"the files in {path} do not have the same columns ({error}): read them one by one, "
            "with committed_files or committed_objects",
        ) from error


def _rows_of(place: OutputPlace, file: CommittedFile) -> pa.Table:
    """Read one file, and compare it with what its manifest and the checksums of its pages say."""
    parquet = pq.ParquetFile(place.readable(file.name), page_checksum_verification=True)
    if parquet.metadata.num_rows != file.row_count:
        raise OSError(
            f"{file.name} has {parquet.metadata.num_rows} rows, and {file.row_count} were committed"
        )
    return parquet.read()


def listed_files(place: OutputPlace, checkpoint_id: int) -> list[CommittedFile]:
    """Return the files that a commit manifest lists; none without a manifest.

    Raises:
        CorruptCheckpointError: it is not a commit manifest.
    """
    data = place.manifest(checkpoint_id)
    if data is None:
        return []
    try:
        content = json.loads(data)
        version = content["format_version"]
        files = [CommittedFile.parsed(**file) for file in content["files"]]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _unreadable(place, checkpoint_id, str(error)) from error
    if version != _FORMAT_VERSION:
        why = f"its format version is {version}, not {_FORMAT_VERSION}"
        raise _unreadable(place, checkpoint_id, why)
    return files


def _manifest_of(checkpoint_id: int, outputs: Sequence[StagedOutput]) -> bytes:
    files = [CommittedFile(output.final, output.row_count, output.size_bytes) for output in outputs]
    content = {
        "format_version": _FORMAT_VERSION,
        "checkpoint_id": checkpoint_id,
        "row_count": sum(output.row_count for output in outputs),
        "files": [asdict(file) for file in files],
    }
    return json.dumps(content, indent=1).encode()


def _committed(place: OutputPlace) -> list[CommittedFile]:
    """Return all committed files, each once, oldest checkpoint first (I4, I5).

    Raises:
        ConfigurationError: no sink has written here.
        CorruptCheckpointError: a commit manifest is unreadable, or a file it lists is gone.
    """
    if not place.is_output():
        raise ConfigurationError(
            ErrorCode.NO_SUCH_PATH, f"{place.name} is not the output directory of a Parquet sink"
        )
    with storage_errors(place.name):
        listed = [file for at in place.manifest_ids() for file in listed_files(place, at)]
        shown = set(place.shown())
        withdrawals = place.withdrawals()  # Read last: a file that is no longer shown is covered.
    listed = [file for file in listed if not is_withdrawn(file.name, withdrawals)]
    files = list({file.name: file for file in listed}.values())
    if missing := [file.name for file in files if file.name not in shown]:
        raise CorruptCheckpointError(
            ErrorCode.OBJECT_MISSING,
            f"{place.name} lacks {missing[0]}, which was committed: restore it",
        )
    return files


def _withdrawn(output: StagedOutput) -> CorruptCheckpointError:
    return CorruptCheckpointError(
        ErrorCode.OBJECT_MISSING,
        f"{output.final} was withdrawn by a newer generation, which continued from an older "
        f"checkpoint: {output.row_count} rows of checkpoint {output.checkpoint_id} cannot be "
        "committed; recover from an older checkpoint",
    )


def _unreadable(place: OutputPlace, checkpoint_id: int, why: str) -> CorruptCheckpointError:
    manifest = place.manifest_name(checkpoint_id)
    return CorruptCheckpointError(
        ErrorCode.MANIFEST_UNREADABLE, f"{manifest} is not a readable commit manifest: {why}"
    )
