"""Columns of foreign messages made those that a schema declares, if every value fits."""

import pyarrow as pa

from laminar_core.connectors.formats.messages import Defect, MessageRefusedError
from laminar_core.connectors.formats.required import check_required

_FAMILIES = (
    (pa.types.is_integer,),
    (pa.types.is_floating,),
    (pa.types.is_decimal,),
    (pa.types.is_date,),
    (pa.types.is_time,),
    (pa.types.is_duration,),
    (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    (
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_binary_view,
        pa.types.is_fixed_size_binary,
    ),
)
"""Types that are converted into each other, as long as every value fits."""


def check_column(found: pa.Schema, wanted: pa.Field) -> bool:
    """Return whether a message with these columns has the wanted one, of a type that fits.

    Raises:
        MessageRefusedError: the type does not fit, the name is ambiguous, or a column that must
            have values is not there (WRONG_SCHEMA).
    """
    name = wanted.name
    count = found.names.count(name)
    if count == 1 and not _fits(found.field(name).type, wanted.type):
        why = f"column {name} is {found.field(name).type}, which does not fit {wanted.type}"
        raise MessageRefusedError(Defect.WRONG_SCHEMA, why)
    if count > 1:
        raise MessageRefusedError(Defect.WRONG_SCHEMA, f"more than one column {name}")
    if not count and not wanted.nullable:
        raise MessageRefusedError(Defect.WRONG_SCHEMA, f"no column {name}")
    return count == 1


def fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows with the columns of ``schema``, null where the message has no such column.

    Raises:
        MessageRefusedError: a value does not fit (WRONG_TYPE), or is missing (MISSING_VALUE).
    """
    columns = [
        _converted(batch.column(field.name), field.type)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    rows = pa.RecordBatch.from_arrays(columns, schema=schema)
    check_required(rows, schema)
    return rows


def _values(of: pa.DataType) -> pa.DataType:
    return of.value_type if pa.types.is_dictionary(of) else of


def _fits(found: pa.DataType, wanted: pa.DataType) -> bool:
    found, wanted = _values(found), _values(wanted)
    if pa.types.is_timestamp(found) and pa.types.is_timestamp(wanted):
        return (found.tz is None) == (wanted.tz is None)
    if pa.types.is_list(found) and pa.types.is_list(wanted):
        return _field_fits(found.value_field, wanted.value_field)
    if pa.types.is_struct(found) and pa.types.is_struct(wanted):
        return [f.name for f in found] == [f.name for f in wanted] and all(
            _field_fits(inner, other) for inner, other in zip(found, wanted, strict=True)
        )
    if found == wanted:
        return True
    if pa.types.is_decimal(found) and not 0 <= found.scale <= found.precision:
        return False  # Arrow takes any scale for a place in its table of powers of ten.
    return any(
        any(holds(found) for holds in family) and any(holds(wanted) for holds in family)
        for family in _FAMILIES
    )


def _field_fits(found: pa.Field, wanted: pa.Field) -> bool:
    """Arrow makes no field that may be null one that may not."""
    return _fits(found.type, wanted.type) and (wanted.nullable or not found.nullable)


def _converted(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    try:
        return column if column.type == wanted else column.cast(wanted)
    except pa.ArrowInvalid as error:
        raise MessageRefusedError(Defect.WRONG_TYPE, str(error)) from error
