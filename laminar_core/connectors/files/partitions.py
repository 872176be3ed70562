"""Columns whose values are in the names of directories, as in ``day=2026-01-01/``."""

from urllib.parse import unquote

import pyarrow as pa

NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
"""The name that Hive and Spark give to a null."""


class PartitionError(ValueError):
    """A file is not in a directory for each column, or a value does not fit its column."""


def partition_values(name: str, columns: pa.Schema) -> list[pa.Scalar]:
    """Return the value of each column for the file of this name, in the order of the columns.

    >>> partition_values("day=2026-01-01/a.json", pa.schema([("day", pa.date32())]))
    [<pyarrow.Date32Scalar: datetime.date(2026, 1, 1)>]

    Raises:
        PartitionError: a directory is missing, or its value does not fit.
    """
    folders = dict(part.split("=", 1) for part in name.split("/")[:-1] if "=" in part)
    return [_value(name, folders.get(field.name), field) for field in columns]


def _value(name: str, text: str | None, field: pa.Field) -> pa.Scalar:
    if text is None:
        raise PartitionError(f"{name} is in no directory {field.name}=…")
    if text == NULL_PARTITION:
        if not field.nullable:
            raise PartitionError(f"{name}: {field.name} is null and must not be")
        return pa.scalar(None, field.type)
    try:
        return pa.scalar(unquote(text)).cast(field.type)
    except (pa.ArrowException, ValueError) as error:
        raise PartitionError(f"{name}: {unquote(text)!r} does not fit {field.type}") from error


def with_partitions(
    rows: pa.RecordBatch, values: list[pa.Scalar], schema: pa.Schema
) -> pa.RecordBatch:
    """Return the rows with a column behind them for each value; ``schema`` is the result's."""
    if not values:
        return rows
    columns = [*rows.columns, *(pa.repeat(value, rows.num_rows) for value in values)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
