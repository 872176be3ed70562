"""The bytes of ``StreamExecutor.checkpoint_state``: header, catalogue, and the rows of each query.

The header is defined by ``codec.envelope`` (magic ``LMREXE``). The payload is a sequence of Arrow
IPC streams: first the catalogue, with one row per query, then the rows of each query that has any,
in the order of the catalogue.

    catalogue column    type
    query_id            string
    fingerprint         string    SHA-256 of the definition
    definition          string    canonical JSON
    facts               string    JSON: watermark, late rows, key groups
    row_count           int64     no stream follows for a query with 0

The metadata of a query's rows say the versions of their accumulators. ``docs/formats.md``.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from laminar_core.codec.envelope import HEADER_BYTES, Codec, Content, header, unwrap
from laminar_core.errors import CorruptCheckpointError, ErrorCode
from laminar_core.operators.base import JsonObject
from laminar_core.records.manifest import fingerprint_of

EXECUTOR_VERSION = 1

_CATALOGUE = pa.schema(
    [
        pa.field("query_id", pa.string(), nullable=False),
        pa.field("fingerprint", pa.string(), nullable=False),
        pa.field("definition", pa.string(), nullable=False),
        pa.field("facts", pa.string(), nullable=False),
        pa.field("row_count", pa.int64(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class QueryPart:
    """The state of one query."""

    query_id: str
    definition: JsonObject
    facts: JsonObject
    rows: pa.Table | None
    """The rows; None if there are none."""


def encode_parts(parts: Sequence[QueryPart], codec: Codec = "none") -> bytes:
    """Write the state of all queries; equal state gives equal bytes."""
    tables = [_catalogue(parts), *(part.rows for part in parts if part.rows is not None)]
    measure = pa.MockOutputStream()
    _write(tables, measure, codec)
    buffer = pa.allocate_buffer(HEADER_BYTES + measure.size())
    view = memoryview(buffer).cast("B")
    _write(tables, pa.FixedSizeBufferWriter(pa.py_buffer(view[HEADER_BYTES:])), codec)
    payload = view[HEADER_BYTES:]
    view[:HEADER_BYTES] = header(Content.EXECUTOR_STATE, EXECUTOR_VERSION, codec, payload)
    return bytes(view)


def decode_parts(data: bytes | memoryview) -> list[QueryPart]:
    """Read what :func:`encode_parts` wrote and check every value.

    Raises:
        CorruptCheckpointError: damaged, of something else, or of a newer version. Fall back to an
            older checkpoint; never start empty instead (ERRATA 1.2).
    """
    sealed = unwrap(data, Content.EXECUTOR_STATE)
    if sealed.version != EXECUTOR_VERSION:
        raise _unreadable(
            f"version {sealed.version} is not known, this Laminar reads {EXECUTOR_VERSION}: use the"
            " version that wrote it"
        )
    try:
        source = pa.BufferReader(pa.py_buffer(sealed.payload))
        catalogue = _read(source)
        if not catalogue.schema.equals(_CATALOGUE):
            raise _unreadable("its catalogue has other columns")
        parts = [_part(row, source) for row in catalogue.to_pylist()]
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise _unreadable(f"its tables are not readable ({reason})") from error
    if source.tell() != len(sealed.payload):
        raise _unreadable("something follows the tables")
    return parts


def _catalogue(parts: Sequence[QueryPart]) -> pa.Table:
    rows = [
        {
            "query_id": part.query_id,
            "fingerprint": fingerprint_of(part.definition),
            "definition": _json(part.definition),
            "facts": _json(part.facts),
            "row_count": 0 if part.rows is None else part.rows.num_rows,
        }
        for part in parts
    ]
    return pa.Table.from_pylist(rows, schema=_CATALOGUE)


def _json(said: JsonObject) -> str:
    return json.dumps(said, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _write(tables: Sequence[pa.Table], sink: pa.NativeFile, codec: Codec) -> None:
    options = pa.ipc.IpcWriteOptions(compression=None if codec == "none" else codec)
    for table in tables:
        with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
            writer.write_table(table)


def _read(source: pa.BufferReader) -> pa.Table:
    with pa.ipc.open_stream(source) as reader:
        table = reader.read_all()
    table.validate(full=True)
    return table


def _part(row: dict[str, str | int], source: pa.BufferReader) -> QueryPart:
    rows = _read(source) if row["row_count"] else None
    if rows is not None and rows.num_rows != row["row_count"]:
        raise _unreadable(f"query {row['query_id']!r} has {rows.num_rows} rows")
    definition: JsonObject = json.loads(str(row["definition"]))
    if fingerprint_of(definition) != row["fingerprint"]:
        raise _unreadable(f"the fingerprint of query {row['query_id']!r} is not its definition's")
    return QueryPart(str(row["query_id"]), definition, json.loads(str(row["facts"])), rows)


def _unreadable(reason: str) -> CorruptCheckpointError:
    return CorruptCheckpointError(
        ErrorCode.STATE_UNREADABLE, f"this is not the state of an executor: {reason}"
    )
