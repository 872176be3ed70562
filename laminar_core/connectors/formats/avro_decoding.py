"""Avro messages into rows: a byte 0, the number of a schema in four bytes, and the value.

Import it inside ``needs_extra("kafka-avro", …)``: it needs fastavro.

One Python object is made for each value, at some 200,000 messages a second of processor time. The
native readers that are faster were not safe: they end the process, or take a part of one message
for the next one (ADR-0041).
"""

# fastavro has no types for its schemas.
# pyright: reportUnknownMemberType=false

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
from fastavro.schema import SchemaParseException

from laminar_core.connectors.formats.avro_types import (
    AvroSchema,
    SchemaWalk,
    stored_type,
    without_meaning,
)
from laminar_core.connectors.formats.fitting import check_column, fitted
from laminar_core.connectors.formats.messages import (
    MESSAGE_BYTES_MAX,
    Decoded,
    Defect,
    MessageRefusedError,
    Messages,
)
from laminar_core.connectors.formats.schema_registry import Schemas, SchemaText
from laminar_core.connectors.formats.sifting import Indexes, decode_rows, refused_by
from laminar_core.errors import ConfigurationError, ErrorCode

MAGIC = b"\x00"
PREFIX_BYTES = 5
_NO_SCHEMA = (
    SchemaParseException,
    ValueError,
    LookupError,
    TypeError,
    RecursionError,
    OverflowError,
)
"""Errors of fastavro for a text that is no schema, or a schema with impossible numbers."""
_ENCODED = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_binary,
    pa.types.is_large_binary,
)
"""Types of values that Arrow can encode in a dictionary while it builds a column."""
_UNKNOWN_KEPT = 1_000
"""Numbers of schemas that are remembered as unknown: a flood of them is not a flood of requests."""


@dataclass(frozen=True, slots=True)
class WriterSchema:
    """The schema that a message was written with, and the columns that the job reads."""

    parsed: AvroSchema
    """As fastavro reads with it: numbers in place of dates and times."""
    columns: pa.Schema


class AvroDecoder:
    """Reads messages that begin with the number of their schema."""

    def __init__(
        self, schema: pa.Schema, schemas: Schemas, message_bytes_max: int = MESSAGE_BYTES_MAX
    ) -> None:
        if len(set(schema.names)) < len(schema.names) or not schema.names:
            raise ConfigurationError(
                ErrorCode.WRONG_SCHEMA, "columns are taken by name, so each needs one of its own"
            )
        for field in schema:
            if any(map(_encodes_numbers, _leaves(field.type))):
                raise ConfigurationError(
                    ErrorCode.UNSUPPORTED_TYPE,
                    f"{field.name}: Avro has no form for {field.type}; declare another type and "
                    "convert it with map",
                )
        self.schema = schema
        self._reader = _AvroReader(schema, schemas)
        self._message_bytes_max = message_bytes_max

    def decode(self, messages: Messages) -> Decoded:
        """Return the rows of ``messages``, and a letter for each one that is no row.

        Raises:
            ConfigurationError: the registry refuses the credentials.
            StorageUnavailable: the registry does not answer.
        """
        return decode_rows(self._reader, messages, self._message_bytes_max)


class _AvroReader:
    """Reads messages of several schemas, and looks each schema up once."""

    def __init__(self, schema: pa.Schema, schemas: Schemas) -> None:
        self.schema = schema
        self._schemas = schemas
        self._known: dict[int, WriterSchema] = {}
        self._refused: dict[int, MessageRefusedError] = {}

    def suspects(self, values: pa.BinaryArray) -> Indexes:
        """None: the reader of a message never goes on behind its end."""
        del values
        return np.empty(0, np.int64)

    def doubtful(self, values: pa.BinaryArray) -> list[int]:
        """Messages that cannot be decoded."""
        return refused_by(self._decoded, values)

    def examine(self, value: bytes) -> None:
        """Refuse what cannot be decoded, or does not fit its columns."""
        self.read_one(value)

    def read_one(self, value: bytes) -> pa.RecordBatch:
        """Return the row of one message."""
        try:
            return self.read(pa.array([value], pa.binary()))
        except pa.ArrowException as error:
            raise MessageRefusedError(Defect.WRONG_TYPE, str(error)) from error

    def read(self, values: pa.BinaryArray) -> pa.RecordBatch:
        """Return one row for each message; those of one schema are converted together."""
        rows: dict[int, list[Mapping[str, Any]]] = {}
        places: dict[int, list[int]] = {}
        for place, value in enumerate(values.to_pylist()):
            schema_id, row = self._decoded(value)
            rows.setdefault(schema_id, []).append(row)
            places.setdefault(schema_id, []).append(place)
        parts = [self._fitted(self._known[schema_id], found) for schema_id, found in rows.items()]
        if len(parts) == 1:
            return parts[0]
        table = pa.Table.from_batches(parts, schema=self.schema).unify_dictionaries()
        in_order = np.argsort(np.concatenate([np.array(found) for found in places.values()]))
        return table.take(pa.array(in_order)).combine_chunks().to_batches()[0]

    def _decoded(self, value: bytes) -> tuple[int, Mapping[str, Any]]:
        if len(value) < PREFIX_BYTES or value[:1] != MAGIC:
            why = "it does not begin with a byte 0 and the number of a schema"
            raise MessageRefusedError(Defect.MALFORMED, why)
        schema_id = int.from_bytes(value[1:PREFIX_BYTES], "big")
        return schema_id, _value(self._writer(schema_id).parsed, value)

    def _writer(self, schema_id: int) -> WriterSchema:
        if schema_id in self._refused:
            raise self._refused[schema_id]
        if schema_id not in self._known:
            try:
                self._known[schema_id] = writer_schema(self._schemas.read(schema_id), self.schema)
            except MessageRefusedError as refused:
                if len(self._refused) >= _UNKNOWN_KEPT:
                    self._refused.clear()
                self._refused[schema_id] = refused
                raise
        return self._known[schema_id]

    def _fitted(self, writer: WriterSchema, rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
        columns = [
            pa.array([row[field.name] for row in rows], stored_type(field.type)).cast(field.type)
            for field in writer.columns
        ]
        for column in columns:
            if any(map(pa.types.is_time, _leaves(column.type))):
                column.validate(full=True)  # Arrow casts any number to a time of day.
        # A struct of columns knows its length even if there are no columns.
        valid = (
            pa.StructArray.from_arrays(columns, fields=list(writer.columns)) if columns else None
        )
        batch = (
            pa.RecordBatch.from_struct_array(valid)
            if valid is not None
            else pa.RecordBatch.from_pylist([{} for _ in rows], schema=writer.columns)
        )
        return fitted(batch, self.schema)


def writer_schema(text: SchemaText, wanted: pa.Schema) -> WriterSchema:
    """Return a schema that is safe to read, with the columns that the job reads.

    Raises:
        MessageRefusedError: it is not one (WRONG_SCHEMA, NOT_A_ROW).
    """
    try:
        declared = [json.loads(each) for each in (*text.named, text.text)]
        parsed, named = _parsed(declared)
        walk = SchemaWalk(named)
        walk.check(parsed)
        found = walk.fields(parsed)
        plain, named = _parsed([without_meaning(each) for each in declared])
    except _NO_SCHEMA as error:
        why = f"no Avro schema: {type(error).__name__} {error}"
        raise MessageRefusedError(Defect.WRONG_SCHEMA, why) from error
    if found is None:
        raise MessageRefusedError(Defect.NOT_A_ROW, "its schema is no record")
    there = [_without_zone(found, field) for field in wanted if field.name in found.names]
    columns = pa.schema(there)
    for field in wanted:
        check_column(columns, field)
    for of in named.values():
        if of["type"] == "enum":  # In a list the reader would count negative numbers from the end.
            symbols: list[str] = of["symbols"]
            of["symbols"] = dict(enumerate(symbols))
    return WriterSchema(plain, columns)


def _encodes_numbers(of: pa.DataType) -> bool:
    """Return whether this is a dictionary of values that Arrow does not encode."""
    return pa.types.is_dictionary(of) and not any(holds(of.value_type) for holds in _ENCODED)


def _leaves(of: pa.DataType) -> Iterator[pa.DataType]:
    """Yield the types of the values in a column of this type, at any depth."""
    inner = list(of) if pa.types.is_struct(of) else []
    inner += [of.value_field] if pa.types.is_list(of) else []
    inner += [of.item_field] if pa.types.is_map(of) else []
    if not inner:
        yield of
    for field in inner:
        yield from _leaves(field.type)


def _parsed(declared: Sequence[AvroSchema]) -> tuple[AvroSchema, Mapping[str, AvroSchema]]:
    named: dict[str, Any] = {}
    parsed = [fastavro.parse_schema(each, named_schemas=named) for each in declared]
    return parsed[-1], named


def _without_zone(found: pa.Schema, wanted: pa.Field) -> pa.Field:
    """Return a message's column, as a time in UTC if the declared column has no zone."""
    field = found.field(wanted.name)
    of = field.type
    if pa.types.is_timestamp(of) and pa.types.is_timestamp(wanted.type) and wanted.type.tz is None:
        return field.with_type(pa.timestamp(of.unit))
    return field


def _value(schema: AvroSchema, message: bytes) -> Mapping[str, Any]:
    stream = BytesIO(message)
    stream.seek(PREFIX_BYTES)
    try:
        found = fastavro.schemaless_reader(stream, schema, None)
    except MemoryError:
        raise  # The machine's fault: a value is no larger than its bytes.
    except Exception as error:
        why = f"not of its schema: {type(error).__name__} {error}"
        raise MessageRefusedError(Defect.MALFORMED, why) from error
    behind = len(message) - stream.tell()
    if behind:
        raise MessageRefusedError(Defect.MALFORMED, f"{behind} bytes behind the value")
    assert isinstance(found, Mapping), "the schema is a record"
    return found
