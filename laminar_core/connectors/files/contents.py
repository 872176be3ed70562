"""Contents of files: the interface that every kind implements, and files of lines."""

# An empty list of names has no type of its own.
# pyright: reportUnknownArgumentType=false

import csv
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from laminar_core.connectors.base import SourceBatch
from laminar_core.connectors.files.places import FileStat, OpenFile
from laminar_core.connectors.formats.line_blocks import LineReader, compression_of
from laminar_core.connectors.formats.messages import MESSAGE_BYTES_MAX, Decoder, one_line
from laminar_core.errors import DataError, ErrorCode


class Content(Protocol):
    """The rows of one open file, from a position on."""

    @property
    def position(self) -> int:
        """Where the next row is: a later ``Contents.open`` with it goes on exactly there."""
        ...

    def read(self, rows_max: int) -> SourceBatch | None:
        """Return at most so many rows, with ``messages`` and without a split; None at the end.

        Raises:
            FileNotFoundError, FileChangedError: the file is not the one that was found.
            OSError, pyarrow.ArrowException: it cannot be decoded.
        """
        ...


class Contents(Protocol):
    """How the files of a source are read. The file stays the caller's to close."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows, without those of directories."""
        ...

    def open(self, file: OpenFile, found: FileStat, position: int) -> Content:
        """Return the rows of ``file`` from ``position`` on; 0 is its start.

        Raises:
            DataError: the file has other columns than the source.
            FileNotFoundError, FileChangedError: the file is not the one that was found.
            OSError, pyarrow.ArrowException: it cannot be decoded.
        """
        ...


@dataclass(frozen=True, slots=True)
class Header:
    """The line with which each file begins."""

    columns: tuple[str, ...]
    delimiter: str


@dataclass(frozen=True, slots=True)
class Lines:
    """Each line is a message. A position is a byte, or the number of a line if compressed.

    A longer line than ``line_bytes_max`` is cut one byte later, so the decoder finds it too long.
    """

    decoder: Decoder
    header: Header | None = None
    line_bytes_max: int = MESSAGE_BYTES_MAX

    @property
    def schema(self) -> pa.Schema:
        """See ``Contents.schema``."""
        return self.decoder.schema

    def open(self, file: OpenFile, found: FileStat, position: int) -> "_LinesOfFile":
        """See ``Contents.open``."""
        lines = LineReader(
            file,
            position,
            compression=compression_of(found.name),
            line_bytes_max=self.line_bytes_max,
        )
        if self.header is not None and position == 0:
            _pass_header(lines, found.name, self.header)
        return _LinesOfFile(lines, self.decoder)


class _LinesOfFile:
    def __init__(self, lines: LineReader, decoder: Decoder) -> None:
        self._lines = lines
        self._decoder = decoder

    @property
    def position(self) -> int:
        return self._lines.position

    def read(self, rows_max: int) -> SourceBatch | None:
        messages = self._lines.read(rows_max)
        if messages is None:
            return None
        decoded = self._decoder.decode(messages)
        letters = decoded.letters if decoded.letters.num_rows else None
        return SourceBatch(decoded.rows, letters=letters, messages=len(messages.values))


def _pass_header(lines: LineReader, name: str, header: Header) -> None:
    first = lines.read(1)
    if first is None:
        return
    text = first.values[0].as_py().decode(errors="replace")
    try:
        names = next(csv.reader([text], delimiter=header.delimiter), [])
    except csv.Error as error:
        problem = f"{name} begins with no header: {error}: {one_line(text)}"
        raise DataError(ErrorCode.UNREADABLE_FILE, problem) from error
    if tuple(names) != header.columns:
        found, columns = one_line(", ".join(names)), ", ".join(header.columns)
        columns += " without blanks" if [*map(str.strip, names)] == [*header.columns] else ""
        raise DataError(
            ErrorCode.UNREADABLE_FILE,
            f"{name} begins with the columns {found} instead of {columns}",
        )
