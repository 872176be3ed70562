"""State as bytes: a header, an Arrow IPC file that any Arrow reader can read, and a digest.

Version 2 had the digest in its header. Version 1 was the Arrow file alone, with its version in the
schema metadata, which remain. Both are still read. Compression is off by default: state is written
every second and read almost never.
"""

# Metadata of a schema are Any, or an empty dictionary.
# pyright: reportUnknownVariableType=false

from dataclasses import dataclass

import pyarrow as pa

from laminar_core.codec.dictionaries import has_dictionary, joined, require_readable
from laminar_core.codec.envelope import (
    DIGEST_BYTES,
    HEADER_BYTES,
    Codec,
    Compression,
    Content,
    is_wrapped,
    seal,
    unwrap,
)
from laminar_core.errors import CorruptCheckpointError, ErrorCode

FORMAT_KEY = b"laminar.format"
VERSION_KEY = b"laminar.version"
FORMAT_NAME = b"state"
FORMAT_VERSION = b"1"
"""The version of the Arrow file; the header around it came later and has its own version."""

SEGMENT_VERSION = 3
_SEGMENT_VERSIONS = (2, SEGMENT_VERSION)
"""Those with a header."""


@dataclass(frozen=True, slots=True)
class Segment:
    """The bytes of a state file."""

    data: memoryview
    """A read-only view on Arrow's own buffer: large state is not copied once more."""
    sha256: str
    """The SHA-256 of these bytes, in hex digits."""


def encode_table(table: pa.Table, *, compression: Compression | None = None) -> memoryview:
    """Return the bytes of :func:`encode_segment`."""
    return encode_segment(table, compression=compression).data


def encode_segment(table: pa.Table, *, compression: Compression | None = None) -> Segment:
    """Write ``table`` as a segment; the same table gives the same bytes.

    Raises:
        DataError: its dictionaries cannot be united, or not be read again (NOT_ENCODABLE).
    """
    metadata = {
        **(table.schema.metadata or {}),
        FORMAT_KEY: FORMAT_NAME,
        VERSION_KEY: FORMAT_VERSION,
    }
    marked = with_one_dictionary(table).replace_schema_metadata(metadata)
    # Measured first: a buffer that grows is copied again and again, and twice as large at the end.
    measure = pa.MockOutputStream()
    _write(marked, measure, compression)
    buffer = pa.allocate_buffer(HEADER_BYTES + measure.size() + DIGEST_BYTES)
    # Arrow's view is of signed bytes, and would differ from equal ``bytes``.
    view = memoryview(buffer).cast("B")
    payload = view[HEADER_BYTES:-DIGEST_BYTES]
    _write(marked, pa.FixedSizeBufferWriter(pa.py_buffer(payload)), compression)
    codec: Codec = compression or "none"
    sha256 = seal(Content.SEGMENT, SEGMENT_VERSION, codec, view)
    return Segment(view.toreadonly(), sha256)


def empty_table(schema: pa.Schema) -> pa.Table:
    """Return a table without rows; pyarrow's own method lacks identifiers in lists and structs."""
    return pa.Table.from_arrays([pa.nulls(0, of) for of in schema.types], schema=schema)


def with_one_dictionary(table: pa.Table) -> pa.Table:
    """Return rows in which all parts of a column have one dictionary, as in an Arrow file.

    Raises:
        DataError: there cannot be one, or it could not be read again (NOT_ENCODABLE).
    """
    for place, field in enumerate(table.schema):
        require_readable(field.name, field.type)
        chunks = table.column(place).chunks
        if len(chunks) > 1 and has_dictionary(field.type):
            table = table.set_column(place, field, joined(chunks))
    return table


def _write(table: pa.Table, sink: pa.NativeFile, compression: Compression | None) -> None:
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_file(sink, table.schema, options=options) as writer:
        writer.write_table(table)


def decode_table(data: bytes | memoryview, *, verified: bool = False) -> pa.Table:
    """Read what :func:`encode_table` wrote and check every value; shares memory with ``data``.

    ``verified``: the caller has compared ``data`` with the digest in a manifest.

    Raises:
        CorruptCheckpointError: not a segment, not an Arrow file, of a newer version, or with values
            that Arrow's own validation refuses. Fall back to an older checkpoint.
    """
    payload = _payload(data, verified=verified)
    try:
        with pa.ipc.open_file(pa.py_buffer(payload)) as reader:
            table = reader.read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(
            f"the state file is not a readable Arrow file ({_first_line(error)})"
        ) from error
    return _without_format(table)


def _payload(data: bytes | memoryview, *, verified: bool) -> bytes | memoryview:
    if not is_wrapped(data):
        return data  # Version 1, or damage that Arrow will notice.
    sealed = unwrap(data, Content.SEGMENT, verified=verified)
    if sealed.version not in _SEGMENT_VERSIONS:
        raise _unreadable(
            f"segment version {sealed.version} is not known, this Laminar reads 1 to "
            f"{SEGMENT_VERSION}: use the version that wrote it"
        )
    return sealed.payload


def _without_format(table: pa.Table) -> pa.Table:
    metadata = dict(table.schema.metadata or {})
    found = metadata.pop(FORMAT_KEY, b""), metadata.pop(VERSION_KEY, b"")
    if found[0] != FORMAT_NAME:
        raise _unreadable("the Arrow file holds no Laminar state")
    if found[1] != FORMAT_VERSION:
        raise _unreadable(
            f"state format {found[1].decode(errors='replace')!r} is not known, this Laminar reads "
            f"{FORMAT_VERSION.decode()!r}: use the version that wrote it"
        )
    return table.replace_schema_metadata(metadata or None)


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]


def _unreadable(message: str) -> CorruptCheckpointError:
    return CorruptCheckpointError(ErrorCode.STATE_UNREADABLE, message)
