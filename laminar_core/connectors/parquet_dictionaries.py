"""Which columns of a Parquet file get dictionaries.

In each row group, Arrow gives a dictionary up once that is too large, and writes the rest of the
column without one. By then it has hashed thousands of values, and the dictionary stays in the file.
For numbers that hardly repeat, that is a quarter of the time of writing, and a tenth of the file.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from laminar_core.aggregates.numbered_keys import estimated_distinct

DICTIONARY_BYTES_MAX = 192 << 10
"""Largest dictionary of a column in a row group.

Arrow's own limit, a megabyte, leaves room for every number of a row group. Where numbers hardly
repeat, such a dictionary takes five times the time and makes the file larger.
"""

_VALUE_BYTES = 8


def columns_with_dictionary(rows: pa.Table) -> bool | list[str]:
    """Return the columns that get dictionaries, for ``ParquetWriter(use_dictionary=...)``.

    ``rows``: the first row group of the file. Left out are columns of 64 bits without nulls, such
    as integers, floats and timestamps, whose dictionary would be too large. True: all columns,
    also where one is nested, because that is several columns in the file, with names of their own.
    """
    if any(pa.types.is_nested(data_type) for data_type in rows.schema.types):
        return True
    names = [
        name
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
        if not _has_words(column)
        or _VALUE_BYTES * estimated_distinct(_words(column)) <= DICTIONARY_BYTES_MAX
    ]
    return names or False


def _has_words(column: pa.ChunkedArray) -> bool:
    data_type = column.type
    is_wide = pa.types.is_primitive(data_type) and data_type.bit_width == 8 * _VALUE_BYTES
    return is_wide and column.null_count == 0 and len(column) > 0


def _words(column: pa.ChunkedArray) -> npt.NDArray[np.uint64]:
    """Return the bits of each value."""
    return np.concatenate([chunk.view(pa.uint64()).to_numpy() for chunk in column.chunks])
