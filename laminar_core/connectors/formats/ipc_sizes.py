"""The size that an Arrow IPC message will have once decoded, read from its header before that.

Arrow checks that a header is well formed and that its buffers lie in the body. It does not bound
two numbers that the header only claims: how many rows there are, and how large a compressed buffer
will be; it allocates that much. Both are read here from the flatbuffer (``Message.fbs`` of the
Arrow format): a table's fields are found through its *vtable*, a list of 16-bit offsets.
"""

import struct
from dataclasses import dataclass

import pyarrow as pa

_MESSAGE_HEADER_TYPE, _MESSAGE_HEADER = 1, 2
_DICTIONARY_DATA = 1
_BATCH_ROWS, _BATCH_BUFFERS, _BATCH_COMPRESSION = 0, 2, 3
_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3
_BUFFER = struct.Struct("<qq")
_PREFIX = struct.Struct("<q")
_NOT_COMPRESSED = -1


@dataclass(frozen=True, slots=True)
class Claims:
    """The size that a message says it will have. A dictionary's rows are its values."""

    rows: int = 0
    decompressed_bytes: int = 0


def claims_of(message: pa.ipc.Message) -> Claims:
    """Return what a message of a stream claims; a schema claims nothing.

    Raises:
        ValueError: the header or a buffer's prefix is not where it must be.
    """
    header = _Flatbuffer(message.metadata.to_pybytes())
    try:
        root = header.indirect(0)
        kind = header.scalar("<B", root, _MESSAGE_HEADER_TYPE)
        if kind not in (_DICTIONARY_BATCH, _RECORD_BATCH):
            return Claims()
        batch = header.table(root, _MESSAGE_HEADER)
        if kind == _DICTIONARY_BATCH:
            batch = header.table(batch, _DICTIONARY_DATA)
        rows = header.scalar("<q", batch, _BATCH_ROWS)
        is_compressed = header.field(batch, _BATCH_COMPRESSION) is not None
        buffers = header.structs(_BUFFER, batch, _BATCH_BUFFERS) if is_compressed else []
        body = message.body
        return Claims(rows, sum(_decompressed_bytes(body, *buffer) for buffer in buffers))
    except struct.error as error:
        raise ValueError("a header points outside of itself") from error


def _decompressed_bytes(body: pa.Buffer, offset: int, length: int) -> int:
    """Return the size that the prefix of a compressed buffer claims."""
    if length < _PREFIX.size:
        return 0
    if not 0 <= offset <= body.size - length:
        raise ValueError("a buffer lies outside of the body")
    (claimed,) = _PREFIX.unpack(body.slice(offset, _PREFIX.size).to_pybytes())
    if claimed < _NOT_COMPRESSED:
        raise ValueError("a buffer has a negative size")
    return length - _PREFIX.size if claimed == _NOT_COMPRESSED else claimed


class _Flatbuffer:
    """Tables in bytes; each position is that of a table."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, layout: struct.Struct | str, at: int) -> tuple[int, ...]:
        if at < 0:  # Python would count from the end.
            raise ValueError("a header points outside of itself")
        layout = struct.Struct(layout) if isinstance(layout, str) else layout
        return layout.unpack_from(self._data, at)

    def indirect(self, at: int) -> int:
        return at + self.read("<I", at)[0]

    def field(self, table: int, slot: int) -> int | None:
        vtable = table - self.read("<i", table)[0]
        vtable_bytes = self.read("<H", vtable)[0]
        entry = 4 + 2 * slot
        offset = self.read("<H", vtable + entry)[0] if entry + 2 <= vtable_bytes else 0
        return table + offset if offset else None

    def scalar(self, layout: str, table: int, slot: int) -> int:
        at = self.field(table, slot)
        return 0 if at is None else self.read(layout, at)[0]

    def table(self, table: int, slot: int) -> int:
        at = self.field(table, slot)
        if at is None:
            raise ValueError("a header lacks a part")
        return self.indirect(at)

    def structs(self, layout: struct.Struct, table: int, slot: int) -> list[tuple[int, ...]]:
        at = self.field(table, slot)
        if at is None:
            return []
        vector = self.indirect(at)
        count = self.read("<I", vector)[0]
        if count * layout.size > len(self._data):
            raise ValueError("a header claims more than it holds")
        return [self.read(layout, vector + 4 + n * layout.size) for n in range(count)]
