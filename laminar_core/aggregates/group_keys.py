"""Key columns in a form that pyarrow can group by, and back.

pyarrow compares keys byte by byte and takes no structs. So floating-point keys get one zero and one
NaN, and a struct becomes its fields, with a column that tells a null struct from one of nulls.
"""

from collections.abc import Iterator

import pyarrow as pa
from pyarrow.compute import call_function

from laminar_core.aggregates.row_groups import as_array
from laminar_core.codec.canonical import canonical, is_ambiguous, struct_of


def flat_keys(key: pa.ChunkedArray) -> list[pa.ChunkedArray]:
    """Return the columns to group by in place of ``key``; most often ``key`` itself."""
    values = key.type.value_type if pa.types.is_dictionary(key.type) else key.type
    if not (is_ambiguous(values) or pa.types.is_struct(values)):
        return [key]
    column = as_array(key)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return [pa.chunked_array([part]) for part in _flat(canonical(column))]


def _flat(column: pa.Array) -> Iterator[pa.Array]:
    if not pa.types.is_struct(column.type):
        yield column
        return
    yield column.is_valid()
    for part in column.flatten():
        yield from _flat(part)


def restored_key(data_type: pa.DataType, flat: Iterator[pa.ChunkedArray]) -> pa.ChunkedArray:
    """Take the columns of one key from ``flat`` and return the key.

    ``data_type``: the type of the key before ``flat_keys``. A dictionary of floats or structs comes
    back as plain values.
    """
    values = data_type.value_type if pa.types.is_dictionary(data_type) else data_type
    if not pa.types.is_struct(values):
        return next(flat)
    return pa.chunked_array([_restored(values, flat)])


def _restored(data_type: pa.DataType, flat: Iterator[pa.ChunkedArray]) -> pa.Array:
    if not pa.types.is_struct(data_type):
        return as_array(next(flat))
    is_null = call_function("invert", [as_array(next(flat))])
    parts = [_restored(field.type, flat) for field in data_type]
    return struct_of(parts, data_type, is_null)
