"""Columns that JSON can hold, and the way from the types that its parser knows to theirs.

``pyarrow.json`` knows neither dates as text nor dictionaries nor large lists. It reads such a
column as a type that it knows, and the column is converted afterwards.
"""

import pyarrow as pa

from laminar_core.errors import ConfigurationError, ErrorCode

_AS_THEY_ARE = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_decimal,
    pa.types.is_timestamp,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
)
_ENCODED = (pa.types.is_string, pa.types.is_large_string, pa.types.is_date)
"""Types of values that dictionaries may have: Arrow encodes texts, and dates are read as texts."""
DICTIONARY_INDEX = pa.int32()


def parsed_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema with types that the parser knows.

    Raises:
        ConfigurationError: there is no column, a name is not unique, or a type has no form in JSON.
    """
    if not len(schema):
        raise ConfigurationError(
            ErrorCode.WRONG_SCHEMA, "the schema has no columns: declare at least one"
        )
    return pa.schema([_parsed_field(field, field.name) for field in _unique(schema, "the schema")])


def _unique(fields: pa.Schema | pa.StructType, where: str) -> list[pa.Field]:
    names = [field.name for field in fields]
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(
                ErrorCode.WRONG_SCHEMA, f"{where} has more than one field {name!r}"
            )
    return list(fields)


def _parsed_field(field: pa.Field, path: str) -> pa.Field:
    return pa.field(field.name, _parsed_type(field.type, path, is_column="." not in path))


def _parsed_type(wanted: pa.DataType, path: str, *, is_column: bool) -> pa.DataType:
    is_float = pa.types.is_float32(wanted) or pa.types.is_float64(wanted)
    if is_float or any(holds(wanted) for holds in _AS_THEY_ARE):
        return wanted
    if pa.types.is_date(wanted):
        return pa.string()
    is_dictionary = pa.types.is_dictionary(wanted) and wanted.index_type == DICTIONARY_INDEX
    if is_dictionary and is_column and any(holds(wanted.value_type) for holds in _ENCODED):
        return _parsed_type(wanted.value_type, f"{path}.values", is_column=False)
    if pa.types.is_struct(wanted) and wanted.num_fields:
        inner = _unique(wanted, path)
        return pa.struct([_parsed_field(field, f"{path}.{field.name}") for field in inner])
    if pa.types.is_list(wanted) or pa.types.is_large_list(wanted):
        items = wanted.value_field
        return pa.list_(_parsed_field(items, f"{path}.{items.name}"))
    raise ConfigurationError(
        ErrorCode.UNSUPPORTED_TYPE,
        f"{path}: JSON has no form for {wanted}; declare another type and convert it with map",
    )


def converted(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return a column as the parser gave it in the type that was asked for.

    Raises:
        pa.ArrowInvalid: a text is no date.
    """
    if column.type == wanted:
        return column
    if pa.types.is_struct(wanted):
        # A field of a null struct holds anything; ``flatten`` makes it null.
        inner = zip(column.flatten(), wanted, strict=True)
        children = [converted(values, field.type) for values, field in inner]
        return pa.StructArray.from_arrays(
            children, fields=list(wanted), mask=column.is_null() if column.null_count else None
        )
    if pa.types.is_list(wanted) or pa.types.is_large_list(wanted):
        return _converted_list(column, wanted)
    return column.cast(wanted)


def _converted_list(column: pa.ListArray, wanted: pa.DataType) -> pa.Array:
    values = converted(column.values, wanted.value_type)
    kind = pa.LargeListArray if pa.types.is_large_list(wanted) else pa.ListArray
    index = pa.int64() if pa.types.is_large_list(wanted) else pa.int32()
    mask = column.is_null() if column.null_count else None
    return kind.from_arrays(column.offsets.cast(index), values, type=wanted, mask=mask)
