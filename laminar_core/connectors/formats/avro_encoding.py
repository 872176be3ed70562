"""Rows into Avro messages, each behind a byte 0 and the number of its schema.

Import it inside ``needs_extra("kafka-avro", …)``: it needs fastavro.
"""

# fastavro has no types for its schemas.
# pyright: reportUnknownMemberType=false

import json
import re
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa

from laminar_core.connectors.formats.avro_decoding import MAGIC
from laminar_core.connectors.formats.avro_types import AvroSchema, stored_type, without_meaning
from laminar_core.connectors.plain import plain_schema
from laminar_core.errors import ConfigurationError, DataError, ErrorCode

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PRIMITIVE = (
    (pa.types.is_boolean, "boolean", pa.bool_()),
    (pa.types.is_int8, "int", pa.int32()),
    (pa.types.is_int16, "int", pa.int32()),
    (pa.types.is_int32, "int", pa.int32()),
    (pa.types.is_uint8, "int", pa.int32()),
    (pa.types.is_uint16, "int", pa.int32()),
    (pa.types.is_uint32, "long", pa.int64()),
    (pa.types.is_int64, "long", pa.int64()),
    (pa.types.is_float16, "float", pa.float32()),
    (pa.types.is_float32, "float", pa.float32()),
    (pa.types.is_float64, "double", pa.float64()),
    (pa.types.is_string, "string", pa.string()),
    (pa.types.is_large_string, "string", pa.string()),
    (pa.types.is_binary, "bytes", pa.binary()),
    (pa.types.is_large_binary, "bytes", pa.binary()),
)
_UNITS = {"s": "millis", "ms": "millis", "us": "micros", "ns": "nanos"}
_ARROW_UNITS = {"millis": "ms", "micros": "us", "nanos": "ns"}


def avro_schema(schema: pa.Schema, name: str) -> AvroSchema:
    """Return the record that rows of ``schema`` are written as.

    Raises:
        ConfigurationError: a column has a name or a type that Avro does not have.
    """
    return _record(name, list(plain_schema(schema)), set())[0]


class AvroEncoder:
    """Writes each row as a message that begins with the number of its schema."""

    def __init__(self, schema: pa.Schema, name: str, schema_id: int) -> None:
        declared, written = _record(name, list(plain_schema(schema)), set())
        self._written = pa.schema(list(written))
        self._schema = fastavro.parse_schema(without_meaning(declared))
        self._prefix = MAGIC + schema_id.to_bytes(4, "big")

    def encode(self, rows: pa.RecordBatch) -> pa.LargeBinaryArray:
        """Return one message for each row.

        Raises:
            DataError: a value has no form in Avro.
        """
        try:
            columns = [
                column.cast(field.type).cast(stored_type(field.type))
                for column, field in zip(rows.columns, self._written, strict=True)
            ]
            batch = pa.RecordBatch.from_arrays(columns, names=self._written.names)
            messages = [self._message(row) for row in batch.to_pylist()]
        except (pa.ArrowInvalid, ValueError, OverflowError) as error:
            raise DataError(ErrorCode.NOT_ENCODABLE, f"no value of Avro: {error}") from error
        return pa.array(messages, pa.large_binary())

    def _message(self, row: dict[str, Any]) -> bytes:
        stream = BytesIO()
        stream.write(self._prefix)
        fastavro.schemaless_writer(stream, self._schema, row)
        return stream.getvalue()


def canonical(schema: AvroSchema) -> str:
    """Return the text of a schema that is registered: equal schemas have equal texts."""
    return json.dumps(schema, separators=(",", ":"))


def _record(name: str, fields: list[pa.Field], taken: set[str]) -> tuple[AvroSchema, pa.StructType]:
    """Return a record in Avro, whose name no other one of the schema has, and its Arrow type."""
    while name in taken:  # As ``a_b`` and ``b`` inside of ``a`` would.
        name += "_"
    taken.add(name)
    declared: list[AvroSchema] = []
    written: list[pa.Field] = []
    for field in fields:
        if not _NAME.fullmatch(field.name):
            raise ConfigurationError(
                ErrorCode.WRONG_SCHEMA,
                f"column {field.name!r} has a name that Avro does not allow: use letters, digits "
                "and _, and begin with no digit",
            )
        if any(field.name == other.name for other in written):
            why = f"more than one column {field.name}: each needs a name of its own"
            raise ConfigurationError(ErrorCode.WRONG_SCHEMA, why)
        of, arrow = _type(f"{name}_{field.name}", field, taken)
        # Older messages lack a column that is added: a registry asks for its default.
        optional = {"type": ["null", of], "default": None}
        declared.append({"name": field.name, **(optional if field.nullable else {"type": of})})
        written.append(pa.field(field.name, arrow, field.nullable))
    return {"type": "record", "name": name, "fields": declared}, pa.struct(written)


def _type(name: str, field: pa.Field, taken: set[str]) -> tuple[AvroSchema, pa.DataType]:
    """Return a type in Avro, and the Arrow type that has the same values."""
    of = field.type
    for holds, avro, arrow in _PRIMITIVE:
        if holds(of):
            return avro, arrow
    if pa.types.is_date(of):
        return {"type": "int", "logicalType": "date"}, pa.date32()
    if pa.types.is_time32(of):
        return {"type": "int", "logicalType": "time-millis"}, pa.time32("ms")
    if pa.types.is_time64(of):
        return {"type": "long", "logicalType": "time-micros"}, pa.time64("us")
    if pa.types.is_timestamp(of):
        unit = _UNITS[of.unit]
        local = "local-" if of.tz is None else ""
        arrow = pa.timestamp(_ARROW_UNITS[unit], None if of.tz is None else "UTC")
        return {"type": "long", "logicalType": f"{local}timestamp-{unit}"}, arrow
    if pa.types.is_decimal(of) and 0 <= of.scale <= of.precision:
        digits = {"precision": of.precision, "scale": of.scale}
        return {"type": "bytes", "logicalType": "decimal", **digits}, of
    if pa.types.is_struct(of):
        return _record(name, list(of), taken)
    if pa.types.is_list(of) or pa.types.is_large_list(of):
        item, arrow = _type(f"{name}_item", of.value_field, taken)
        items = ["null", item] if of.value_field.nullable else item
        return {"type": "array", "items": items}, pa.list_(of.value_field.with_type(arrow))
    raise ConfigurationError(
        ErrorCode.UNSUPPORTED_TYPE, f"column {field.name}: {of} has no form in Avro: cast it first"
    )
