"""Rows of one sink subtask, staged as files in the checkpoint store until they are committed.

For sinks whose target cannot hold rows back. A file holds the rows of one checkpoint interval, or a
part of them. If a file could not be written, the next snapshot writes and offers it again, so no
checkpoint completes without the rows before it.
"""

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from laminar_core.codec.arrow import with_one_dictionary
from laminar_core.connectors.outlook import Committable, Lost
from laminar_core.connectors.plain import plain_schema
from laminar_core.errors import CorruptCheckpointError, ErrorCode
from laminar_core.operators.base import JsonObject, PendingSnapshot, Snapshot, SubtaskContext
from laminar_core.protocol.types import CheckpointId
from laminar_core.records.pre_committed import ROWS
from laminar_core.records.record import FileRef
from laminar_core.records.staged import STAGED_FILE, staged_files
from laminar_core.store.staging import StagingArea

FILE_BYTES = 16 << 20
"""Rows of so many bytes are written as one file, on the data path: the sink's backpressure."""


@dataclass(frozen=True, slots=True)
class StagedPart:
    """One committable: a file of rows, and the first checkpoint that contains them."""

    checkpoint_id: CheckpointId
    rows: int
    file: FileRef

    def to_json(self) -> JsonObject:
        """Return the form stored in a checkpoint."""
        return {
            "checkpoint_id": self.checkpoint_id,
            ROWS: self.rows,
            STAGED_FILE: self.file.model_dump(),
        }

    @classmethod
    def from_json(cls, committable: JsonObject) -> "StagedPart":
        """Read a committable.

        Raises:
            CorruptCheckpointError: ``StagedRows`` did not make it.
        """
        checkpoint_id, rows = committable.get("checkpoint_id"), committable.get(ROWS)
        files = staged_files([committable])
        if not (isinstance(checkpoint_id, int) and isinstance(rows, int) and files):
            raise CorruptCheckpointError(
                ErrorCode.MANIFEST_UNREADABLE,
                f"the checkpoint's entry for this sink is not a record of staged rows: "
                f"{committable}",
            )
        return cls(CheckpointId(checkpoint_id), rows, files[0])

    def batches(self, staging: StagingArea) -> Iterator[pa.RecordBatch]:
        """Yield the rows; length and digest of the file are verified first.

        Raises:
            CorruptCheckpointError: missing or damaged.
            StorageUnavailable: the store did not answer.
        """
        with staging.open(self.file) as data, pa.ipc.open_file(data) as reader:
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)


def parts_after(
    marker: CheckpointId | None, committables: Iterable[JsonObject]
) -> list[StagedPart]:
    """Return the parts that are newer than the target's marker, in order.

    A part that two overlapping checkpoints contain is returned once.

    Raises:
        CorruptCheckpointError: ``StagedRows`` did not make them.
    """
    parts = dict.fromkeys(map(StagedPart.from_json, committables))
    newer = (part for part in parts if part.checkpoint_id > (marker or 0))
    return sorted(newer, key=lambda part: part.checkpoint_id)


def outlook_of(parts: Sequence[StagedPart], staging: StagingArea) -> Committable | Lost:
    """Return whether all files of output that is not published are whole.

    Raises:
        StorageUnavailable: the store did not answer.
    """
    problems = [(part, staging.problem(part.file)) for part in parts]
    gone = [part for part, problem in problems if problem]
    if not gone:
        return Committable()
    rows, first = sum(part.rows for part in gone), next(p for _, p in problems if p)
    why = (
        f"{len(gone)} of {len(parts)} files with rows that wait for their commit are gone or "
        f"damaged ({rows:,} rows, {first}): put them back, or restore an older checkpoint, from "
        "which their rows are produced again"
    )
    return Lost(rows, why, [part.to_json() for part in gone])


class StagedRows:
    """The writer of one subtask. One thread writes; snapshots finish in others."""

    def __init__(
        self, context: SubtaskContext, schema: pa.Schema, file_bytes: int = FILE_BYTES
    ) -> None:
        assert context.staging is not None, "the worker gives every sink a staging area"
        self._staging = context.staging
        self._context = context
        self._schema = plain_schema(schema)
        self._file_bytes = file_bytes
        self._sequence = 0
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0
        self._files: list[_File] = []
        self._pinned: list[_File] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Keep rows; write a file once they are many.

        Raises:
            StorageUnavailable: the store did not take a file.
        """
        if not batch.num_rows:
            return
        self._batches.append(batch.cast(self._schema))
        self._bytes += batch.nbytes
        if self._bytes >= self._file_bytes:
            self._end_file()
            self._files[-1].put()

    def snapshot(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        """Pin the rows of this interval, and the files that no checkpoint has offered yet."""
        self._end_file()
        new, self._files = self._files, []
        for file in new:
            file.checkpoint_id = checkpoint_id
        self._pinned = pinned = [*(file for file in self._pinned if not file.offered), *new]

        def offer() -> Snapshot:
            parts = [file.part() for file in pinned]
            for file in pinned:
                file.offered = True
            return Snapshot(committables=tuple(part.to_json() for part in parts))

        return offer

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        """Do nothing: the committer publishes what earlier generations staged."""

    def collected(self) -> Iterable[pa.RecordBatch]:
        """Return no rows: the committer publishes them."""
        return ()

    def close(self) -> None:
        """Drop rows that are in no snapshot; the next start deletes their files."""
        self._batches, self._files = [], []

    def _end_file(self) -> None:
        if not self._batches:
            return
        buffer = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.ipc.new_file(buffer, self._schema, options=options) as writer:
            writer.write_table(with_one_dictionary(pa.Table.from_batches(self._batches)))
        rows = sum(batch.num_rows for batch in self._batches)
        data = memoryview(buffer.getvalue())
        self._files.append(_File(self._staging, self._context, self._sequence, rows, data))
        self._sequence += 1
        self._batches, self._bytes = [], 0


class _File:
    """One file, from its encoding until a checkpoint offers it."""

    def __init__(
        self,
        staging: StagingArea,
        context: SubtaskContext,
        sequence: int,
        rows: int,
        data: memoryview,
    ) -> None:
        self.checkpoint_id = CheckpointId(0)
        self.offered = False
        self._staging = staging
        self._context = context
        self._sequence = sequence
        self._rows = rows
        self._data: memoryview | None = data
        self._file: FileRef | None = None
        self._lock = threading.Lock()

    def put(self) -> FileRef:
        """Write it, unless it is written; call again after a failure.

        Raises:
            StorageUnavailable: the store did not take it.
        """
        with self._lock:
            if self._file is None:
                assert self._data is not None, "kept until it is written"
                context = self._context
                self._file = self._staging.put(
                    context.generation, context.subtask_index, self._sequence, self._data
                )
                self._data = None
            return self._file

    def part(self) -> StagedPart:
        """Return the committable, once the file is written.

        Raises:
            StorageUnavailable: the store did not take it.
        """
        return StagedPart(self.checkpoint_id, self._rows, self.put())
