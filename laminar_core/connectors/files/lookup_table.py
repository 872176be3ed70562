"""Tables that rows are looked up in: all rows of some files, pinned by their names and versions."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter

import pyarrow as pa

from laminar_core.arguments import require_instance
from laminar_core.connectors.base import SourceBatch
from laminar_core.connectors.discovery import first_splits
from laminar_core.connectors.files.file_source import FileSource
from laminar_core.connectors.files.parquet_rows import ParquetFormat, columns_of
from laminar_core.connectors.files.places import FileChangedError, place_at
from laminar_core.connectors.formats.messages import one_line
from laminar_core.errors import ConfigurationError, DataError, ErrorCode
from laminar_core.operators.base import JsonObject, JsonValue
from laminar_core.units import Size, size_bytes

FILES_MAX = 1_000
"""Files of a table. Each is named in every checkpoint."""

_ALL_ROWS = 2**31
_NO_COLUMNS = pa.schema([])


@dataclass(frozen=True, slots=True)
class LookupTable:
    """A table for ``Stream.lookup``: the rows of the files that ``source`` finds.

    ``size_max``: the memory that the rows may take in each worker, without the index.

    >>> LookupTable.parquet("data/rates", size_max="64MiB")  # doctest: +SKIP
    >>> LookupTable(FileSource("rates.csv", CsvFormat(), columns))  # doctest: +SKIP
    """

    source: FileSource
    size_max: Size = "256MiB"

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            ConfigurationError: the source goes on for ever, or the size is none (INVALID_OPTION).
        """
        _ = size_bytes(self.size_max)
        require_instance(self.source, FileSource, "the source of a table must be a FileSource")
        if self.source.mode != "once":
            raise ConfigurationError(
                ErrorCode.INVALID_OPTION,
                'a table has the files that are there: leave out mode="continuous", or look up in'
                " a stream",
            )

    @classmethod
    def parquet(
        cls,
        path: str | os.PathLike[str],
        *,
        pattern: str = "*",
        partitions: pa.Schema = _NO_COLUMNS,
        size_max: Size = "256MiB",
    ) -> "LookupTable":
        """Return the table of the Parquet files at ``path``; its columns are those of one of them.

        ``path``: a file, a directory, or ``s3://bucket/prefix?region=…``. ``pattern`` and
        ``partitions`` are those of ``FileSource``. All files have the columns that are used.

        Raises:
            ConfigurationError: there are no files (NO_SUCH_PATH).
            DataError: the first one cannot be read (UNREADABLE_FILE).
        """
        source = FileSource(path, ParquetFormat(), _NO_COLUMNS, partitions, pattern)
        columns = _columns(source)
        return cls(replace(source, columns=columns), size_max)

    @property
    def schema(self) -> pa.Schema:
        """Return the columns of the rows."""
        return self.source.schema()

    def pinned(self, columns: Sequence[str]) -> "PinnedFiles":
        """List the files as they are now; of Parquet only ``columns`` are read later.

        Raises:
            ConfigurationError: there are none (NO_SUCH_PATH), or too many (INVALID_OPTION).
        """
        source = self.source
        if isinstance(source.format, ParquetFormat):
            kept = [field for field in source.columns if field.name in columns]
            kept = kept or list(source.columns)[:1]  # Rows without a column cannot be counted.
            source = replace(source, columns=pa.schema(kept))
        splits = first_splits(source)
        if splits.num_rows > FILES_MAX:
            raise ConfigurationError(
                ErrorCode.INVALID_OPTION,
                f"the table at {_shown(source)} has {splits.num_rows:,} files and may have "
                f"{FILES_MAX:,}: write it to fewer files, or choose some with pattern=...",
            )
        return PinnedFiles(source, splits, size_bytes(self.size_max))


@dataclass(frozen=True, slots=True)
class PinnedFiles:
    """The files of a table as they were listed once. Others are refused when they are read."""

    source: FileSource
    splits: pa.Table
    size_max_bytes: int

    @property
    def schema(self) -> pa.Schema:
        """Return the columns of the rows."""
        return self.source.schema()

    def describe(self) -> JsonObject:
        """Return name, size and version of each file; where they are does not matter."""
        pins = sorted(self.splits.to_pylist(), key=itemgetter("name"))
        names = ("name", "size_bytes", "version")
        files: list[JsonValue] = [{name: pin[name] for name in names} for pin in pins]
        return {"files": files}

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read all rows of all files.

        Raises:
            DataError: a file is gone, is not the one that was listed, or cannot be read
                (UNREADABLE_FILE); a line of it is no row (BAD_ROW).
        """
        reader = self.source.open(self.splits)
        try:
            while (batch := reader.poll(_ALL_ROWS)) is not None:
                yield self._rows_only(batch)
        except DataError as error:
            if error.code is not ErrorCode.UNREADABLE_FILE:
                raise
            raise DataError(
                error.code,
                f"{error} (in {_shown(self.source)}); every worker reads the files as they were "
                "when the pipeline was built: bring it back as it was, or start the job again",
            ) from error
        finally:
            reader.close()

    def _rows_only(self, batch: SourceBatch) -> pa.RecordBatch:
        if batch.letters is None:
            return batch.rows
        letter = batch.letters.slice(0, 1).to_pylist()[0]
        name = self.splits.column("name")[batch.split_id].as_py()
        raise DataError(
            ErrorCode.BAD_ROW,
            f"{name} has a line that is no row, at offset {letter['position']}: {letter['reason']}",
        )


def _columns(source: FileSource) -> pa.Schema:
    """Return the columns of the first file."""
    place = place_at(str(source.path))
    first = min(source.listed(), key=lambda file: file.name, default=None)
    if first is None:
        raise ConfigurationError(
            ErrorCode.NO_SUCH_PATH,
            f"no file {source.pattern} in {_shown(source)}: is it the right place?",
        )
    try:
        file = place.open(first)
        try:
            return columns_of(file, first)
        finally:
            file.close()
    except (OSError, FileChangedError, pa.ArrowException) as error:
        problem = f"{first.name} cannot be read: {one_line(str(error))}"
        raise DataError(ErrorCode.UNREADABLE_FILE, problem) from error


def _shown(source: FileSource) -> str:
    return str(source.path).partition("?")[0]
