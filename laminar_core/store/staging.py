"""Rows of a sink that wait in the checkpoint store until they are published.

    {job}/staged/{sink}/{generation}-{subtask}-{sequence}.{suffix}

A writer puts the rows of an interval there before it acknowledges the checkpoint, and names the
file in its committable, under ``STAGED_FILE``. The committer reads the file, publishes the rows,
and never deletes it: that is left to Laminar, which knows when no recovery can need it any more.
"""

# pyarrow ships no types, which the strict mode of this package would not accept.
# pyright: standard

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from laminar_core.codec.digest import sha256_hex
from laminar_core.errors import (
    CheckpointDeclined,
    CorruptCheckpointError,
    ErrorCode,
)
from laminar_core.objectstore.contract import ObjectStore
from laminar_core.objectstore.opening import address
from laminar_core.protocol.types import Generation
from laminar_core.records.paths import JobPaths
from laminar_core.records.record import FileRef
from laminar_core.records.staged import staged_generation
from laminar_core.store.claims import Claims
from laminar_core.store.records import create_or_confirm
from laminar_core.store.verification import read_verified

RUN_ID_DIGITS = 16


@dataclass(frozen=True, slots=True)
class StagingArea:
    """The space of one sink. Safe to use from several threads."""

    objects: ObjectStore
    paths: JobPaths
    operator_id: str

    @property
    def job(self) -> str:
        """The name of the job."""
        return self.paths.job

    def run_id(self) -> str | None:
        """Return the identity of the job's history; None: it was never started.

        A job that is removed and made anew under its name has another one, and begins again with
        checkpoint 1. So a marker in a target needs it beside the number of the checkpoint.

        Raises:
            StorageUnavailable: the store did not answer.
        """
        claimed = Claims(self.objects, self.paths)
        first = next(iter(claimed.claimed()), None)
        digest = None if first is None else claimed.sha256(first)
        return None if digest is None else digest[:RUN_ID_DIGITS]

    def put(
        self,
        generation: Generation,
        subtask_index: int,
        sequence: int,
        data: bytes | memoryview,
        suffix: str = "arrow",
    ) -> FileRef:
        """Write a file, durably. Writing the same bytes again changes nothing.

        ``sequence`` counts the files of this subtask in this generation, from 0.

        Raises:
            CheckpointDeclined: something else is there.
            StorageUnavailable: the store is full or does not answer.
        """
        key = self.paths.staged_file(self.operator_id, generation, subtask_index, sequence, suffix)
        if not create_or_confirm(self.objects, key, data):
            raise CheckpointDeclined(
                ErrorCode.OBJECT_EXISTS,
                f"{address(self.objects, key)} holds something else: two sinks have one id, or two "
                "drivers one generation",
            )
        size_bytes = memoryview(data).nbytes
        return FileRef(
            path=self.paths.relative(key), size_bytes=size_bytes, sha256=sha256_hex(data)
        )

    def open(self, staged: FileRef) -> pa.BufferReader:
        """Return the file for reading; its length and digest are verified first.

        Raises:
            CorruptCheckpointError: missing, of another sink, or not the bytes that were written.
            StorageUnavailable: the store did not answer.
        """
        self._require_own(staged)
        return pa.BufferReader(read_verified(self.objects, self.paths, staged))

    def problem(self, staged: FileRef) -> str | None:
        """Return why the file cannot be read; None: it is whole.

        Raises:
            StorageUnavailable: the store did not answer.
        """
        try:
            self.open(staged)
        except CorruptCheckpointError as error:
            return str(error)
        return None

    def delete(self, staged: Iterable[FileRef]) -> None:
        """Delete files of this sink; those that are gone already do not matter.

        Raises:
            StorageUnavailable: the store did not answer; some may be gone.
        """
        for file in staged:
            self._require_own(file)
            self.objects.delete(self.paths.absolute(file.path))

    def delete_before(self, generation: Generation) -> int:
        """Delete what generations before ``generation`` staged; return how many files that was.

        Raises:
            StorageUnavailable: the store did not answer; some may be gone.
        """
        old = [
            key
            for key in self.objects.list(self.paths.staged_by(self.operator_id))
            if (writer := staged_generation(key)) is not None and writer < generation
        ]
        for key in old:
            self.objects.delete(key)
        return len(old)

    def _require_own(self, staged: FileRef) -> None:
        key = self.paths.absolute(staged.path)
        is_own = key.startswith(self.paths.staged_by(self.operator_id))
        if not is_own or staged_generation(key) is None:
            raise CorruptCheckpointError(
                ErrorCode.MANIFEST_UNREADABLE,
                f"{staged.path} is no file that sink {self.operator_id} has staged",
            )
