"""In-flight data of one channel as bytes: a part of a file ``inflight_*.buf``.

All numbers are little-endian; ``docs/formats.md`` has the table, ADR-0011 the reasons::

    header   magic, format version, compression, reserved, input id, event count, CRC-32 of these
    frames   length, one encapsulated Arrow IPC message: the schema first, then what came
    trailer  number of frames, CRC-32 from the first frame up to here

The messages of all frames, joined, are an Arrow IPC stream. Rows are record batches; a watermark
or an idle mark is an empty batch with custom metadata. Barriers, cancel markers and ends of input
are never in a file: a restored barrier would cut a second time (ERRATA 0.14).
"""

import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from laminar_core.codec.envelope import Compression
from laminar_core.errors import (
    CheckpointDeclined,
    CorruptCheckpointError,
    ErrorCode,
    IncompatibleStateError,
)
from laminar_core.protocol.types import Batch, Idle, Watermark

MAGIC = b"LMRFLT\r\n"
"""The line end detects files that were copied as text."""
FORMAT_VERSION = 1
FRAME_BYTES_MAX = 2**32 - 1
COPIED_BYTES_MAX = 64 * 1024
"""Columns below this are copied together; larger ones are written from where they are."""
ELEMENT_KEY = b"laminar.element"
TIME_KEY = b"laminar.watermark_us"

# pyarrow ships no types: Any stands for its RecordBatch and its Buffer.
InflightElement = Batch[Any] | Watermark | Idle
Buffer = bytes | Any

_HEADER = struct.Struct("<8sHBBIQ")
_CRC = struct.Struct("<I")
_LENGTH = struct.Struct("<I")
_FRAME_COUNT = struct.Struct("<I")
_HEADER_BYTES = _HEADER.size + _CRC.size
_TRAILER_BYTES = _FRAME_COUNT.size + _CRC.size
_COMPRESSIONS: dict[Compression | None, int] = {None: 0, "lz4": 1, "zstd": 2}
_MESSAGE_PREFIX_BYTES = 8
"""Continuation mark and length of the metadata, before every encapsulated message."""


class InflightEncoder:
    """Turns captured elements into the pieces of a file, one by one: for one thread at a time.

    Large columns are not copied: the pieces share the batches' memory until they are written.
    """

    def __init__(
        self, schema: pa.Schema, input_id: int, compression: Compression | None = None
    ) -> None:
        self.event_count = 0
        self.row_count = 0
        self.size_bytes = _HEADER_BYTES + _TRAILER_BYTES
        """Length of the file if it ended here; the schema counts with the first element."""
        self._input_id = input_id
        self._compression: Compression | None = compression
        self._schema = schema
        self._example: pa.RecordBatch | None = None
        self._sink = _Pieces()
        self._stream = pa.BufferedOutputStream(
            pa.PythonFile(self._sink, mode="w"), COPIED_BYTES_MAX
        )
        options = pa.ipc.IpcWriteOptions(compression=compression)
        self._writer = pa.ipc.new_stream(self._stream, schema, options=options)
        self._buffers: list[Buffer] = []
        self._frame_count = 0
        self._crc = 0

    def add(self, element: InflightElement) -> None:
        """Append one element.

        Raises:
            CheckpointDeclined: it cannot be written, or is larger than a frame can be.
        """
        batch, metadata = self._as_message(element)
        try:
            self._writer.write_batch(batch, custom_metadata=metadata)
            self._stream.flush()
        except pa.ArrowException as error:
            raise self._declined(_first_line(error)) from error
        pieces = self._sink.take()
        # Usually one; the schema comes with the first batch, dictionaries before theirs.
        if self._writer.stats.num_messages == self._frame_count + 1:
            self._add_frame(pieces)
        else:
            for message in _split(b"".join(pieces)):
                self._add_frame([message])
        self.event_count += 1

    def finish(self) -> list[Buffer]:
        """Finish the file and return its pieces, to be written one after the other."""
        if not self._frame_count:
            self._add_frame([self._schema.serialize()])
        header = _HEADER.pack(
            MAGIC,
            FORMAT_VERSION,
            _COMPRESSIONS[self._compression],
            0,
            self._input_id,
            self.event_count,
        )
        frame_count = _FRAME_COUNT.pack(self._frame_count)
        return [
            header + _CRC.pack(zlib.crc32(header)),
            *self._buffers,
            frame_count + _CRC.pack(zlib.crc32(frame_count, self._crc)),
        ]

    def _as_message(
        self, element: InflightElement
    ) -> tuple[pa.RecordBatch, Mapping[bytes, bytes] | None]:
        match element:
            case Batch(batch):
                # Marks that follow have the same dictionaries, which are then not written again.
                self._example = batch
                self.row_count += batch.num_rows
                return batch, None
            case Watermark(time_us):
                metadata = {ELEMENT_KEY: b"watermark", TIME_KEY: b"%d" % time_us}
                return self._no_rows(), metadata
            case Idle():
                return self._no_rows(), {ELEMENT_KEY: b"idle"}

    def _no_rows(self) -> pa.RecordBatch:
        example = self._example
        if example is None:  # Made when needed: few queues begin with a mark.
            example = self._example = _empty_batch(self._schema)
        return example.slice(0, 0)

    def _add_frame(self, pieces: list[Buffer]) -> None:
        length = sum(map(len, pieces))
        if length > FRAME_BYTES_MAX:
            raise self._declined(f"a batch of {length:,} bytes is more than a frame can hold")
        for piece in (_LENGTH.pack(length), *pieces):
            self._crc = zlib.crc32(piece, self._crc)
            self._buffers.append(piece)
        self._frame_count += 1
        self.size_bytes += _LENGTH.size + length

    def _declined(self, problem: str) -> CheckpointDeclined:
        return CheckpointDeclined(
            ErrorCode.SNAPSHOT_FAILED,
            f"in-flight data of input {self._input_id} cannot be written: {problem}",
        )


def join(buffers: Iterable[Buffer]) -> pa.Buffer:
    """Join the pieces into one buffer; other threads run while large ones are copied."""
    pieces = list(buffers)
    joined = pa.allocate_buffer(sum(map(len, pieces)))
    writer = pa.FixedSizeBufferWriter(joined)
    for piece in pieces:
        writer.write(piece)
    return joined


@dataclass(frozen=True, slots=True)
class Expected:
    """The manifest's facts about a file; None is not compared."""

    input_id: int | None = None
    event_count: int | None = None
    row_count: int | None = None


ANYTHING = Expected()


def decode(
    data: bytes | memoryview | pa.Buffer,
    schema: pa.Schema | None = None,
    expected: Expected = ANYTHING,
) -> list[InflightElement]:
    """Read a whole file in the order of the channel; nothing is returned before all is verified.

    Raises:
        CorruptCheckpointError: the file differs from what was written, contradicts the manifest, or
            has a newer version. Fall back to an older checkpoint.
        IncompatibleStateError: its rows do not have ``schema``, because the edge was changed.
    """
    file = memoryview(data).cast("B").toreadonly()
    input_id, event_count = _read_header(file)
    stream = join(_verified_frames(file))
    try:
        elements = list(_read_stream(stream, schema))
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise _unreadable(f"no readable Arrow stream ({_first_line(error)})") from error
    found = Expected(input_id, len(elements), row_count(elements))
    _compare(found, Expected(event_count=event_count), "its header")
    _compare(found, expected, "the manifest")
    return elements


def schema_of(data: bytes | memoryview | pa.Buffer) -> pa.Schema:
    """Return the columns of the rows in a file, which is verified whole.

    Raises:
        CorruptCheckpointError: the file differs from what was written, or has a newer version.
    """
    file = memoryview(data).cast("B").toreadonly()
    _read_header(file)
    try:
        return pa.ipc.open_stream(join(_verified_frames(file))).schema
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _unreadable(f"no readable Arrow stream ({_first_line(error)})") from error


def row_count(elements: Iterable[InflightElement]) -> int:
    """Return the rows of all batches together."""
    return sum(element.data.num_rows for element in elements if isinstance(element, Batch))


def _read_header(file: memoryview) -> tuple[int, int]:
    """Input id and event count, verified."""
    if len(file) < _HEADER_BYTES + _TRAILER_BYTES or bytes(file[: len(MAGIC)]) != MAGIC:
        raise _unreadable("no in-flight file, or cut off in its header")
    magic_to_count = file[: _HEADER.size]
    _, version, compression, reserved, input_id, event_count = _HEADER.unpack(magic_to_count)
    if version != FORMAT_VERSION:
        raise _unreadable(
            f"format {version} is not known, this Laminar reads {FORMAT_VERSION}: use the version "
            "that wrote it"
        )
    (crc,) = _CRC.unpack_from(file, _HEADER.size)
    if crc != zlib.crc32(magic_to_count):
        raise _unreadable("the checksum of the header differs")
    if compression not in _COMPRESSIONS.values() or reserved:
        raise _unreadable(f"compression {compression} with flags {reserved} is not known")
    return input_id, event_count


def _verified_frames(file: memoryview) -> list[memoryview]:
    """The messages, after the checksum over all of them; together they fill the file exactly."""
    trailer = len(file) - _TRAILER_BYTES
    (frame_count,) = _FRAME_COUNT.unpack_from(file, trailer)
    (crc,) = _CRC.unpack_from(file, trailer + _FRAME_COUNT.size)
    if crc != zlib.crc32(file[_HEADER_BYTES : -_CRC.size]):
        raise _unreadable("the checksum differs: cut off, continued, or changed")
    messages: list[memoryview] = []
    position = _HEADER_BYTES
    while position < trailer:
        start = position + _LENGTH.size
        (length,) = _LENGTH.unpack_from(file, position)
        position = start + length
        messages.append(file[start:position])
    if position != trailer or len(messages) != frame_count:
        raise _unreadable(f"its frames differ from the {frame_count} that its trailer says")
    return messages


def _read_stream(stream: pa.Buffer, schema: pa.Schema | None) -> Iterator[InflightElement]:
    reader = pa.ipc.open_stream(stream)
    if schema is not None and not reader.schema.equals(schema):
        raise IncompatibleStateError(
            ErrorCode.OPERATORS_CHANGED,
            f"the in-flight data has the columns {_one_line(reader.schema)}, the edge now carries "
            f"{_one_line(schema)}: restore a savepoint or another aligned checkpoint",
        )
    while True:
        try:
            batch, metadata = reader.read_next_batch_with_custom_metadata()
        except StopIteration:
            return
        # Not in full: Arrow itself makes rows that this refuses (an index below a null struct).
        batch.validate()
        yield _as_element(batch, metadata)


def _as_element(batch: pa.RecordBatch, metadata: Mapping[bytes, bytes] | None) -> InflightElement:
    match None if metadata is None else metadata[ELEMENT_KEY]:
        case None:
            return Batch(batch)
        case b"watermark":
            assert metadata is not None
            return Watermark(int(metadata[TIME_KEY]))
        case b"idle":
            return Idle()
        case other:
            raise ValueError(f"{other!r} is no element")


def _compare(found: Expected, expected: Expected, source: str) -> None:
    for name in ("input_id", "event_count", "row_count"):
        actual, wanted = getattr(found, name), getattr(expected, name)
        if wanted is not None and actual != wanted:
            raise _unreadable(f"its {name} is {actual}, {source} says {wanted}")


class _Pieces:
    """Collects what Arrow writes; Arrow's own buffers come without a copy."""

    closed = False

    def __init__(self) -> None:
        self._pieces: list[Buffer] = []

    def write(self, piece: Buffer) -> int:
        self._pieces.append(piece)
        return len(piece)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        """Arrow insists on closing what it wrote to."""

    def take(self) -> list[Buffer]:
        pieces, self._pieces = self._pieces, []
        return pieces


def _split(messages: bytes) -> Iterator[Buffer]:
    """Encapsulated messages that were written together, one by one."""
    rest = pa.py_buffer(messages)
    while rest.size:
        (metadata_bytes,) = _LENGTH.unpack_from(rest, _LENGTH.size)
        body = pa.ipc.read_message(rest).body
        size = _MESSAGE_PREFIX_BYTES + metadata_bytes + (0 if body is None else body.size)
        yield rest.slice(0, size)
        rest = rest.slice(size)


def _empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    arrays = [pa.nulls(0, field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _one_line(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema) or "none"


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]


def _unreadable(problem: str) -> CorruptCheckpointError:
    return CorruptCheckpointError(ErrorCode.INFLIGHT_UNREADABLE, f"in-flight file: {problem}")
