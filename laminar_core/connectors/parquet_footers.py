"""Read the footers of Parquet files, and check that pinned files are unchanged.

A *pin* is one row group as a plain dictionary: path, ``file_size_bytes``, ``file_row_groups``,
``row_group`` and ``rows_total``.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pyarrow.parquet as pq

from laminar_core.connectors.parquet_files import unreadable, unreadable_at_discovery
from laminar_core.connectors.parquet_inputs import ParquetInput
from laminar_core.connectors.parquet_reading import read_metadata
from laminar_core.errors import DataError, ErrorCode

_FOOTER_READERS = 8


def read_footers(files: ParquetInput, names: Sequence[str]) -> list[pq.FileMetaData]:
    """Read footers in parallel: on a network mount or in a bucket each one is a round trip.

    Raises:
        ConfigurationError: a footer cannot be read.
    """
    with ThreadPoolExecutor(_FOOTER_READERS) as pool:
        return list(pool.map(partial(read_footer, files), names))


def read_footer(files: ParquetInput, name: str) -> pq.FileMetaData:
    """Read the footer of a file before the job starts.

    Raises:
        ConfigurationError: it cannot be read.
    """
    with unreadable_at_discovery(name):
        return read_metadata(files.readable(name))


def pins(files: ParquetInput, name: str, footer: pq.FileMetaData) -> Iterator[dict[str, Any]]:
    """Yield the pins of the row groups of a file that have rows, in order."""
    size_bytes = files.size_bytes(name)
    for row_group in range(footer.num_row_groups):
        row_count = footer.row_group(row_group).num_rows
        if row_count:
            yield {
                "path": name,
                "file_size_bytes": size_bytes,
                "file_row_groups": footer.num_row_groups,
                "row_group": row_group,
                "rows_total": row_count,
            }


def verified_footer(
    files: ParquetInput, name: str, pinned: list[dict[str, Any]]
) -> pq.FileMetaData:
    """Return the footer of a pinned file after checking that the file is unchanged.

    Raises:
        DataError: the file is missing, broken or not the pinned one.
        StorageUnavailable: a bucket does not answer.
    """
    with unreadable(name):
        size_bytes = files.size_bytes(name)
        if size_bytes != pinned[0]["file_size_bytes"]:
            raise _changed(name, f"{size_bytes} bytes instead of {pinned[0]['file_size_bytes']}")
        footer = read_metadata(files.readable(name))
    if footer.num_row_groups != pinned[0]["file_row_groups"]:
        raise _changed(name, f"{footer.num_row_groups} row groups")
    for split in pinned:
        row_count = footer.row_group(split["row_group"]).num_rows
        if row_count != split["rows_total"]:
            raise _changed(name, f"{row_count} rows in row group {split['row_group']}")
    return footer


def _changed(name: str, what: str) -> DataError:
    return DataError(
        ErrorCode.UNREADABLE_FILE, f"{name} was replaced since it was pinned: it now has {what}"
    )
