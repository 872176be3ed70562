"""Decode dictionary columns to plain ones.

Dictionaries are a gain between operators and a burden at the edges: a Parquet reader would see the
encoding, Spark declares plain types, and an Arrow file allows one dictionary per column only.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
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


def plain_tables(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, bytes_max: int
) -> Iterator[pa.Table]:
    """Yield the rows in the types of ``schema``.

    A few long texts in a dictionary can make gigabytes of a small batch. One whose text would have
    more than ``bytes_max`` comes in parts, of a row at least; others come together, because
    decoding many small ones costs more for each than for its rows.

    Raises:
        pyarrow.ArrowException, ValueError: a column cannot be decoded.
    """
    small: list[pa.RecordBatch] = []
    for batch in batches:
        parts = _parts(batch, bytes_max)
        if len(parts) == 1:
            small.append(batch)
            continue
        yield from _decoded(small, schema)
        small = []
        for start, stop in parts:
            yield from _decoded([batch.slice(start, stop - start)], schema)
    yield from _decoded(small, schema)


def _decoded(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    if batches:
        yield pa.Table.from_batches(batches).cast(schema)


def _parts(batch: pa.RecordBatch, bytes_max: int) -> Sequence[tuple[int, int]]:
    """Return the first row of each part and the one behind its last."""
    row_bytes = sum(
        _text_bytes(column)
        for column in batch.columns
        # Otherwise no length can matter, and a dictionary may be much longer than the batch.
        if pa.types.is_dictionary(column.type)
        and len(column) * column.dictionary.nbytes > bytes_max
        and _is_text(column.dictionary.type)
    )
    behind = np.cumsum(np.broadcast_to(np.asarray(row_bytes, np.int64), batch.num_rows))
    parts: list[tuple[int, int]] = []
    start = 0
    while start < batch.num_rows:
        before = behind[start - 1] if start else 0
        stop = max(int(np.searchsorted(behind, before + bytes_max, side="right")), start + 1)
        parts.append((start, stop))
        start = stop
    return parts


def _text_bytes(column: pa.DictionaryArray) -> npt.NDArray[np.int64]:
    """Return the length of the text in each row; 0 for a null."""
    lengths = call_function("binary_length", [column.dictionary])
    return lengths.take(column.indices).fill_null(0).to_numpy().astype(np.int64)


def _is_text(data_type: pa.DataType) -> bool:
    types = pa.types
    return (
        types.is_string(data_type)
        or types.is_large_string(data_type)
        or types.is_binary(data_type)
        or types.is_large_binary(data_type)
    )
