"""Files as a replayable input: Parquet, or lines of JSON, CSV or text, plain or compressed.

``FileSource`` reads the files that are there, or goes on with those that come.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from laminar_core.arguments import (
    require_choice,
    require_instance,
    require_methods,
    require_schema,
    require_whole,
)
from laminar_core.connectors.base import Discovery, Found, Gap, Mend, Source
from laminar_core.connectors.discovery import fixed_list
from laminar_core.connectors.files.contents import Contents, Header, Lines
from laminar_core.connectors.files.file_discovery import Memory, Rules, step
from laminar_core.connectors.files.file_reader import SPLITS_SCHEMA, FileReader
from laminar_core.connectors.files.parquet_rows import ParquetFormat, ParquetRows
from laminar_core.connectors.files.partitions import PartitionError, partition_values
from laminar_core.connectors.files.places import FileStat, Place, counts, is_utf8, place_at
from laminar_core.connectors.formats.arrow_ipc import ArrowIpcFormat
from laminar_core.connectors.formats.csv_lines import CsvFormat
from laminar_core.connectors.formats.messages import MESSAGE_BYTES_MAX, InputFormat, one_line
from laminar_core.connectors.locations import checked_location
from laminar_core.errors import ConfigurationError, ErrorCode, IncompatibleStateError
from laminar_core.operators.base import JsonObject
from laminar_core.state.splits import skipped, split_table
from laminar_core.units import Duration, duration_ms, duration_us

_NO_COLUMNS = pa.schema([])
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class FileSource(Source):
    """Rows of the files at ``path``: a file, a directory, or ``s3://bucket/prefix?region=…``.

    Each line of a file is a message of ``format``, unless that is ``ParquetFormat()``. Files of
    lines whose names end in ``.gz`` or ``.zst`` are decompressed. A directory is searched with all
    directories below it; names that begin with ``_`` or ``.``, and endings of unfinished files such
    as ``.tmp``, do not count.

    Args:
        path: the place of the files.
        format: ``JsonFormat()``, ``CsvFormat()``, ``RawFormat()`` or ``ParquetFormat()``.
        columns: the columns of a row. A file of Parquet may have others besides, which are not
            read.
        partitions: further columns, whose values are in names of directories, as in
            ``day=2026-01-01/``.
        pattern: only files with such a name. With a slash in it, all parts of the name below
            ``path`` are compared; ``**`` stands for any number of directories.
        header: whether the first line of each file names the columns of CSV.
        batch_rows: rows that are decoded at once, at most.
        mode: ``once`` reads the files that are there when the job starts for the first time.
            ``continuous`` never ends, and reads those that come, too, each once and whole.
        interval: the pause between two looks for files.
        max_age: forget names of files that are so much older than the newest one. A file that
            comes with an older time is late: it is reported, and not read. None: forget nothing.
        ordered: names of new files are always greater than those of earlier ones. Then nothing
            needs to be remembered but the last name, and a store of objects lists only new ones.

    >>> FileSource("data/clicks", JsonFormat(), pa.schema([("user", pa.string())]))
    ... # doctest: +SKIP
    """

    path: str | os.PathLike[str]
    format: InputFormat | ParquetFormat
    columns: pa.Schema
    partitions: pa.Schema = _NO_COLUMNS
    pattern: str = "*"
    header: bool = False
    batch_rows: int = 65_536
    mode: Literal["once", "continuous"] = "once"
    interval: Duration = "10 seconds"
    max_age: Duration | None = None
    ordered: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", checked_location(self.path))
        wanted = "format must be an object such as JsonFormat() or CsvFormat()"
        if not isinstance(self.format, ParquetFormat):
            require_methods(self.format, ("decoder", "message_bytes_max"), wanted)
        require_schema(self.columns, "columns")
        require_schema(self.partitions, "partitions")
        if isinstance(self.format, ArrowIpcFormat):
            raise _invalid("files are JSON, CSV, raw or Parquet: Arrow IPC has no lines")
        for name in ("header", "ordered"):
            require_instance(getattr(self, name), bool, f"{name} must be True or False")
        if self.header and not isinstance(self.format, CsvFormat):
            raise _invalid("only files of CSV have a header")
        require_whole(self.batch_rows, 1, "batch_rows")
        require_choice(self.mode, ("once", "continuous"), "mode")
        require_instance(self.pattern, str, "pattern must be text, as in *.csv")
        if self.ordered and self.max_age is not None:
            raise _invalid("with ordered names nothing is forgotten by age: leave max_age out")
        if duration_ms(self.interval) < 1 or (
            self.max_age is not None and duration_ms(self.max_age) < 1
        ):
            raise _invalid("interval and max_age must be longer than nothing")
        names = self.schema().names
        if len(set(names)) < len(names):
            raise ConfigurationError(
                ErrorCode.WRONG_SCHEMA, "columns and partitions need different names"
            )
        _ = self.contents  # Refuse now what cannot be read later.

    def describe(self) -> JsonObject:
        """Return what decides which rows there are; the size of batches may change."""
        return {
            "connector": "files",
            "path": str(self.path).partition("?")[0],
            "pattern": self.pattern,
            "format": self.format.describe(),
            "columns": [str(field) for field in self.columns],
            "partitions": [str(field) for field in self.partitions],
            "header": self.header,
            "mode": self.mode,
            "ordered": self.ordered,
        }

    @property
    def properties(self) -> JsonObject:
        """See ``Source.properties``."""
        return self.format.properties if isinstance(self.format, ParquetFormat) else {}

    def schema(self) -> pa.Schema:
        """Return the columns of a row, and behind them those of the directories."""
        return pa.schema([*self.columns, *self.partitions])

    def discovery(self) -> Discovery:
        """Return what finds the files: once, or as long as the job runs.

        Raises:
            ConfigurationError: no column is read from the files, only from their directories.
        """
        if not len(self.columns):
            raise ConfigurationError(
                ErrorCode.WRONG_SCHEMA, "the source has no columns: declare at least one"
            )
        return fixed_list(self._files_now) if self.mode == "once" else ComingFiles(self)

    def _files_now(self) -> pa.Table:
        """Return all files, the oldest first; every one is a split.

        Shapes: ``SPLITS_SCHEMA``, one row per file.

        Raises:
            ConfigurationError: there are no files, or one has a name that is not UTF-8 or is not
                in the directories of ``partitions``.
        """
        found = sorted(self.listed(), key=reading_order)
        if not found:
            raise ConfigurationError(
                ErrorCode.NO_SUCH_PATH,
                f"no file {self.pattern} in {self._shown}: is it the right place?",
            )
        for problem in map(self.problem_of, found):
            if problem is not None:
                raise ConfigurationError(ErrorCode.WRONG_SCHEMA, f"{self._shown}: {problem}")
        return splits_of(found, 0)

    def gaps(self, splits: pa.Table) -> list[Gap]:
        """Return the files with rows left that are gone, or are not those that were found."""
        place = self.place
        gaps: list[Gap] = []
        for split in splits.to_pylist():
            if not split["done"]:
                now = place.stat(split["name"])
                if now is not None and now.version == split["version"]:
                    continue
                problem = "is gone" if now is None else "was changed"
                details = (
                    f"{self._shown}: {split['name']} {problem}; the checkpoint still has rows of "
                    "it to read: bring it back as it was, or start without this checkpoint"
                )
                gaps.append(Gap(split["name"], split["offset"], None, None, "changed", details))
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
                "found: accept source-gap:NAME=skip-split instead",
            )
        return skipped(splits, "name", gap.split)

    def open(self, splits: pa.Table) -> FileReader:
        """Read ``splits`` in their order, each from its offset."""
        return FileReader(self.place, splits, self.contents, self.partitions, self.batch_rows)

    @property
    def contents(self) -> Contents:
        """How the files are read.

        Raises:
            ConfigurationError: a column has a type that the format cannot express.
        """
        if isinstance(self.format, ParquetFormat):
            return ParquetRows(self.columns, self.batch_rows, self.format.verify_pages)
        line_bytes_max = max(self.format.message_bytes_max, MESSAGE_BYTES_MAX)
        return Lines(self.format.decoder(self.columns), self._header, line_bytes_max)

    @property
    def place(self) -> Place:
        """The place of the files, opened."""
        return place_at(str(self.path))

    def listed(self, after: str | None = None) -> Iterator[FileStat]:
        """Yield the files to read; only those whose names sort after ``after``, if it is given."""
        return (f for f in self.place.files(after) if counts(f.name, self.pattern))

    def problem_of(self, file: FileStat) -> str | None:
        """Return why the file cannot be read, if its name already says so."""
        if not is_utf8(file.name):
            return f"{one_line(file.name)} has a name that is not UTF-8: rename it"
        try:
            partition_values(file.name, self.partitions)
        except PartitionError as error:
            return str(error)
        return None

    @property
    def _header(self) -> Header | None:
        if not self.header:
            return None
        assert isinstance(self.format, CsvFormat)
        columns = self.columns.names if self.format.columns is None else self.format.columns
        return Header(tuple(columns), self.format.delimiter)

    @property
    def _shown(self) -> str:
        return str(self.path).partition("?")[0]


@dataclass(frozen=True, slots=True)
class ComingFiles:
    """The discovery of files that keep coming; see ``file_discovery``."""

    source: FileSource

    @property
    def interval_ms(self) -> int:
        """See ``Discovery.interval_ms``."""
        return duration_ms(self.source.interval)

    def step(self, state: JsonObject) -> Found:
        """See ``Discovery.step``; files that cannot be read as they are named are reported."""
        source, memory = self.source, Memory.of(state)
        max_age = source.max_age
        rules = Rules(
            whole_at_once=source.place.whole_at_once,
            ordered=source.ordered,
            max_age_us=None if max_age is None else duration_us(max_age),
        )
        problems: list[str] = []
        readable: list[FileStat] = []
        for file in source.listed(memory.last):
            if (problem := source.problem_of(file)) is None:
                readable.append(file)
            else:
                problems.append(problem)
        found = step(memory, readable, rules)
        problems = _counted("is not read", problems)
        problems += _counted("was changed after it was found, and is not read again", found.changed)
        problems += _counted("came later than max_age allows, and is not read", found.late)
        return Found(
            splits_of(found.new, memory.next_id),
            found.memory.as_state(),
            problems=problems,
            late_count=None if max_age is None else len(found.late),
        )


def _counted(what: str, names: Sequence[str]) -> list[str]:
    """Return one line for all files with the same problem; none if there are none."""
    if not names:
        return []
    more = f", and {len(names) - _SHOWN} more files" if len(names) > _SHOWN else ""
    return [f"{what}: {', '.join(names[:_SHOWN])}{more}"]


def reading_order(file: FileStat) -> tuple[int, str]:
    """Return the key by which files are ordered: the oldest first, and then by name."""
    return file.modified_us, file.name


def splits_of(files: Iterable[FileStat], first_id: int) -> pa.Table:
    """Return a split for each file, at its beginning, numbered from ``first_id`` on."""
    rows = [
        {
            "split_id": split_id,
            "split": file.name,
            "offset": "0",
            "name": file.name,
            "size_bytes": file.size_bytes,
            "modified_us": file.modified_us,
            "version": file.version,
        }
        for split_id, file in enumerate(files, first_id)
    ]
    return split_table(rows, SPLITS_SCHEMA)


def _invalid(problem: str) -> ConfigurationError:
    return ConfigurationError(ErrorCode.INVALID_OPTION, problem)
