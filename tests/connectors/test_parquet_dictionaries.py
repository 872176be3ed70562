"""Columns whose dictionaries would be given up get none from the start."""

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from laminar_core.connectors.parquet_dictionaries import (
    DICTIONARY_BYTES_MAX,
    columns_with_dictionary,
)

ROWS = 131_072
FITTING = DICTIONARY_BYTES_MAX // 8
TYPES = [
    pa.int64(), pa.uint64(), pa.float64(), pa.timestamp("us", "UTC"), pa.duration("us"),
    pa.time64("us"),
]  # fmt: skip


def numbers(distinct: int, data_type: pa.DataType = TYPES[0]) -> pa.ChunkedArray:
    """Return numbers in no order, in an empty chunk and two others."""
    drawn = np.random.default_rng(0).integers(0, distinct, ROWS) * 1_000
    array = pa.array(drawn).view(data_type)
    return pa.chunked_array([array.slice(0, 0), array.slice(0, 1_000), array.slice(1_000)])


def has_dictionary(rows: pa.Table) -> dict[str, bool]:
    """Return which columns have a dictionary in a file that is written as the rows want it."""
    file = io.BytesIO()
    with pq.ParquetWriter(
        file, rows.schema, use_dictionary=columns_with_dictionary(rows)
    ) as writer:
        writer.write_table(rows)
    group = pq.read_metadata(file).row_group(0)
    columns = [group.column(n) for n in range(group.num_columns)]
    return {column.path_in_schema: column.has_dictionary_page for column in columns}


@pytest.mark.parametrize("data_type", TYPES, ids=str)
def test_numbers_have_a_dictionary_if_it_is_small(data_type: pa.DataType) -> None:
    rows = pa.table(
        {"few": numbers(FITTING * 8 // 10, data_type), "many": numbers(FITTING * 2, data_type)}
    )
    assert columns_with_dictionary(rows) == ["few"]
    assert has_dictionary(rows) == {"few": True, "many": False}


def test_many_numbers_in_ascending_order_have_none() -> None:
    assert columns_with_dictionary(pa.table({"n": np.arange(ROWS)})) is False
    assert has_dictionary(pa.table({"n": np.arange(ROWS)})) == {"n": False}


def test_what_cannot_be_told_has_a_dictionary() -> None:
    many = np.arange(ROWS)
    rows = pa.table(
        {
            "text": pa.array(many.astype(str)),
            "short": pa.array(many % 7, pa.int32()),
            "nulls": pa.array(many, mask=many == 9),
            "a.b": numbers(10),
            "many": many,
        }
    )
    assert columns_with_dictionary(rows) == ["text", "short", "nulls", "a.b"]
    assert has_dictionary(rows) == {name: name != "many" for name in rows.schema.names}


def test_rows_with_nested_columns_have_all_dictionaries() -> None:
    many = np.arange(ROWS)
    rows = pa.table({"many": many, "list": pa.array([[1]] * ROWS)})
    assert columns_with_dictionary(rows) is True


def test_no_rows_have_all_dictionaries() -> None:
    rows = pa.schema([("n", pa.int64()), ("s", pa.string())]).empty_table()
    assert columns_with_dictionary(rows) == ["n", "s"]
    assert has_dictionary(pa.table({"n": [1], "s": ["a"]})) == {"n": True, "s": True}
