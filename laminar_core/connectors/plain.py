"""Decode dictionary columns to plain ones.

Dictionaries are a gain between operators and a burden at the edges: a Parquet reader would see the
encoding, Spark declares plain types, and an Arrow file allows one dictionary per column only.
"""

from collections.abc import Iterator

import pyarrow as pa
from pyarrow.compute import call_function


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return ``schema`` with every dictionary column replaced by a column of its value type.

    >>> plain_schema(pa.schema([("k", pa.dictionary(pa.int32(), pa.string()))])).field("k").type
    DataType(string)
    """
    return pa.schema(
        [
            field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field
            for field in schema
        ]
    )


def plain_batches(
    batch: pa.RecordBatch, schema: pa.Schema, bytes_max: int
) -> Iterator[pa.RecordBatch]:
    """Yield the rows in the types of ``schema``, in parts whose text has ``bytes_max`` at most.

    A few long texts in a dictionary can make gigabytes of a small batch. A row with more than
    ``bytes_max`` is a part of its own.

    Raises:
        pyarrow.ArrowException: a column cannot be decoded.
    """
    if batch.schema.equals(schema):
        yield batch
        return
    row_bytes = sum(_text_bytes_max(column, bytes_max) for column in batch.columns)
    rows_max = max(bytes_max // max(row_bytes, 1), 1)
    for start in range(0, batch.num_rows, rows_max):
        yield batch.slice(start, rows_max).cast(schema)


def _text_bytes_max(column: pa.Array, bytes_max: int) -> int:
    """Return the length of the longest text in the dictionary; 0 if no length can matter."""
    if not pa.types.is_dictionary(column.type):
        return 0
    values = column.dictionary
    if len(column) * values.nbytes <= bytes_max or not _is_text(values.type):
        return 0
    return call_function("max", [call_function("binary_length", [values])]).as_py() or 0


def _is_text(data_type: pa.DataType) -> bool:
    types = pa.types
    return (
        types.is_string(data_type)
        or types.is_large_string(data_type)
        or types.is_binary(data_type)
        or types.is_large_binary(data_type)
    )
