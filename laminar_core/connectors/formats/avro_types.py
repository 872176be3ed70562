"""Avro schemas as Arrow types, and the schemas that are refused because a message could abuse them.

Source: Avro 1.12 specification, "Schema Declaration" and "Logical Types". A schema comes from a
registry, so it is foreign as well. Refused are:

- *recursive schemas*: a message of few bytes nests as deep as it likes, and the native reader has
  no limit of depth;
- *arrays of items without bytes* (null, an empty record, a fixed of size 0): a message of ten bytes
  can claim a billion items, and all of them would be there.
"""

# Schemas of Avro are JSON of any shape.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from laminar_core.connectors.formats.messages import Defect, MessageRefusedError

AvroSchema = Any
"""A schema as JSON gives it: a name, a list (a union), or an object."""

DEPTH_MAX = 64

_PRIMITIVES = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL: Mapping[tuple[str, str | None], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "timestamp-nanos"): pa.timestamp("ns", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-nanos"): pa.timestamp("ns"),
}
"""Numbers with a meaning; any other logical type but ``decimal`` is the type below it."""

_DECIMAL_DIGITS_MAX = 76


class SchemaWalk:
    """Reads one schema: named types are known from where they were declared."""

    def __init__(self, named: Mapping[str, AvroSchema]) -> None:
        self._named = named
        self._open: list[str] = []

    def check(self, schema: AvroSchema, depth: int = 0) -> bool:
        """Check a schema, and return whether each of its values has at least one byte.

        Raises:
            MessageRefusedError: a message could abuse it (WRONG_SCHEMA).
        """
        if depth > DEPTH_MAX:
            raise _refused(f"nested deeper than {DEPTH_MAX}")
        if isinstance(schema, list):  # A union writes the number of its branch.
            for branch in schema:
                self.check(branch, depth + 1)
            return True
        if isinstance(schema, str):
            return self._check_name(schema, depth)
        return self._check_object(schema, depth)

    def _check_name(self, name: str, depth: int) -> bool:
        if name in _PRIMITIVES:
            return name != "null"
        if name in self._open:
            raise _refused(f"{name} contains itself")
        return self.check(self._declared(name), depth)

    def _check_object(self, schema: Mapping[str, Any], depth: int) -> bool:
        of = schema["type"]
        if of in ("record", "error"):
            self._open.append(schema["name"])
            has_bytes = [self.check(field["type"], depth + 1) for field in schema["fields"]]
            self._open.pop()
            return any(has_bytes)
        if of == "array" and not self.check(schema["items"], depth + 1):
            raise _refused("an array whose items have no bytes")
        if of == "map":
            self.check(schema["values"], depth + 1)
        if of == "fixed":
            return int(schema["size"]) > 0
        return True if of in ("array", "map", "enum") else self.check(of, depth + 1)

    def _declared(self, name: str) -> AvroSchema:
        found = self._named.get(name)
        if found is None:
            raise _refused(f"it names a type {name} that is not declared")
        return found

    # --- as Arrow types -----------------------------------------------------------------------

    def fields(self, schema: AvroSchema) -> pa.Schema | None:
        """Return the columns of a record, as far as Arrow has types for them; None: no record."""
        record = (
            self._declared(schema) if isinstance(schema, str) and schema in self._named else schema
        )
        if not isinstance(record, Mapping) or record["type"] not in ("record", "error"):
            return None
        return pa.schema(list(self._known(record)))

    def _known(self, record: Mapping[str, Any]) -> Iterator[pa.Field]:
        """Leave out unions of several types, which no column can hold."""
        for field in record["fields"]:
            try:
                yield self._field(field["name"], field["type"])
            except MessageRefusedError:
                continue

    def _field(self, name: str, schema: AvroSchema) -> pa.Field:
        of, nullable = self._type(schema)
        return pa.field(name, of, nullable)

    def _type(self, schema: AvroSchema) -> tuple[pa.DataType, bool]:
        """Return the type, and whether it may be null."""
        if isinstance(schema, list):
            branches = [branch for branch in schema if branch != "null"]
            if len(branches) != 1:
                raise _refused("a union of several types")
            return self._type(branches[0])[0], "null" in schema
        if isinstance(schema, str):
            known = _PRIMITIVES.get(schema)
            return (known, schema == "null") if known else self._type(self._declared(schema))
        return self._complex(schema), False

    def _complex(self, schema: Mapping[str, Any]) -> pa.DataType:
        of, logical = schema["type"], schema.get("logicalType")
        if logical == "decimal" and int(schema["precision"]) <= _DECIMAL_DIGITS_MAX:
            return pa.decimal256(int(schema["precision"]), int(schema.get("scale", 0)))
        if isinstance(of, str) and (of, logical) in _LOGICAL:
            return _LOGICAL[of, logical]
        match of:
            case "record" | "error":
                return pa.struct([self._field(f["name"], f["type"]) for f in schema["fields"]])
            case "array":
                return pa.list_(self._field("item", schema["items"]))
            case "map":
                return pa.map_(pa.string(), self._field("value", schema["values"]))
            case "enum":
                return pa.string()
            case "fixed":
                return pa.binary(int(schema["size"]))
            case _:
                return self._type(of)[0]


def without_meaning(schema: AvroSchema) -> AvroSchema:
    """Return the schema with numbers in place of dates and times; decimals stay.

    The reader then makes no object for each date: Arrow converts whole columns instead.

    >>> without_meaning({"type": "long", "logicalType": "timestamp-micros"})
    {'type': 'long'}
    """
    if isinstance(schema, list):
        return [without_meaning(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    is_decimal = schema.get("logicalType") == "decimal"
    return {
        name: without_meaning(value) if name in ("type", "items", "values", "fields") else value
        for name, value in schema.items()
        if name != "logicalType" or is_decimal
    }


def stored_type(of: pa.DataType) -> pa.DataType:
    """Return the type of the values that the reader makes of a column of this type."""
    if pa.types.is_struct(of):
        return pa.struct([field.with_type(stored_type(field.type)) for field in of])
    if pa.types.is_list(of):
        return pa.list_(of.value_field.with_type(stored_type(of.value_type)))
    if pa.types.is_map(of):
        return pa.map_(pa.string(), of.item_field.with_type(stored_type(of.item_type)))
    if pa.types.is_date32(of) or pa.types.is_time32(of):
        return pa.int32()
    if pa.types.is_time64(of) or pa.types.is_timestamp(of):
        return pa.int64()
    return of


def _refused(why: str) -> MessageRefusedError:
    return MessageRefusedError(Defect.WRONG_SCHEMA, f"Avro schema: {why}")
