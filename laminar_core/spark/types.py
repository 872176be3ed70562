"""Convert Arrow columns for Spark: types that it lacks become types that it has."""

# pyarrow ships no types, which the strict mode of this package would not accept.
# pyright: standard

from collections.abc import Iterator
from inspect import signature
from typing import Any

import pyarrow as pa
import pyspark.sql.types
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from laminar_core.errors import ConfigurationError, ErrorCode

ROWS_AT_ONCE = 65_536
_DIGITS_MAX = 38
_WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
    pa.null(): pa.string(),
    pa.large_string(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.string_view(): pa.string(),
    pa.binary_view(): pa.binary(),
}


_IN_UTC: dict[str, Any] = (
    {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
)
"""PySpark before 4.2 takes no time zone: its timestamps are in UTC anyway."""

_TIME_OF_DAY = pa.time64("us") if hasattr(pyspark.sql.types, "TimeType") else pa.string()
"""Spark before 4.1 has no type for times of day: they become text, such as 12:30:00.000000."""


def spark_schema(columns: pa.Schema) -> StructType:
    """Return the Spark schema of these columns, all nullable."""
    known = pa.schema([pa.field(column.name, _known(column.type)) for column in columns])
    return from_arrow_schema(known, prefer_timestamp_ntz=True)


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema in which Spark takes these columns."""
    return to_arrow_schema(schema, **_IN_UTC)


def spark_batches(rows: pa.Table, schema: StructType) -> Iterator[pa.RecordBatch]:
    """Yield batches with exactly the columns of ``schema``; missing ones are null.

    Raises:
        ConfigurationError: a column has values that the type cannot represent.
    """
    target = arrow_schema(schema)
    columns = [_as(rows, field) for field in target]
    table = pa.Table.from_arrays(columns, schema=target)
    yield from table.combine_chunks().to_batches(max_chunksize=ROWS_AT_ONCE)


def _as(rows: pa.Table, wanted: pa.Field) -> pa.Array:
    if wanted.name not in rows.schema.names:
        return pa.nulls(rows.num_rows, wanted.type)
    column = rows.column(wanted.name).combine_chunks()
    try:
        return _converted(column, wanted.type)
    except pa.ArrowException as error:
        reason = str(error).partition("\n")[0]
        raise ConfigurationError(
            ErrorCode.WRONG_SCHEMA, f"column {wanted.name!r} is {column.type}: {reason}"
        ) from error


def _converted(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Cast it; fields of a struct are found by name, and null if they are not there."""
    if column.type == wanted:
        return column
    if pa.types.is_dictionary(column.type):
        return _converted(column.dictionary_decode(), wanted)
    if not (pa.types.is_struct(column.type) and pa.types.is_struct(wanted)):
        return column.cast(wanted)
    given = dict(zip((field.name for field in column.type), column.flatten(), strict=True))
    fields = [
        _converted(given[field.name], field.type)
        if field.name in given
        else pa.nulls(len(column), field.type)
        for field in wanted
    ]
    return pa.StructArray.from_arrays(fields, fields=list(wanted), mask=column.is_null())


def _known(of: pa.DataType) -> pa.DataType:
    types = pa.types
    if isinstance(of, pa.BaseExtensionType):
        return _known(of.storage_type)
    if of in _WIDER:
        return _WIDER[of]
    if types.is_dictionary(of):
        return _known(of.value_type)
    if types.is_timestamp(of):
        return pa.timestamp("us", tz=None if of.tz is None else "UTC")
    if types.is_time(of):
        return _TIME_OF_DAY
    if types.is_duration(of):
        return pa.duration("us")
    if types.is_decimal(of):
        return pa.decimal128(of.precision, of.scale) if of.precision <= _DIGITS_MAX else pa.string()
    if types.is_fixed_size_binary(of):
        return pa.binary()
    return _nested(of)


def _nested(of: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_struct(of):
        return pa.struct([pa.field(field.name, _known(field.type)) for field in of])
    if types.is_list(of) or types.is_large_list(of) or types.is_fixed_size_list(of):
        return pa.list_(_known(of.value_type))
    if types.is_map(of):
        return pa.map_(_known(of.key_type), _known(of.item_type))
    return of
