"""Reads files, one after the other; a position is exact to the row."""

from dataclasses import replace
from operator import itemgetter
from typing import Any

import pyarrow as pa

from laminar_core.connectors.base import SourceBatch, SourceReader
from laminar_core.connectors.files.contents import Content, Contents
from laminar_core.connectors.files.partitions import partition_values, with_partitions
from laminar_core.connectors.files.places import FileChangedError, FileStat, OpenFile, Place
from laminar_core.connectors.formats.messages import one_line
from laminar_core.errors import DataError, ErrorCode
from laminar_core.state.splits import split_columns, split_table

SPLITS_SCHEMA = split_columns(
    ("name", pa.string()),
    ("size_bytes", pa.int64()),
    ("modified_us", pa.int64()),
    ("version", pa.string()),
)
"""A split is a file. Its offset is the position of the next row in its content."""

READ_FILES = "files read before"
"""Name of the one row that stands for all files that a reader has read to their end."""


class FileReader(SourceReader):
    """Reads its splits in order, with at most one file open."""

    def __init__(
        self,
        place: Place,
        splits: pa.Table,
        contents: Contents,
        partitions: pa.Schema,
        batch_rows: int,
    ) -> None:
        self._place = place
        self._contents = contents
        self._partitions = partitions
        self._schema = pa.schema([*contents.schema, *partitions])
        self._batch_rows = batch_rows
        self._waiting: list[dict[str, Any]] = []
        self._read_before = {"split_id": -1, "rows_read": 0}
        self._open: _OpenSplit | None = None
        self.add(splits)

    def add(self, splits: pa.Table) -> None:
        """Read these files, too, after the others."""
        added = splits.to_pylist()
        for split in added:
            if split["done"]:
                self._note_done(split)
        self._waiting += [split for split in added if not split["done"]]
        self._waiting.sort(key=itemgetter("split_id"))

    @property
    def finished(self) -> bool:
        """Whether all files are read to their end."""
        return not self._waiting

    def poll(self, rows_max: int) -> SourceBatch | None:
        """Return the next rows of one file; None once finished.

        Raises:
            DataError: the file is gone, was changed, cannot be decoded, or has other columns.
        """
        while self._waiting:
            split = self._waiting[0]
            try:
                batch = self._read(split, min(rows_max, self._batch_rows))
            except FileNotFoundError as error:
                raise _unreadable(split, "is gone") from error
            except FileChangedError as error:
                raise _unreadable(split, f"was changed since it was found: {error}") from error
            except (OSError, pa.ArrowException) as error:
                where = f"cannot be read behind offset {split['offset']}"
                raise _unreadable(split, f"{where}: {one_line(str(error))}") from error
            if batch is not None:
                return batch
            self._note_done(self._waiting.pop(0))
        return None

    def _read(self, split: dict[str, Any], rows_max: int) -> SourceBatch | None:
        """Return the next rows of the file, or None at its end."""
        if self._open is None:
            self._open = _OpenSplit(self._place, split, self._partitions, self._contents)
        current = self._open
        batch = current.content.read(rows_max)
        if batch is None:
            current.file.check_unchanged()
            self.close()
            return None
        split["offset"] = str(current.content.position)
        split["rows_read"] += batch.message_count
        rows = with_partitions(batch.rows, current.values, self._schema)
        return replace(batch, rows=rows, split_id=split["split_id"])

    def position(self) -> pa.Table:
        """Return the files that are not read to their end, and one row for all others."""
        rows = [dict(split) for split in self._waiting]
        if self._read_before["split_id"] >= 0:
            read = self._read_before["rows_read"]
            done = {"split": READ_FILES, "offset": "", "rows_total": read, "done": True}
            rows.insert(0, {**self._read_before, **done})
        return split_table(rows, SPLITS_SCHEMA)

    def close(self) -> None:
        """Close the file that is open, if any."""
        if self._open is not None:
            self._open.file.close()
            self._open = None

    def _note_done(self, split: dict[str, Any]) -> None:
        before = self._read_before
        before["split_id"] = max(before["split_id"], split["split_id"])
        before["rows_read"] += split["rows_read"]


class _OpenSplit:
    """The file that is being read."""

    def __init__(
        self,
        place: Place,
        split: dict[str, Any],
        partitions: pa.Schema,
        contents: Contents,
    ) -> None:
        found = FileStat(
            name=split["name"],
            size_bytes=split["size_bytes"],
            modified_us=split["modified_us"],
            arrived_us=split["modified_us"],
            version=split["version"],
        )
        self.values = partition_values(found.name, partitions)
        self.file: OpenFile = place.open(found)
        try:
            self.content: Content = contents.open(self.file, found, int(split["offset"]))
        except BaseException:
            self.file.close()
            raise


def _unreadable(split: dict[str, Any], problem: str) -> DataError:
    return DataError(ErrorCode.UNREADABLE_FILE, f"{split['name']} {problem}")
