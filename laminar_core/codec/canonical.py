"""Equal keys as equal bytes: floating point has two zeros and many NaN, and keys have one of each.

Spark normalises keys in the same way before it groups or joins by them.
"""

import pyarrow as pa
from pyarrow.compute import call_function


def is_ambiguous(data_type: pa.DataType) -> bool:
    """Return whether equal values of this type may have different bytes."""
    if pa.types.is_dictionary(data_type):
        return is_ambiguous(data_type.value_type)
    if pa.types.is_struct(data_type):
        return any(is_ambiguous(field.type) for field in data_type)
    return pa.types.is_floating(data_type)


def canonical(column: pa.Array) -> pa.Array:
    """Return the values such that equal ones have equal bytes.

    The type stays, but a dictionary of such values comes back as plain values.
    """
    if not is_ambiguous(column.type):
        return column
    if pa.types.is_dictionary(column.type):
        return canonical(column.dictionary_decode())
    if pa.types.is_struct(column.type):
        parts = [canonical(part) for part in column.flatten()]
        return struct_of(parts, column.type, column.is_null())
    return canonical_floats(column)


def canonical_floats(column: pa.Array) -> pa.Array:
    """Return floating-point numbers with one zero and one NaN, in the same type."""
    if pa.types.is_float16(column.type):  # It cannot be added.
        return canonical_floats(column.cast(pa.float32())).cast(column.type)
    added = call_function("add", [column, pa.scalar(0.0, column.type)])  # -0.0 + 0.0 is 0.0.
    is_nan = call_function("is_nan", [added])
    if not call_function("any", [is_nan]).as_py():
        return added
    return call_function("if_else", [is_nan, pa.scalar(float("nan"), added.type), added])


def struct_of(parts: list[pa.Array], data_type: pa.DataType, is_null: pa.Array) -> pa.Array:
    """Build structs of ``data_type`` from their fields; rows with ``is_null`` are null."""
    return pa.StructArray.from_arrays(parts, fields=list(data_type), mask=is_null)
