"""Parquet files as contents of a file source: a position is the number of the next row.

A row group cannot be entered in the middle, so reading goes on with the row group of the position,
decoded from its start. Each request asks for a whole column chunk: the columns that are not wanted
are not read, except for what lies between others in one range of a bucket.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from laminar_core.connectors.base import SourceBatch
from laminar_core.connectors.files.arrow_file import ArrowFile
from laminar_core.connectors.files.places import FileStat, OpenFile
from laminar_core.connectors.parquet_files import reading_properties, skip_rows
from laminar_core.connectors.parquet_reading import RowGroups, read_metadata
from laminar_core.errors import DataError, ErrorCode
from laminar_core.operators.base import JsonObject


@dataclass(frozen=True, slots=True)
class ParquetFormat:
    """Files of Parquet, each with at least the columns of the source, in the same types.

    Text may be stored as a string or a dictionary, large or not. A row of such a file is never a
    bad row: a file that does not fit stops the job.

    ``verify_pages``: see ``ParquetSource``.
    """

    verify_pages: bool = True

    def describe(self) -> JsonObject:
        """Return the description that decides whether files are still read the same way."""
        return {"format": "parquet"}

    @property
    def properties(self) -> JsonObject:
        """See ``Source.properties``."""
        return reading_properties(verify_pages=self.verify_pages)


@dataclass(frozen=True, slots=True)
class ParquetRows:
    """Rows of Parquet files in the declared columns; see ``contents.Contents``."""

    schema: pa.Schema
    batch_rows: int
    verify_pages: bool = True

    def open(self, file: OpenFile, found: FileStat, position: int) -> "_RowsOfFile":
        """See ``Contents.open``."""
        source = pa.PythonFile(ArrowFile(file, found.size_bytes), "r")
        footer = read_metadata(source)
        _check_columns(found.name, footer.schema.to_arrow_schema(), self.schema)
        row_groups = RowGroups(source, footer, self.schema, verify_pages=self.verify_pages)
        return _RowsOfFile(row_groups, footer, self.schema, position, self.batch_rows)


def columns_of(file: OpenFile, found: FileStat) -> pa.Schema:
    """Return the columns of a file as they are read: text as strings, whatever its encoding.

    Raises:
        OSError, pyarrow.ArrowException: its footer cannot be read.
    """
    footer = read_metadata(pa.PythonFile(ArrowFile(file, found.size_bytes), "r"))
    stored = footer.schema.to_arrow_schema()
    return pa.schema([(field.name, _values(field.type)) for field in stored])


class _RowsOfFile:
    def __init__(
        self,
        row_groups: RowGroups,
        footer: pq.FileMetaData,
        schema: pa.Schema,
        position: int,
        batch_rows: int,
    ) -> None:
        self.position = position
        self._row_groups = row_groups
        self._footer = footer
        self._schema = schema
        self._batches = self._from(position, batch_rows)
        self._decoded: pa.RecordBatch | None = None
        """Rows that were decoded and not yet returned."""

    def read(self, rows_max: int) -> SourceBatch | None:
        decoded = next(self._batches, None) if self._decoded is None else self._decoded
        if decoded is None:
            return None
        rows, rest = decoded.slice(0, rows_max), decoded.slice(rows_max)
        self._decoded = rest if rest.num_rows else None
        self.position += rows.num_rows
        return SourceBatch(rows, messages=rows.num_rows)

    def _from(self, position: int, batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all row groups from this row of the file on."""
        for row_group in range(self._footer.num_row_groups):
            row_count = self._footer.row_group(row_group).num_rows
            if position >= row_count:
                position -= row_count
                continue
            yield from skip_rows(self._row_group(row_group, row_count, batch_rows), position)
            position = 0

    def _row_group(self, row_group: int, row_count: int, rows: int) -> Iterator[pa.RecordBatch]:
        read = 0
        for batch in self._row_groups.batches(row_group, rows):
            self._check_nulls(batch)
            yield batch
            read += batch.num_rows
        if read != row_count:
            raise OSError(f"row group {row_group} has {read} rows instead of {row_count}")

    def _check_nulls(self, batch: pa.RecordBatch) -> None:
        for field, column in zip(self._schema, batch.columns, strict=True):
            if not field.nullable and column.null_count:
                raise OSError(f"{field.name} is null in a row, and must not be")


def _check_columns(name: str, stored: pa.Schema, wanted: pa.Schema) -> None:
    for field in wanted:
        found = stored.get_all_field_indices(field.name)
        if len(found) != 1:
            problem = "has no column" if not found else "has more than one column"
            problem = f"{problem} {field.name!r}; its columns are {', '.join(stored.names)}"
        elif _values(stored.field(found[0]).type) != _values(field.type):
            is_type = stored.field(found[0]).type
            problem = f"has another type of {field.name!r} ({is_type} instead of {field.type})"
        else:
            continue
        raise DataError(ErrorCode.UNREADABLE_FILE, f"{name} {problem}")


def _values(stored: pa.DataType) -> pa.DataType:
    """Return the type of the values, however they are encoded."""
    if pa.types.is_dictionary(stored):
        return _values(stored.value_type)
    if pa.types.is_large_string(stored) or pa.types.is_string_view(stored):
        return pa.string()
    if pa.types.is_large_binary(stored) or pa.types.is_binary_view(stored):
        return pa.binary()
    return stored
