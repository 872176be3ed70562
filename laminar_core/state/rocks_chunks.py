"""State in RocksDB, for state larger than memory: a shelf of Arrow tables on local disk.

A value is the rows of one chunk as Arrow record batches; a key is its pane, first key group and a
number. RocksDB allocates space, caches nothing, keeps a checksum on every value, and frees the
space of deleted chunks. There is no write-ahead log: state is rebuilt from a checkpoint, never from
these files.

Chunks without references are deleted with the next write, in the same batch.

Source: Lu et al. 2016, "WiscKey" (FAST), for values apart from keys; RocksDB's BlobDB.
"""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import pyarrow as pa
from rocksdict import DBCompressionType, Env, Options, Rdict, WriteBatch, WriteOptions

from laminar_core.codec.envelope import Compression
from laminar_core.errors import ErrorCode, StorageUnavailable

_SIGN = 1 << 63
_VALUE_BYTES_MIN = 4096
"""Smaller ones stay with their keys."""
_FILE_BYTES = 64 * 1024 * 1024
_WRITE_BUFFERS = 4
_BUFFER_BYTES_MIN = 64 * 1024
_GARBAGE_SHARE = 0.5
"""Share of garbage in the oldest files at which their live values are moved."""


class RocksBackend:
    """One database for all operators of a worker, in a folder of its own that may be deleted.

    Of ``memory_bytes`` a quarter is for writes that are on their way to the disk and a quarter for
    rows that are gathered; the rest is for merging, one bucket at a time. ``in_memory_files``: for
    simulations, which must not touch the disk.
    """

    def __init__(
        self,
        folder: Path,
        memory_bytes: int,
        compression: Compression | None = None,
        *,
        in_memory_files: bool = False,
    ) -> None:
        self._folder = folder
        self._memory_bytes = memory_bytes
        self._compression: Compression | None = compression
        self._options = _options(memory_bytes, in_memory_files=in_memory_files)
        self._unlogged = WriteOptions()
        self._unlogged.disable_wal = True  # pyright: ignore[reportAttributeAccessIssue] - its stub says method
        self._files: Rdict | None = None
        self._numbers = count()
        self._garbage: deque[bytes] = deque()
        self._shelves = 0

    def shelf(self, schema: pa.Schema) -> "RocksShelf":
        """Make room for tables of ``schema``; the first call creates the database.

        Raises:
            StorageUnavailable: the folder cannot be written to (WORKING_STATE).
        """
        if self._files is None:
            with self.readable_errors():
                self._files = Rdict(str(self._folder), self._options)
                self._files.set_write_options(self._unlogged)
        self._shelves += 1
        return RocksShelf(self, schema, self._compression)

    @property
    def gathered_bytes_max(self) -> int:
        """Bytes of new rows that each shelf may gather."""
        return self._memory_bytes // 4 // max(self._shelves, 1)

    def close(self) -> None:
        """Close the files without flushing: no file is read again."""
        files, self._files = self._files, None
        if files is not None:
            with suppress(Exception):  # It says that it was not let finish; that is what we want.
                files.cancel_all_background(wait=True)
                files.close()

    # --- for the shelves ------------------------------------------------------------------------

    def put(self, start_us: int, first_key_group: int, value: bytes) -> bytes:
        """Write a value, and delete what is not needed any more; returns its key."""
        place = (start_us + _SIGN).to_bytes(8) + first_key_group.to_bytes(2)
        key = place + next(self._numbers).to_bytes(8)
        batch = WriteBatch(raw_mode=True)
        batch.put(key, value)
        with suppress(IndexError):  # Somebody else took the last one.
            while self._garbage:
                batch.delete(self._garbage.popleft())
        with self.readable_errors():
            self._opened().write(batch, self._unlogged)
        return key

    def get(self, key: bytes) -> bytes:
        """Return a value."""
        with self.readable_errors():
            value = self._opened()[key]
        assert value is not None, "a chunk is deleted after its last reader"
        return value

    def drop(self, key: bytes) -> None:
        """Mark a value for deletion. Called from any thread, at any time."""
        self._garbage.append(key)

    def _opened(self) -> Rdict:
        if self._files is None:
            raise _failed(self._folder, "it is closed")
        return self._files

    @contextmanager
    def readable_errors(self) -> Iterator[None]:
        """Translate RocksDB's exceptions, which have no class of their own.

        Raises:
            StorageUnavailable: instead of whatever it raised (WORKING_STATE).
        """
        try:
            yield
        except StorageUnavailable:
            raise
        except Exception as error:
            raise _failed(self._folder, str(error).partition("\n")[0]) from error


class RocksShelf:
    """The tables of one operator, all of one schema."""

    in_memory = False

    def __init__(
        self, backend: RocksBackend, schema: pa.Schema, compression: Compression | None
    ) -> None:
        self._backend = backend
        self._schema = schema
        self._options = pa.ipc.IpcWriteOptions(compression=compression)

    @property
    def gathered_bytes_max(self) -> int:
        """Bytes of new rows to gather: a share of the worker's budget."""
        return self._backend.gathered_bytes_max

    def put(self, start_us: int, first_key_group: int, table: pa.Table) -> "RocksChunk":
        """Write it.

        Raises:
            StorageUnavailable: the disk is full or broken (WORKING_STATE).
        """
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._schema, options=self._options) as writer:
            writer.write_table(table)
        key = self._backend.put(start_us, first_key_group, sink.getvalue().to_pybytes())
        return RocksChunk(self._backend, key, table.num_rows, table.nbytes)


class RocksChunk:
    """A table on disk, as long as something refers to it."""

    __slots__ = ("_backend", "_key", "row_count", "size_bytes")

    def __init__(self, backend: RocksBackend, key: bytes, row_count: int, size_bytes: int) -> None:
        self._backend = backend
        self._key = key
        self.row_count = row_count
        self.size_bytes = size_bytes

    def read(self) -> pa.Table:
        """Read it back.

        Raises:
            StorageUnavailable: it is damaged (WORKING_STATE).
        """
        value = self._backend.get(self._key)
        with self._backend.readable_errors(), pa.ipc.open_stream(value) as reader:
            return reader.read_all()

    def __del__(self) -> None:
        self._backend.drop(self._key)


def _options(memory_bytes: int, *, in_memory_files: bool) -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(create_if_missing=True)
    options.set_error_if_exists(enabled=True)
    options.set_write_buffer_size(max(memory_bytes // 4 // _WRITE_BUFFERS, _BUFFER_BYTES_MIN))
    options.set_max_write_buffer_number(_WRITE_BUFFERS)
    options.set_compression_type(DBCompressionType.none())
    options.set_keep_log_file_num(1)
    options.set_max_background_jobs(2)
    options.set_enable_blob_files(val=True)
    options.set_min_blob_size(_VALUE_BYTES_MIN)
    options.set_blob_file_size(_FILE_BYTES)
    options.set_enable_blob_gc(val=True)
    options.set_blob_gc_age_cutoff(_GARBAGE_SHARE)
    options.set_blob_gc_force_threshold(_GARBAGE_SHARE)
    if in_memory_files:
        options.set_env(Env.mem_env())
    return options


def _failed(folder: Path, reason: str) -> StorageUnavailable:
    return StorageUnavailable(
        ErrorCode.WORKING_STATE,
        f"the working files of state in {folder} cannot be used ({reason}): make room there, or "
        "choose another disk (directory of StateConfig, --state-directory); a restart rebuilds "
        "them from a checkpoint",
    )
