"""Parquet files as a replayable input: a split is a row group, its offset the next row.

Files are listed once, at a fresh start, and pinned in every checkpoint. Later files are not read,
and a pinned file may be deleted once it is read to its end.

String columns are dictionary-encoded (``dictionary<int32, string>``), because Parquet stores them
so and because grouping by a dictionary is cheap. Where a file gave up its dictionary (too many
distinct values), each batch gets a small one of its own, so the schema never depends on the data.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, takewhile
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from laminar_core.arguments import is_names, other_argument, require_whole
from laminar_core.connectors.base import Discovery, Gap, Mend, Source, SourceBatch, SourceReader
from laminar_core.connectors.discovery import fixed_list
from laminar_core.connectors.locations import checked_location, without_parameters
from laminar_core.connectors.parquet_files import (
    check_same_schema,
    declared_schema,
    difference,
    reading_properties,
    skip_rows,
    unreadable,
)
from laminar_core.connectors.parquet_footers import (
    pins,
    read_footer,
    read_footers,
    verified_footer,
)
from laminar_core.connectors.parquet_inputs import ParquetInput, parquet_input
from laminar_core.connectors.parquet_reading import RowGroups
from laminar_core.errors import ConfigurationError, DataError, ErrorCode, IncompatibleStateError
from laminar_core.operators.base import JsonObject, JsonValue
from laminar_core.state.splits import at_rows, numbered_splits, row_offsets, split_columns

_PIN = (
    ("path", pa.string()),
    ("file_size_bytes", pa.int64()),
    ("file_row_groups", pa.int64()),
    ("row_group", pa.int64()),
)

SPLITS_SCHEMA = split_columns(*_PIN)
"""A split is a row group; its offset is the number of rows of it that were read."""


@dataclass(frozen=True, slots=True)
class ParquetSource(Source):
    """Rows of the Parquet files at ``path``: one file, a directory, a glob pattern, or a prefix.

    A directory is searched recursively for ``*.parquet``, and so is ``s3://bucket/prefix?region=…``
    with the parameters of a store in a bucket; names that begin with ``_`` or ``.`` are skipped, as
    Spark does. Values in directory names (``day=1``) are not turned into columns.

    With ``verify_pages=False`` the checksums of pages are not computed: a damaged page may be read
    as other rows. Every checkpoint records it.

    >>> ParquetSource("data/payments", columns=["merchant", "amount_cents", "paid_at"])
    ... # doctest: +SKIP
    """

    path: str | os.PathLike[str]
    columns: Sequence[str] | None = None
    batch_rows: int = 131_072
    verify_pages: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", checked_location(self.path))
        if self.columns is not None and not is_names(self.columns):
            wanted = "columns must be a list of at least one name, or None for all"
            raise other_argument(self.columns, wanted)
        require_whole(self.batch_rows, 1, "batch_rows")

    @property
    def _files(self) -> ParquetInput:
        return parquet_input(str(self.path))

    def describe(self) -> JsonObject:
        """Return the path and the columns; the size of batches may change.

        The parameters of a bucket may change, too.
        """
        columns: list[JsonValue] | None = None if self.columns is None else list(self.columns)
        path = without_parameters(str(self.path))
        return {"connector": "parquet", "path": path, "columns": columns}

    @property
    def properties(self) -> JsonObject:
        """See ``Source.properties``."""
        return reading_properties(verify_pages=self.verify_pages)

    def schema(self) -> pa.Schema:
        """Return the schema of the batches, from the first file.

        Raises:
            ConfigurationError: there are no files, or the first one cannot be read.
        """
        files = self._files
        first = files.files()[0]
        return declared_schema(read_footer(files, first), self.columns, first)

    def discovery(self) -> Discovery:
        """Return a discovery of the list of files, which is taken once."""
        return fixed_list(self._row_groups)

    def _row_groups(self) -> pa.Table:
        """Return all row groups, by file name and position; every footer is read and compared.

        Shapes: ``SPLITS_SCHEMA``, one row per row group that has rows.

        Raises:
            ConfigurationError: there are no files, a footer is broken, or the schemas differ.
        """
        files = self._files
        paths = files.files()
        footers = read_footers(files, paths)
        schema = declared_schema(footers[0], self.columns, paths[0])
        for path, footer in zip(paths, footers, strict=True):
            check_same_schema(paths[0], schema, path, declared_schema(footer, self.columns, path))
        pairs = zip(paths, footers, strict=True)
        pinned = [pin for path, footer in pairs for pin in pins(files, path, footer)]
        names = [f"{files.name_below(pin['path'])}/{pin['row_group']}" for pin in pinned]
        totals = [pin["rows_total"] for pin in pinned]
        return numbered_splits(names, totals, pa.Table.from_pylist(pinned, pa.schema(_PIN)))

    def gaps(self, splits: pa.Table) -> list[Gap]:
        """Return the pinned files with rows left that are not there as they were pinned.

        A file is a gap if it is gone, or has another size, other row groups or other columns.

        Raises:
            IncompatibleStateError: a split is of a file that does not belong to this input.
        """
        self._refuse_other_files(splits)
        files = self._files
        unread = [pin for pin in splits.to_pylist() if not pin["done"]]
        unread.sort(key=itemgetter("path"))
        gaps: list[Gap] = []
        for path, group in groupby(unread, key=itemgetter("path")):
            pinned = list(group)
            problem = self._problem(files, path, pinned)
            if problem is not None:
                rows_lost = sum(pin["rows_total"] - pin["rows_read"] for pin in pinned)
                gaps.append(Gap(path, pinned[0]["split"], None, rows_lost, "changed", problem))
        return gaps

    def mend(self, splits: pa.Table, gap: Gap, how: Mend) -> pa.Table:
        """Return the splits without the rest of the gap's file.

        Raises:
            IncompatibleStateError: the first row of another file is no place to continue.
        """
        if how != "skip-split":
            raise IncompatibleStateError(
                ErrorCode.SOURCE_CHANGED,
                f"{gap.split} is gone or another file, so it has no earliest row of what was "
                "pinned: accept source-gap:NAME=skip-split instead",
            )
        rows, totals = row_offsets(splits), splits.column("rows_total").to_numpy()
        is_of_file = np.array([path == gap.split for path in splits.column("path").to_pylist()])
        return at_rows(splits, np.where(is_of_file, totals, rows))

    def _refuse_other_files(self, splits: pa.Table) -> None:
        """Paths come out of storage: what is not below the input is not opened."""
        files = self._files
        for path in splits["path"].unique().to_pylist():
            if not files.is_of_input(str(path)):
                raise IncompatibleStateError(
                    ErrorCode.SOURCE_CHANGED,
                    f"the checkpoint names {path}, which is not below the input {self.path}: "
                    "restore another checkpoint",
                )

    def _problem(self, files: ParquetInput, path: str, pinned: list[dict[str, Any]]) -> str | None:
        """Return why the file is not the pinned one; None if it is."""
        try:
            footer = verified_footer(files, path, pinned)
            schema = declared_schema(footer, self.columns, path)
        except (DataError, ConfigurationError) as error:
            return (
                f"{error}; the checkpoint still has rows of this file to read: "
                "bring the file back as it was, or start without this checkpoint"
            )
        if schema != (now := self.schema()):
            return (
                f"{path} holds {difference(now, schema)} than the files at {self.path} now: "
                "remove the files that do not belong to it"
            )
        return None

    def open(self, splits: pa.Table) -> "ParquetReader":
        """Read ``splits`` in the order given, each from its offset.

        Raises:
            IncompatibleStateError: one of them is no file of this input.
        """
        self._refuse_other_files(splits)
        return ParquetReader(self._files, splits, self)


class ParquetReader(SourceReader):
    """Reads row groups one after the other, with at most one file open."""

    def __init__(
        self,
        files: ParquetInput,
        splits: pa.Table,
        source: ParquetSource,
    ) -> None:
        self._files = files
        self._splits = splits
        self._source = source
        self._pinned: list[dict[str, Any]] = splits.to_pylist()
        self._next_row = row_offsets(splits)
        self._row_count = splits["rows_total"].to_numpy()
        self._current = 0
        self._file: RowGroups | None = None
        self._batches: Iterator[pa.RecordBatch] | None = None
        self._decoded: pa.RecordBatch | None = None
        """Rows of the current row group that were decoded and not yet returned."""
        self._pass_finished_splits()

    @property
    def finished(self) -> bool:
        """Whether all splits are read to their end."""
        return self._current == len(self._pinned)

    def poll(self, rows_max: int) -> SourceBatch | None:
        """Return the next rows, within one row group; None once finished.

        Raises:
            DataError: the file is damaged, missing or not the pinned one.
        """
        if self.finished:
            return None
        split = self._pinned[self._current]
        decoded = self._decode(split) if self._decoded is None else self._decoded
        batch, rest = decoded.slice(0, rows_max), decoded.slice(rows_max)
        self._decoded = rest if rest.num_rows else None
        self._next_row[self._current] += batch.num_rows
        self._pass_finished_splits()
        return SourceBatch(batch, split["split_id"])

    def _decode(self, split: dict[str, Any]) -> pa.RecordBatch:
        with unreadable(split["path"], f"row group {split['row_group']} of "):
            if self._batches is None:
                self._batches = self._open_split(split)
            batch = next(self._batches, None)
        if batch is None:
            raise DataError(
                ErrorCode.UNREADABLE_FILE,
                f"{split['path']}: row group {split['row_group']} ends after "
                f"{self._next_row[self._current]} of {split['rows_total']} rows: restore the file",
            )
        return batch

    def position(self) -> pa.Table:
        """Return the splits, positioned behind all rows that ``poll`` returned."""
        return at_rows(self._splits, self._next_row)

    def close(self) -> None:
        """Close the file that is open, if any."""
        self._batches = self._decoded = None
        if self._file is not None:
            self._file.close()
            self._file = None

    def _pass_finished_splits(self) -> None:
        before = self._current
        while not self.finished and self._next_row[self._current] >= self._row_count[self._current]:
            self._current += 1
        if self._current > before:
            self._batches = None
        if self.finished or self._pinned[self._current]["path"] != self._pinned[before]["path"]:
            self.close()

    def _open_split(self, split: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        if self._file is None:
            self._file = self._open_file(split["path"])
        batches = self._file.batches(split["row_group"], self._source.batch_rows)
        return skip_rows(batches, int(self._next_row[self._current]))

    def _open_file(self, path: str) -> RowGroups:
        """Open the file of the current split, after comparing it with all splits that it has."""
        rest = (self._pinned[n] for n in range(self._current, len(self._pinned)))
        pinned = list(takewhile(lambda split: split["path"] == path, rest))
        footer = verified_footer(self._files, path, pinned)
        schema = declared_schema(footer, self._source.columns, path)
        source = self._files.readable(path)
        return RowGroups(source, footer, schema, verify_pages=self._source.verify_pages)
