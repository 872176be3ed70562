"""Find nulls where a schema allows none; Arrow's readers and validation do not look for them."""

import pyarrow as pa

from laminar_core.connectors.formats.messages import Defect, MessageRefusedError


def check_required(rows: pa.RecordBatch, schema: pa.Schema) -> None:
    """Check that no column, and no field of a struct or list, is null where it must not be.

    Raises:
        MessageRefusedError: one is; the reason names it.
    """
    for field, column in zip(schema, rows.columns, strict=True):
        path = _missing(column, field)
        if path:
            raise MessageRefusedError(Defect.MISSING_VALUE, f"no value for {path}")


def _missing(column: pa.Array, field: pa.Field) -> str | None:
    """Return the path of a field that is null and must not be."""
    if column.null_count and not field.nullable:
        return field.name
    # An array of no lists may have any offset, and ``flatten`` would end the process with it.
    if not len(column) or not _requires_inside(field.type):
        return None
    below = _without_nulls(column)  # What is below a null is not there.
    if pa.types.is_struct(field.type):
        inner = zip(below.flatten(), field.type, strict=True)
    else:
        inner = [(below.flatten(), field.type.value_field)]
    paths = (_missing(values, child) for values, child in inner)
    return next((f"{field.name}.{path}" for path in paths if path), None)


def _requires_inside(of: pa.DataType) -> bool:
    """Whether a type has a field that must not be null."""
    inner = list(of) if pa.types.is_struct(of) else []
    inner += [of.value_field] if pa.types.is_list(of) or pa.types.is_large_list(of) else []
    return any(not field.nullable or _requires_inside(field.type) for field in inner)


def _without_nulls(column: pa.Array) -> pa.Array:
    try:
        return column.drop_null()
    except pa.ArrowNotImplementedError:  # Arrow cannot take views.
        return column.cast(_without_views(column.type)).drop_null()


def _without_views(of: pa.DataType) -> pa.DataType:
    """Return a type with texts and bytes in place of views; everything inside may be null."""
    if pa.types.is_struct(of):
        return pa.struct([(field.name, _without_views(field.type)) for field in of])
    if pa.types.is_list(of):
        return pa.list_(_without_views(of.value_type))
    if pa.types.is_large_list(of):
        return pa.large_list(_without_views(of.value_type))
    if pa.types.is_string_view(of):
        return pa.string()
    return pa.binary() if pa.types.is_binary_view(of) else of
