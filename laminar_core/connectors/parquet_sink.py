"""Parquet files as transactional output: staged during a checkpoint, visible once it completed.

They are in a directory that driver and workers share, or below a prefix of a bucket.

A writer encodes rows as soon as a row group is full, on the data path: that costs about twenty
milliseconds, limits memory to one row group per file, and is the backpressure of the sink. The rest
- the last row group, the footer, ``fsync`` - is written in the background at the barrier.

A snapshot offers the files of its interval and the files of earlier snapshots that never finished.
A file that cannot be made durable fails every later snapshot too: no checkpoint may complete
without its rows.
"""

import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal, get_args

import pyarrow as pa
import pyarrow.parquet as pq

from laminar_core.arguments import require_choice, require_whole
from laminar_core.codec.arrow import empty_table
from laminar_core.connectors.locations import checked_location, without_parameters
from laminar_core.connectors.outlook import Promise
from laminar_core.connectors.output_directory import OutputDirectory
from laminar_core.connectors.output_place import (
    OutputPlace,
    StagedOutput,
    final_name,
    staged_name,
    storage_errors,
)
from laminar_core.connectors.output_places import output_place
from laminar_core.connectors.parquet_commit import ParquetCommitter
from laminar_core.connectors.parquet_dictionaries import (
    DICTIONARY_BYTES_MAX,
    columns_with_dictionary,
)
from laminar_core.connectors.plain import plain_schema, plain_tables
from laminar_core.errors import ConfigurationError, DataError, ErrorCode
from laminar_core.operators.base import JsonObject, PendingSnapshot, Snapshot, SubtaskContext
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.store.staging import StagingArea

Compression = Literal["zstd", "lz4", "snappy", "none"]

_ROW_GROUP_ROWS = 131_072
_ROW_GROUP_BYTES = 32 << 20
_DECODED_ROWS = 4_096
"""Rows of small batches whose dictionaries are decoded together."""


@dataclass(frozen=True, slots=True)
class ParquetSink:
    """Writes rows to Parquet files in a directory that driver and workers share, or in a bucket.

    ``path``: the directory, or ``s3://bucket/prefix?region=…`` with the parameters of a store in a
    bucket. A directory or prefix belongs to one sink of one job. Its ``part-*.parquet`` files are
    whole at any moment; ``committed_files`` and ``committed_objects`` list those of completed
    checkpoints. Output is exactly-once.

    >>> sink = ParquetSink("output/payments_per_merchant")  # doctest: +SKIP
    """

    path: str | os.PathLike[str]
    compression: Compression = "zstd"
    target_file_rows: int = 5_000_000

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", checked_location(self.path))
        require_choice(self.compression, get_args(Compression), "compression")
        require_whole(self.target_file_rows, 1, "target_file_rows")

    @property
    def place(self) -> OutputPlace:
        """Where the files are.

        Raises:
            ConfigurationError: a URI with a parameter that does not exist, or with a secret.
            MissingExtraError: an ``s3://`` URI, and boto3 is not installed.
        """
        return output_place(str(self.path))

    @property
    def directory(self) -> OutputDirectory:
        """The names below ``path``, if it is a directory."""
        return OutputDirectory(Path(self.path))

    def describe(self) -> JsonObject:
        """Return the path, of a bucket without parameters; other options may change."""
        return {"connector": "parquet", "path": without_parameters(str(self.path))}

    def check(self, schema: pa.Schema, promise: Promise | None = None) -> Sequence[str]:
        """Verify the types, then make the place ready.

        Raises:
            ConfigurationError: Parquet has no such type, or the place cannot be created or holds
                files that no Laminar sink wrote.
            StorageUnavailable: a bucket does not answer.
        """
        del promise
        for field, plain in zip(schema, plain_schema(schema), strict=True):
            _check_type(field, plain)
        place = self.place
        try:
            if place.has_files() and not place.is_output():
                raise _invalid(
                    f"{place.name} holds files that Laminar did not write: give an empty directory"
                )
            place.create()
        except OSError as error:
            raise ConfigurationError(
                ErrorCode.STORE_NOT_WRITABLE,
                f"cannot write to the directory {place.name}: {error.strerror}; give another path",
            ) from error
        return ()

    def open(self, context: SubtaskContext, schema: pa.Schema) -> "ParquetSinkWriter":
        """Create the writer for rows of ``schema``."""
        return ParquetSinkWriter(self, context, plain_schema(schema))

    def committer(self, staging: StagingArea | None = None) -> ParquetCommitter:
        """Return the committer that publishes staged files, which are in the place itself."""
        del staging
        return ParquetCommitter(self.place)


class ParquetSinkWriter:
    """Stages the rows of one subtask. One thread writes; snapshots finish in others."""

    def __init__(self, sink: ParquetSink, context: SubtaskContext, schema: pa.Schema) -> None:
        self._sink = sink
        self._place = sink.place
        self._context = context
        self._schema = schema
        self._sequence = 0
        self._current: _StagedFile | None = None
        self._full: list[_StagedFile] = []
        self._pinned: list[_StagedFile] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Stage rows of the running checkpoint interval.

        Raises:
            DataError: Parquet cannot hold a value.
            StorageUnavailable: the staging directory refused a row group.
        """
        if batch.num_rows == 0:
            return
        if self._current is None:
            self._current = self._next_file()
        self._current.append(batch)
        if self._current.row_count >= self._sink.target_file_rows:
            self._current.end()
            self._full.append(self._current)
            self._current = None

    def snapshot(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        """Detach the files of this interval. What is returned makes them durable and offers them.

        The function returned raises StorageUnavailable or DataError if that fails, and then so do
        all later ones: the job must restart.
        """
        pinned = [file for file in self._pinned if not file.offered]
        for file in self._take_staged():
            file.name_for(checkpoint_id)
            pinned.append(file)
        self._pinned = pinned
        return lambda: self._offer(pinned)

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        """Do nothing: the committer handles files of earlier generations."""

    def collected(self) -> Iterable[pa.RecordBatch]:
        """Return no rows: they are in the files."""
        return ()

    def close(self) -> None:
        """Delete what is staged and in no snapshot."""
        for file in self._take_staged():
            file.abandon()

    def _take_staged(self) -> list["_StagedFile"]:
        staged = [*self._full, *([self._current] if self._current else [])]
        self._full, self._current = [], None
        return staged

    def _next_file(self) -> "_StagedFile":
        context = self._context
        identity = (context.generation, context.subtask_index, self._sequence)
        self._sequence += 1
        return _StagedFile(self._sink, self._place, identity, self._schema)

    def _offer(self, files: Sequence["_StagedFile"]) -> Snapshot:
        outputs = [file.finish() for file in files]
        if outputs:
            with storage_errors(self._place.name):
                self._place.sync_staged()
        for file in files:
            file.offered = True
        return Snapshot(committables=tuple(output.to_json() for output in outputs))


class _StagedFile:
    """One file that is not visible, from its first row until it is offered."""

    def __init__(
        self,
        sink: ParquetSink,
        place: OutputPlace,
        identity: tuple[Generation, int, int],
        schema: pa.Schema,
    ) -> None:
        self.row_count = 0
        self.offered = False
        self._identity = identity
        self._name = staged_name(*identity)
        self._place = place
        self._staging = place.staging_file(self._name)
        self._compression = sink.compression
        self._schema = schema
        self._encoded: list[pa.RecordBatch] = []
        """Rows as they came, still with their dictionaries."""
        self._encoded_rows = self._encoded_bytes = 0
        self._rows: list[pa.Table] = []
        self._rows_count = self._rows_bytes = 0
        self._file: BinaryIO | None = None
        self._writer: pq.ParquetWriter | None = None
        self._checkpoint_id = 0
        self._output: StagedOutput | None = None
        self._failure: BaseException | None = None
        self._lock = threading.Lock()

    def append(self, batch: pa.RecordBatch) -> None:
        """Take rows; encode them once they fill a row group."""
        with self._write_or_fail():
            self._encoded.append(batch)
            self._encoded_rows += batch.num_rows
            self._encoded_bytes += batch.nbytes
            self.row_count += batch.num_rows
            if self._encoded_rows >= _DECODED_ROWS or self._encoded_bytes >= _ROW_GROUP_BYTES:
                self._decode()

    def end(self) -> None:
        """No rows follow: write the footer, which frees what the encoder holds."""
        with self._write_or_fail():
            self._end()

    def name_for(self, checkpoint_id: int) -> None:
        """Set the checkpoint that the rows belong to."""
        self._checkpoint_id = checkpoint_id

    def finish(self) -> StagedOutput:
        """Make the file durable, once.

        Raises:
            DataError: Parquet cannot hold a value.
            StorageUnavailable: it could not be made durable, now or the first time.
        """
        with self._lock:
            if self._output is None:
                with self._write_or_fail():
                    self._output = self._sync()
            return self._output

    def abandon(self) -> None:
        """Delete the file; its rows are in no snapshot."""
        self._release()
        if self._file is not None:
            self._staging.abandon()

    @contextmanager
    def _write_or_fail(self) -> Iterator[None]:
        """A file that failed once has lost rows: it must not be offered as if it were whole."""
        if self._failure is not None:
            raise self._failure
        try:
            with storage_errors(self._staging.name), _value_errors():
                yield
        except BaseException as error:
            self._failure = error
            self._release()
            raise

    def _release(self) -> None:
        """Close what is open, whether or not the rest can still be written."""
        self._encoded, self._rows = [], []
        with suppress(OSError, pa.ArrowException):
            if self._writer is not None:
                self._writer.close()
        with suppress(OSError):
            if self._file is not None:
                self._file.close()

    def _decode(self) -> None:
        """Decode what came, and write what fills row groups."""
        encoded, self._encoded = self._encoded, []
        self._encoded_rows = self._encoded_bytes = 0
        for rows in plain_tables(encoded, self._schema, _ROW_GROUP_BYTES):
            self._rows.append(rows)
            self._rows_count += rows.num_rows
            self._rows_bytes += rows.nbytes
            if self._rows_count >= _ROW_GROUP_ROWS or self._rows_bytes >= _ROW_GROUP_BYTES:
                self._encode()

    def _encode(self) -> None:
        rows, self._rows, self._rows_count, self._rows_bytes = self._rows, [], 0, 0
        table = pa.concat_tables(rows) if rows else None
        if self._writer is None:
            self._file = self._staging.open()
            self._writer = pq.ParquetWriter(
                self._file,
                self._schema,
                compression=self._compression,
                write_page_checksum=True,
                use_dictionary=True if table is None else columns_with_dictionary(table),
                dictionary_pagesize_limit=DICTIONARY_BYTES_MAX,
            )
        if table is not None:
            assert self._writer is not None, "it was opened above"
            self._writer.write_table(table)

    def _end(self) -> None:
        self._decode()
        self._encode()
        assert self._writer is not None
        self._writer.close()

    def _sync(self) -> StagedOutput:
        self._end()
        assert self._file is not None
        size_bytes = self._file.tell()
        generation, subtask, sequence = self._identity
        final = final_name(self._checkpoint_id, subtask, sequence, generation)
        upload = self._staging.stage(self._file, final)
        return StagedOutput(
            self._checkpoint_id, self._name, final, self.row_count, size_bytes, upload
        )


@contextmanager
def _value_errors() -> Iterator[None]:
    """Turn what Arrow says of rows into a DataError; a failure of the storage is an OSError."""
    try:
        yield
    except (pa.ArrowException, ValueError) as error:
        if isinstance(error, OSError | MemoryError):
            raise
        raise DataError(
            ErrorCode.NOT_ENCODABLE,
            f"rows cannot be written to Parquet: {' '.join(str(error).split())}",
        ) from error


def _check_type(field: pa.Field, plain: pa.Field) -> None:
    """Decode and write no rows of this type: Arrow and Parquet know best what they can."""
    try:
        pa.nulls(0, field.type).cast(plain.type)
        pq.write_table(empty_table(pa.schema([plain])), pa.BufferOutputStream())
    except (OSError, pa.ArrowException) as error:
        raise ConfigurationError(
            ErrorCode.UNSUPPORTED_TYPE,
            f"Parquet cannot hold column {field.name!r} of type {field.type}: cast or drop it",
        ) from error


def _invalid(message: str) -> ConfigurationError:
    return ConfigurationError(ErrorCode.INVALID_OPTION, message)
