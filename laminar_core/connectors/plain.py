"""Decode dictionary columns to plain ones.

Dictionaries are a gain between operators and a burden at the edges: a Parquet reader would see the
encoding, Spark declares plain types, and an Arrow file allows one dictionary per column only.
"""

import pyarrow as pa


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
