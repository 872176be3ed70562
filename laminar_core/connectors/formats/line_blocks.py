"""The lines of a file in blocks, with positions to stop and go on at exactly.

A position is the byte where the next line begins; in a compressed file, where bytes cannot be
sought, the number of the next line, and the file is decoded again from its start. Neither depends
on how large blocks are or how many lines a batch has (``tests/.../test_line_blocks.py``).

A line ends with a newline, with or without a carriage return before it, or with the file. Quoted
line breaks of CSV are not supported: where a line ends must be known without what is before it.
Empty lines and a byte order mark at the start are left out.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, Protocol

import numpy as np
import pyarrow as pa
from pyarrow.compute import SliceOptions, SplitPatternOptions, call_function

from laminar_core.connectors.formats.messages import MESSAGE_BYTES_MAX, Messages

BLOCK_BYTES = 1024**2

Compression = Literal["gzip", "zstd"]
_COMPRESSIONS: dict[str, Compression] = {".gz": "gzip", ".zst": "zstd"}

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
Int64s = np.ndarray[Any, np.dtype[np.int64]]


class BinaryFile(Protocol):
    """The part of a file that is needed here."""

    def read(self, size: int, /) -> bytes:
        """Return at most so many bytes; none at the end only."""
        ...

    def seek(self, position: int, /) -> object:
        """Go to a byte."""
        ...


class _Lent:
    """A file that Arrow cannot close: its streams close what they read when they are deleted."""

    closed = False

    def __init__(self, file: BinaryFile) -> None:
        self.read = file.read
        self.seek = file.seek

    def close(self) -> None:
        """Leave it open."""


@dataclass(frozen=True, slots=True)
class _Lines:
    """Whole lines: what they hold, and where each begins and ends."""

    values: pa.LargeBinaryArray
    starts: Int64s
    ends: Int64s

    def part(self, start: int, stop: int) -> "_Lines":
        return _Lines(
            self.values.slice(start, stop - start), self.starts[start:stop], self.ends[start:stop]
        )


def compression_of(name: str) -> Compression | None:
    """Return the compression that a file's name announces.

    >>> compression_of("day=1/a.json.gz"), compression_of("a.json")
    ('gzip', None)
    """
    return next((c for suffix, c in _COMPRESSIONS.items() if name.endswith(suffix)), None)


class LineReader:
    """Reads the lines of one file from ``position`` on.

    Args:
        file: an open binary file; it stays the caller's to close.
        position: 0, or what ``position`` of another reader of this file was.
        compression: of the file; ``position`` then counts lines instead of bytes.
        line_bytes_max: of a longer line only the beginning is kept, one byte more than this. So a
            decoder with this limit refuses it, and a file without line breaks needs no memory.
        block_bytes: how much is read at once.

    Raises:
        OSError: the file cannot be read or decompressed; also from ``read``.
    """

    def __init__(
        self,
        file: BinaryFile,
        position: int = 0,
        *,
        compression: Compression | None = None,
        line_bytes_max: int = MESSAGE_BYTES_MAX,
        block_bytes: int = BLOCK_BYTES,
    ) -> None:
        self.position = position
        """Where the first line begins that was not returned yet."""
        self.finished = False
        """Whether the whole file was returned."""
        self._rest: _Lines | None = None
        if compression is None:
            file.seek(position)
            blocks = _blocks(file, block_bytes, line_bytes_max, is_start=position == 0)
            self._lines = _by_byte(blocks, position)
        else:
            file.seek(0)
            lent = pa.PythonFile(_Lent(file), "r")
            decoded: BinaryFile = pa.CompressedInputStream(lent, compression)
            blocks = _blocks(decoded, block_bytes, line_bytes_max, is_start=True)
            self._lines = _by_number(blocks, position)

    def read(self, rows_max: int) -> Messages | None:
        """Return at most so many lines, with the position of each; None at the end of the file."""
        assert rows_max > 0
        while True:
            lines = self._rest if self._rest is not None else next(self._lines, None)
            if lines is None:
                self.finished = True
                return None
            count = min(rows_max, len(lines.ends))
            self._rest = lines.part(count, len(lines.ends)) if count < len(lines.ends) else None
            taken = lines.part(0, count)
            self.position = int(taken.ends[-1])
            messages = _without_empty(taken)
            if len(messages.values):
                return messages


def _without_empty(lines: _Lines) -> Messages:
    lengths = call_function("binary_length", [lines.values])
    positions = pa.array(lines.starts)
    if not call_function("min", [lengths]).as_py():
        filled = call_function("greater", [lengths, 0])
        return Messages(lines.values.filter(filled), positions.filter(filled))
    return Messages(lines.values, positions)


def _by_byte(blocks: "Iterator[_Block]", position: int) -> Iterator[_Lines]:
    at = position
    for block in blocks:
        ends = at + np.cumsum(block.lengths)
        yield _Lines(block.values, np.concatenate([[at], ends[:-1]]), ends)
        at = int(ends[-1])


def _by_number(blocks: "Iterator[_Block]", position: int) -> Iterator[_Lines]:
    at = 0
    for block in blocks:
        count = len(block.lengths)
        starts = np.arange(at, at + count, dtype=np.int64)
        read = min(max(position - at, 0), count)
        if read < count:
            yield _Lines(block.values, starts, starts + 1).part(read, count)
        at += count


@dataclass(frozen=True, slots=True)
class _Block:
    """At least one whole line: its bytes alone, and its length with line end and order mark."""

    values: pa.LargeBinaryArray
    lengths: Int64s


def _blocks(
    file: BinaryFile, block_bytes: int, line_bytes_max: int, *, is_start: bool
) -> Iterator[_Block]:
    # With two bytes more than a line may have, one may be the carriage return of its end.
    kept_max = line_bytes_max + 2
    first = b""
    while is_start and len(first) < len(_BYTE_ORDER_MARK) and (data := file.read(block_bytes)):
        first += data
    # A line without its end, and how many of its bytes were not kept.
    begun, cut_off = b"", len(_BYTE_ORDER_MARK) if first.startswith(_BYTE_ORDER_MARK) else 0
    rest = iter(lambda: file.read(block_bytes), b"")
    for data in chain([first.removeprefix(_BYTE_ORDER_MARK)], rest):
        whole = data.rfind(b"\n") + 1
        if whole:
            yield _block(begun + data[:whole], cut_off, line_bytes_max)
            begun, cut_off = b"", 0
        begun += data[whole:]
        cut_off += max(len(begun) - kept_max, 0)
        begun = begun[:kept_max]
    if begun or cut_off:
        yield _block(begun, cut_off, line_bytes_max)


def _block(data: bytes, cut_off: int, line_bytes_max: int) -> _Block:
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n")) + 1
    if not data.endswith(b"\n"):
        ends = np.append(ends, len(data))
    lengths = np.diff(ends, prepend=0)
    lengths[0] += cut_off
    text = data.replace(b"\r\n", b"\n").removesuffix(b"\n")
    one = pa.array([text], pa.large_binary())
    values = call_function("split_pattern", [one], SplitPatternOptions(b"\n")).flatten()
    if lengths.max() > line_bytes_max:
        options = SliceOptions(0, line_bytes_max + 1)
        values = call_function("binary_slice", [values], options)
    return _Block(values, lengths)
