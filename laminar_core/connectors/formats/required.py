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
    below = column.drop_null()  # What is below a null is not there.
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
