"""Lines of files: whatever the blocks, the batches and the crashes, each line comes once."""

import gzip
import io
import random
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_core.connectors.formats.line_blocks import Compression, LineReader, compression_of

LINE = st.one_of(
    st.sampled_from(
        [b"", b"\r", b"a", b"a\rb", b"\r\r", b"\xef\xbb\xbf", b"\xff", b'{"id":1}', b"\0"]
    ),
    st.binary(max_size=20).map(lambda line: line.replace(b"\n", b"")),
)
FILE = st.tuples(
    st.sampled_from([b"", b"\xef\xbb\xbf"]),
    st.lists(LINE, max_size=12),
    st.sampled_from([b"\n", b"\r\n"]),
    st.sampled_from([b"", b"\n", b"\r\n", b"\n\n"]),
).map(lambda parts: parts[0] + parts[2].join(parts[1]) + parts[3])
SCHEDULE = st.lists(
    st.tuples(st.integers(1, 9), st.integers(1, 4), st.sampled_from(["on", "save", "crash"])),
    max_size=30,
)
"""Block size, rows of the next batch, and what happens after it."""


def lines_of(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Byte, number and content of each line that is not empty, by a loop over bytes."""
    start, number = 0, 0
    while start < len(data):
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        line = data[start:end]
        if end < len(data):
            line = line.removesuffix(b"\r")
        if start == 0:
            line = line.removeprefix(b"\xef\xbb\xbf")
        if line:
            yield start, number, line
        start, number = end + 1, number + 1


def compressed(data: bytes, compression: Compression | None) -> bytes:
    if compression == "gzip":
        middle = len(data) // 2  # Two members, as a logger writes that appends.
        return gzip.compress(data[:middle]) + gzip.compress(data[middle:])
    return data if compression is None else pa.compress(data, "zstd", asbytes=True)


@given(FILE, SCHEDULE, st.sampled_from([None, "gzip", "zstd"]))
def test_a_reader_goes_on_exactly_where_another_one_was(
    data: bytes, schedule: list[tuple[int, int, str]], compression: Compression | None
) -> None:
    """Goal: each line once, with its position, over any blocks, batches and crashes.

    Method: after each batch the reader goes on, its position and what was read are saved, or
    everything since the last save is lost and a reader with other blocks goes on from there.
    """
    stored = compressed(data, compression)
    read, saved, is_new = [], (0, 0), True
    for block_bytes, rows_max, then in [*schedule, *(200 * [(5, 3, "on")])]:
        if is_new:
            reader = LineReader(
                io.BytesIO(stored), saved[0], compression=compression, block_bytes=block_bytes
            )
        messages = reader.read(rows_max)
        if messages is not None:
            assert 0 < len(messages.values) <= rows_max
            read += zip(messages.positions.to_pylist(), messages.values.to_pylist(), strict=True)
        assert reader.finished == (messages is None)
        if then == "save":
            saved = (reader.position, len(read))
        is_new = then == "crash"
        read = read[: saved[1]] if is_new else read
    unit = 0 if compression is None else 1
    assert read == [(found[unit], found[2]) for found in lines_of(data)]


@given(FILE, st.integers(1, 6), st.integers(1, 9), st.sampled_from([None, "zstd"]))
def test_of_a_long_line_the_beginning_is_kept_whatever_the_blocks(
    data: bytes, line_bytes_max: int, block_bytes: int, compression: Compression | None
) -> None:
    reader = LineReader(
        io.BytesIO(compressed(data, compression)),
        compression=compression,
        line_bytes_max=line_bytes_max,
        block_bytes=block_bytes,
    )
    read = []
    while messages := reader.read(100):
        read += messages.values.to_pylist()
    assert read == [line[: line_bytes_max + 1] for _, _, line in lines_of(data)]


def test_a_file_without_line_breaks_needs_no_memory() -> None:
    class Endless:
        """Ten thousand blocks of one line, and then another line."""

        def __init__(self) -> None:
            self.left = iter([*(10_000 * [1000 * b"x"]), b"\nlast"])

        def seek(self, position: int) -> None:
            assert position == 0

        def read(self, size: int) -> bytes:
            assert size >= 1000
            return next(self.left, b"")

    reader = LineReader(Endless(), line_bytes_max=50)
    first, second = reader.read(1), reader.read(1)
    assert first.values.to_pylist() == [51 * b"x"]
    assert second.values.to_pylist() == [b"last"]
    assert second.positions.to_pylist() == [10_000_001]
    assert reader.position == 10_000_005


def test_many_lines_come_out_as_they_went_in() -> None:
    rng = random.Random(1)
    lines = [b'{"id":%d,"v":"%s"}' % (n, rng.randbytes(9).hex().encode()) for n in range(50_000)]
    reader = LineReader(io.BytesIO(b"\n".join(lines)))
    read = []
    while messages := reader.read(7_777):
        read += messages.values.to_pylist()
    assert read == lines


@pytest.mark.parametrize(
    ("compression", "damage"),
    [
        *(("gzip", "cut off"), ("gzip", "flipped"), ("gzip", "not compressed")),
        *(("zstd", "cut off"), ("zstd", "not compressed")),  # Checksums are an option of zstd.
    ],
)
def test_a_damaged_file_is_an_error_and_no_end(compression: Compression, damage: str) -> None:
    whole = compressed(random.Random(1).randbytes(50_000).hex().encode(), compression)
    data = {
        "cut off": whole[:-2000],
        "flipped": whole[:9000] + bytes(64) + whole[9064:],
        "not compressed": b"plain text\n",
    }[damage]
    with pytest.raises(OSError, match=r"(?i)(zlib|zstd|gzip|stream|truncated)"):
        LineReader(io.BytesIO(data), compression=compression).read(10)


@pytest.mark.parametrize(
    ("name", "compression"),
    [
        ("a.json", None),
        ("a.csv.gz", "gzip"),
        ("a.jsonl.zst", "zstd"),
        ("gz", None),
        (".gz", "gzip"),
    ],
)
def test_a_name_says_how_a_file_is_compressed(name: str, compression: str | None) -> None:
    assert compression_of(name) == compression
