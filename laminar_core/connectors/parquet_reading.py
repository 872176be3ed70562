"""Read one Parquet file, and refuse what pyarrow lets through although it cannot be right.

A damaged footer may have row groups that contradict its total, a damaged page header may leave
indices outside of their dictionary, and a time that was stored as INT96 and does not fit 64 bits of
nanoseconds comes out as another time.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.compute import call_function

ENCODED_STRING = pa.dictionary(pa.int32(), pa.string())
"""The type in which string columns are emitted."""

_PLAIN_STRING_BYTES_MIN = 4
"""Plain encoding spends a four-byte length on every string, so less per value is a dictionary."""

_OF_DICTIONARIES = {"PLAIN", "PLAIN_DICTIONARY", "RLE_DICTIONARY", "RLE", "BIT_PACKED"}
"""Encodings of a chunk that Arrow can read as a dictionary: values, indices, and nulls."""


def read_metadata(source: Path | pa.NativeFile) -> pq.FileMetaData:
    """Read a footer.

    Raises:
        OSError, pyarrow.ArrowException: it cannot be read, or contradicts itself.
    """
    try:
        footer = pq.read_metadata(source)
        _ = footer.schema.to_arrow_schema().names, [*_leaves(footer)]
    except UnicodeDecodeError as error:
        raise OSError(f"the name of a column is no text: {error}") from error
    counts = [footer.row_group(number).num_rows for number in range(footer.num_row_groups)]
    if min(counts, default=0) < 0 or sum(counts) != footer.num_rows:
        raise OSError(
            f"its footer contradicts itself: {footer.num_rows} rows, and {sum(counts)} in all row "
            "groups together"
        )
    return footer


class RowGroups:
    """The row groups of one file, in the columns and types of ``schema``."""

    def __init__(
        self,
        source: Path | pa.NativeFile,
        footer: pq.FileMetaData,
        schema: pa.Schema,
        *,
        verify_pages: bool,
    ) -> None:
        self._schema = schema
        self._file = pq.ParquetFile(
            source,
            metadata=footer,
            read_dictionary=dictionary_columns(footer, schema),
            page_checksum_verification=verify_pages,
        )
        self._int96 = _int96_columns(footer, schema)
        self._times: pq.ParquetFile | None = None
        if self._int96:
            self._times = pq.ParquetFile(
                source,
                metadata=footer,
                coerce_int96_timestamp_unit="ms",
                page_checksum_verification=verify_pages,
            )

    def batches(self, row_group: int, rows_max: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one row group, at most ``rows_max`` at a time.

        Raises:
            OSError, pyarrow.ArrowException: it is damaged, or a time cannot be expressed.
        """
        times = self._times_of(row_group, rows_max)
        unmatched: list[pa.RecordBatch] = []
        for batch in self._file.iter_batches(
            rows_max, row_groups=[row_group], columns=self._schema.names, use_threads=False
        ):
            if self._int96:
                again, unmatched = _first_rows(batch.num_rows, unmatched, times)
                _check_times(batch.select(self._int96), again)
            columns = [_as_type(batch.column(field.name), field.type) for field in self._schema]
            yield pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _times_of(self, row_group: int, rows_max: int) -> Iterator[pa.RecordBatch]:
        """Yield the columns with times of INT96 once more, in milliseconds, which hold them all."""
        if self._times is not None:
            yield from self._times.iter_batches(
                rows_max, row_groups=[row_group], columns=self._int96, use_threads=False
            )

    def close(self) -> None:
        """Let go of the file handles."""
        self._file.close()
        if self._times is not None:
            self._times.close()


def _first_rows(
    count: int, unmatched: list[pa.RecordBatch], more: Iterator[pa.RecordBatch]
) -> tuple[pa.RecordBatch, list[pa.RecordBatch]]:
    """Return ``count`` rows, and those behind them: batches with long texts may be shorter.

    Raises:
        OSError: there are not so many.
    """
    while sum(batch.num_rows for batch in unmatched) < count:
        batch = next(more, None)
        if batch is None:
            raise OSError("a column with times of INT96 has fewer rows than the others")
        unmatched = [*unmatched, batch]
    rows = pa.concat_batches(unmatched)
    return rows.slice(0, count), [rows.slice(count)] if count < rows.num_rows else []


def _check_times(nanoseconds: pa.RecordBatch, milliseconds: pa.RecordBatch) -> None:
    """Compare two readings of the same times: nanoseconds that do not fit are wrapped by Arrow."""
    for name in nanoseconds.schema.names:
        fine, coarse = (_times_in(rows.column(name)) for rows in (nanoseconds, milliseconds))
        if not all(_is_same(ns, ms) for ns, ms in zip(fine, coarse, strict=True)):
            raise OSError(
                f"column {name!r} has times before 1677 or after 2262, stored as INT96: "
                "write it as TIMESTAMP (Spark: spark.sql.parquet.outputTimestampType)"
            )


def _is_same(nanoseconds: pa.Array, milliseconds: pa.Array) -> bool:
    """Return whether these are the same times; of one type, they were not stored as INT96."""
    if nanoseconds.type == milliseconds.type:
        return True
    return np.array_equal(_numbers(nanoseconds) // 1_000_000, _numbers(milliseconds))


def _numbers(times: pa.Array) -> npt.NDArray[np.int64]:
    return times.cast(pa.int64()).to_numpy()


def _times_in(column: pa.Array) -> Iterator[pa.Array]:
    """Yield the times of a column, or those inside of it, without nulls."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_timestamp(column.type):
        yield column.drop_null()
    elif pa.types.is_struct(column.type):
        for field in column.flatten():
            yield from _times_in(field)
    elif pa.types.is_nested(column.type):
        yield from _times_in(column.flatten())


def dictionary_columns(footer: pq.FileMetaData, schema: pa.Schema) -> list[str]:
    """Return the columns that should be read as dictionaries.

    Arrow lets the dictionary of a chunk that fell back to plain encoding grow with every batch,
    which is quadratic; such columns are read plain and encoded batch by batch (four times faster).
    Only chunks of these columns are looked at: where statistics of a chunk are damaged, looking
    ends the process.
    """
    text = {field.name for field in schema if field.type == ENCODED_STRING}
    leaves = {index: path for index, path in _leaves(footer) if path in text}
    values, size_bytes = dict.fromkeys(text, 0), dict.fromkeys(text, 0)
    for row_group in range(footer.num_row_groups):
        for index, name in leaves.items():
            chunk = footer.row_group(row_group).column(index)
            values[name] += chunk.num_values
            size_bytes[name] += chunk.total_uncompressed_size
            if not _OF_DICTIONARIES.issuperset(chunk.encodings):
                text.discard(name)
    return [name for name in text if size_bytes[name] < _PLAIN_STRING_BYTES_MIN * values[name]]


def _int96_columns(footer: pq.FileMetaData, schema: pa.Schema) -> list[str]:
    """Return the columns of the schema that have times of INT96, by themselves or inside."""
    stored = footer.schema
    found = [path for n, path in _leaves(footer) if stored.column(n).physical_type == "INT96"]
    return [
        name
        for name in schema.names
        if any(path == name or path.startswith(f"{name}.") for path in found)
    ]


def _leaves(footer: pq.FileMetaData) -> Iterator[tuple[int, str]]:
    """Yield number and path of all columns of the file, those inside of others as well."""
    for index in range(footer.num_columns):
        yield index, footer.schema.column(index).path


def _as_type(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return a column that was read in the type in which it is emitted."""
    if column.type == wanted:
        if wanted == ENCODED_STRING:
            _check_indices(column)
        return column
    if wanted == ENCODED_STRING:
        return column.cast(pa.string()).dictionary_encode()
    return column.cast(wanted)


def _check_indices(column: pa.DictionaryArray) -> None:
    """Refuse indices without a value: Arrow does not look at them when it reads a dictionary."""
    bounds = call_function("min_max", [column.indices]).as_py()
    if bounds["max"] is None:
        return
    if bounds["min"] < 0 or bounds["max"] >= len(column.dictionary):
        raise OSError(f"an index lies outside of its dictionary of {len(column.dictionary)} values")
