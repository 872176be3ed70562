"""The files of one checkpoint: written before its manifest, read at a restore, or discarded."""

# pyarrow ships no types, which the strict mode of this package would not accept.
# pyright: standard

from collections.abc import Callable, Iterable

import pyarrow as pa

from laminar_core.codec.arrow import decode_table, encode_segment
from laminar_core.codec.digest import sha256_hex
from laminar_core.codec.envelope import Compression
from laminar_core.codec.inflight import Buffer, join
from laminar_core.errors import (
    CheckpointDeclined,
    ErrorCode,
    ProtocolError,
)
from laminar_core.objectstore.opening import ObjectStore, address
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.records.manifest import FileRef, HistoryRecord
from laminar_core.records.paths import JobPaths
from laminar_core.records.segment import SegmentRef
from laminar_core.state.expiry import newest_expiry_us
from laminar_core.state.window_layout import KEY_GROUP
from laminar_core.store.inflight_files import InflightFiles
from laminar_core.store.records import create_or_confirm, read_record
from laminar_core.store.verification import read_verified


class CheckpointParts:
    """Reads, writes and discards the files of checkpoints. Safe to use from several threads."""

    def __init__(self, objects: ObjectStore, paths: JobPaths) -> None:
        self._objects = objects
        self._paths = paths

    def write_state(  # noqa: PLR0913 - the parts of a file's name
        self,
        checkpoint_id: CheckpointId,
        operator_id: str,
        subtask_index: int,
        table: pa.Table,
        *,
        name: str = "",
        part: int = 0,
        compression: Compression | None = None,
        is_keyed: bool = True,
    ) -> SegmentRef:
        """Write rows of one subtask, durably. Writing the same rows again changes nothing.

        ``name``: which of the operator's tables they belong to. ``is_keyed``: a column of key
        groups, or of times by which rows expire, is the operator's; otherwise it is a user's.

        Raises:
            CheckpointDeclined: other rows are there; this id cannot be completed any more.
            StorageUnavailable: the store is full or does not answer.
        """
        key = self._paths.state(checkpoint_id, operator_id, subtask_index, part)
        segment = encode_segment(table, compression=compression)
        self._create(checkpoint_id, key, segment.data)
        file = self._file(key, segment.data, segment.sha256)
        return _segment(file, table, name, is_keyed=is_keyed)

    def write_shared(  # noqa: PLR0913 - the parts of a file's name
        self,
        operator_id: str,
        generation: Generation,
        subtask_index: int,
        sequence: int,
        table: pa.Table,
        *,
        name: str = "",
        compression: Compression | None = None,
    ) -> SegmentRef:
        """Write rows that several checkpoints may name, durably; ``name`` as in ``write_state``.

        Raises:
            CheckpointDeclined: other rows are there.
            StorageUnavailable: the store is full or does not answer.
        """
        key = self._paths.shared_segment(operator_id, generation, subtask_index, sequence)
        segment = encode_segment(table, compression=compression)
        self._create(None, key, segment.data)
        file = self._file(key, segment.data, segment.sha256)
        return _segment(file, table, name, is_keyed=True)

    def write_copy(self, checkpoint_id: CheckpointId, ref: FileRef, data: bytes) -> None:
        """Write the bytes of a file of an earlier checkpoint, durably, under a name of this one.

        Raises:
            CheckpointDeclined: something else is there; this id cannot be completed any more.
            StorageUnavailable: the store is full or does not answer.
        """
        assert sha256_hex(data) == ref.sha256, "the bytes are another file's"
        self._create(checkpoint_id, self._paths.absolute(ref.path), data)

    def read_state(self, ref: FileRef) -> pa.Table:
        """Read one segment; nothing is decoded before length and digest are verified.

        Raises:
            CorruptCheckpointError: missing, or not the bytes that were written.
        """
        return decode_table(read_verified(self._objects, self._paths, ref), verified=True)

    def write_inflight(
        self,
        checkpoint_id: CheckpointId,
        worker: int,
        buffers: Iterable[Buffer],
        part: int = 0,
        digest: Callable[[], str] | None = None,
    ) -> FileRef:
        """Write in-flight data of one worker: the pieces of several ``InflightEncoder``, joined.

        ``part`` counts the worker's files from 0. ``digest`` returns the SHA-256 of the pieces, and
        is called when they are written, so another thread can compute it meanwhile.

        Raises:
            CheckpointDeclined: something else is there; this id cannot be completed any more.
            StorageUnavailable: the store is full or does not answer.
        """
        key = self._paths.inflight(checkpoint_id, worker, part)
        data = memoryview(join(buffers)).cast("B")
        self._create(checkpoint_id, key, data)
        return self._file(key, data, sha256_hex(data) if digest is None else digest())

    def inflight(self, files: Iterable[FileRef]) -> InflightFiles:
        """Return a reader of the in-flight data in ``files``, those of one manifest."""
        return InflightFiles(self._objects, self._paths, files)

    def discard(self, checkpoint_id: CheckpointId) -> int:
        """Delete the files of a checkpoint that never completed; return how many there were.

        The trigger record stays, so the id is never used again; so does any object that is neither
        a state nor an in-flight file. No manifest names these files, so their order does not
        matter, and the same call continues after an error or a crash. A worker may still write:
        call again when it has answered. Do not call it while a publication of the checkpoint is
        unanswered.

        A completed checkpoint may have lost its manifest to retention while later checkpoints name
        files in its folder. Only retention knows which.

        Raises:
            ProtocolError: the checkpoint has a manifest, whole or not, or once had one: nothing
                was deleted.
            StorageUnavailable: the store does not answer; some files may be gone.
        """
        keys = self._objects.list(self._paths.parts(checkpoint_id))
        parts = [key for key in keys if self._paths.is_part(checkpoint_id, key)]
        if self._has_completed(checkpoint_id):
            raise ProtocolError(
                ErrorCode.ILLEGAL_EVENT,
                f"checkpoint {checkpoint_id} has a manifest, or had one: its files are not "
                "left-overs",
            )
        for key in parts:
            self._objects.delete(key)
        return len(parts)

    def _has_completed(self, checkpoint_id: CheckpointId) -> bool:
        """Whether it has a manifest, or retention has deleted that.

        Retention marks a checkpoint before it deletes anything, and forgets its outcome last.
        """
        records = (self._paths.manifest(checkpoint_id), self._paths.deletion(checkpoint_id))
        if any(self._objects.size(key) is not None for key in records):
            return True
        outcome = read_record(self._objects, self._paths.outcome(checkpoint_id), HistoryRecord)
        return outcome is not None and outcome.outcome == "completed"

    def _create(
        self, checkpoint_id: CheckpointId | None, key: str, data: bytes | memoryview
    ) -> None:
        if not create_or_confirm(self._objects, key, data):
            which = "this checkpoint" if checkpoint_id is None else f"checkpoint {checkpoint_id}"
            raise CheckpointDeclined(
                ErrorCode.OBJECT_EXISTS,
                f"{address(self._objects, key)} holds something else: {which} is given up, the "
                "next one starts from clean files",
            )

    def _file(self, key: str, data: bytes | memoryview, sha256: str) -> FileRef:
        return FileRef(path=self._paths.relative(key), size_bytes=len(data), sha256=sha256)


def _segment(file: FileRef, table: pa.Table, name: str, *, is_keyed: bool) -> SegmentRef:
    key_groups: tuple[int, int] | None = None
    if is_keyed and KEY_GROUP in table.schema.names and table.num_rows:
        groups = table.column(KEY_GROUP).to_numpy()
        key_groups = int(groups.min()), int(groups.max()) + 1
    return SegmentRef(
        row_count=table.num_rows,
        key_groups=key_groups,
        newest_window_us=newest_expiry_us(name, table) if is_keyed else None,
        table=name,
        **file.model_dump(),
    )
