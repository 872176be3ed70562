"""Damaged files that pyarrow reads without an error are refused, and whole ones are read."""

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from laminar_core.connectors import FileSource, ParquetFormat, ParquetSource
from laminar_core.connectors.base import Source
from laminar_core.connectors.discovery import first_splits
from laminar_core.connectors.parquet_files import declared_schema
from laminar_core.connectors.parquet_reading import (
    ENCODED_STRING,
    RowGroups,
    dictionary_columns,
    read_metadata,
)
from laminar_core.errors import ConfigurationError, DataError

Flip = Callable[[bytearray], None]

MOMENTS = ["1677-09-22", None, "2026-01-01", "2262-04-11"]


def times(days: Sequence[str | None], shape: str = "plain") -> pa.Array:
    """Return midnights in microseconds, each by itself, in a list of its own, or in a struct."""
    plain = pa.array(days, pa.string()).cast(pa.timestamp("us"))
    match shape:
        case "lists":
            return pa.ListArray.from_arrays(pa.array(range(len(days) + 1), pa.int32()), plain)
        case "structs":
            numbers = pa.array(range(len(days)))
            return pa.StructArray.from_arrays([numbers, plain], ["n", "at"])
        case _:
            return plain


def rows_of(source: Source) -> pa.Table:
    batches: list[pa.RecordBatch] = []
    with closing(source.open(first_splits(source))) as reader:
        while not reader.finished and (polled := reader.poll(1_000)) is not None:
            batches.append(polled.rows)
    return pa.Table.from_batches(batches)


def sources(file: Path, schema: pa.Schema) -> list[Source]:
    """Both sources that read Parquet."""
    return [ParquetSource(file), FileSource(file, ParquetFormat(), columns=schema)]


def damage(file: Path, flip: Flip) -> None:
    data = bytearray(file.read_bytes())
    flip(data)
    file.write_bytes(data)


def flips_of_the_footer(data: bytes) -> list[bytes]:
    """The file with each bit of its footer flipped, in turn."""
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    found: list[bytes] = []
    for position in range(start, len(data) - 8):
        for bit in range(8):
            changed = bytearray(data)
            changed[position] ^= 1 << bit
            found.append(bytes(changed))
    return found


def counts_of(file: Path) -> list[int] | None:
    try:
        footer = pq.read_metadata(file)
    except (OSError, ValueError, pa.ArrowException):
        return None
    return [footer.row_group(n).num_rows for n in range(footer.num_row_groups)]


def test_a_footer_whose_row_groups_are_not_its_rows_is_refused(tmp_path: Path) -> None:
    """Goal: no bit of the number of rows loses any of them; pyarrow reads most of these files."""
    file = tmp_path / "a.parquet"
    table = pa.table({"n": pa.array(range(60), pa.int64())})
    pq.write_table(table, file, row_group_size=20)
    tried = 0
    for changed in flips_of_the_footer(file.read_bytes()):
        file.write_bytes(changed)
        counts = counts_of(file)
        if counts is None or len(counts) != 3 or counts == [20, 20, 20]:
            continue
        tried += 1
        with pytest.raises(OSError, match=r"^its footer contradicts itself: "):
            read_metadata(file)
    assert tried > 20
    file.write_bytes(changed_first_count(table, tmp_path))
    with pytest.raises(ConfigurationError, match="contradicts itself"):
        rows_of(ParquetSource(file))
    with pytest.raises(DataError, match="contradicts itself"):
        rows_of(FileSource(file, ParquetFormat(), columns=table.schema))


def changed_first_count(table: pa.Table, folder: Path) -> bytes:
    file = folder / "other.parquet"
    pq.write_table(table, file, row_group_size=20)
    for changed in flips_of_the_footer(file.read_bytes()):
        file.write_bytes(changed)
        if (counts := counts_of(file)) and len(counts) == 3 and counts[2] < 0:
            file.unlink()
            return changed
    raise AssertionError("no bit makes a number negative")


def test_an_index_outside_of_its_dictionary_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    texts = pa.array([f"k{n % 10}" if n % 7 else None for n in range(200)])
    pq.write_table(pa.table({"s": texts}), file, compression="none", write_page_checksum=True)
    whole = file.read_bytes()
    refused = 0
    for position in range(4, 60):
        for bit in range(8):
            changed = bytearray(whole)
            changed[position] ^= 1 << bit
            file.write_bytes(changed)
            try:
                column = rows_of(ParquetSource(file, verify_pages=False)).column("s")
            except DataError as error:
                refused += "outside of its dictionary" in str(error)
            else:
                for chunk in column.chunks:
                    assert max(chunk.indices.drop_null().to_pylist(), default=0) < len(
                        chunk.dictionary
                    )
    assert refused > 0


@pytest.mark.parametrize("encoding", ["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY", "PLAIN"])
def test_short_texts_without_a_dictionary_are_read(tmp_path: Path, encoding: str) -> None:
    """Goal: fewer than four bytes a value are no sign of a dictionary where texts are encoded."""
    file = tmp_path / "a.parquet"
    table = pa.table({"country": ["CH", "DE", "FR", None] * 250})
    pq.write_table(table, file, use_dictionary=False, column_encoding={"country": encoding})
    for source in sources(file, pa.schema([("country", ENCODED_STRING)])):
        assert rows_of(source).cast(table.schema).equals(table)


def test_only_columns_that_parquet_keeps_as_dictionaries_are_read_as_such(tmp_path: Path) -> None:
    few = pa.array([f"merchant-{n % 10}" for n in range(20_000)])
    many = pa.array([f"payment-{n:012d}" for n in range(20_000)])
    table = pa.table({"few": few, "many": many, "n": pa.array(range(20_000))})
    file = tmp_path / "a.parquet"
    pq.write_table(table, file, dictionary_pagesize_limit=1_000)
    footer = pq.read_metadata(file)
    schema = declared_schema(footer, None, file)
    assert dictionary_columns(footer, schema) == ["few"]


class TestInt96:
    """Times as older Spark and Hive write them: days, and nanoseconds of the day."""

    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        return tmp_path / "a.parquet"

    @pytest.mark.parametrize("shape", ["plain", "lists", "structs"])
    def test_times_of_64_bits_come_out_as_they_are(self, file: Path, shape: str) -> None:
        at = times(MOMENTS, shape)
        table = pa.table({"a": [1, 2, 3, 4], "a.b": at, "at": at})
        pq.write_table(table, file, use_deprecated_int96_timestamps=True)
        plain = pq.read_table(file)
        assert "ns" in str(plain.schema.field("at").type)
        for source in sources(file, plain.schema):
            assert rows_of(source).equals(plain)

    @pytest.mark.parametrize("year", [1, 1677, 2263, 9999])
    @pytest.mark.parametrize("shape", ["plain", "lists", "structs"])
    def test_others_are_refused(self, file: Path, year: int, shape: str) -> None:
        at = times(["2026-01-01", f"{year:04}-01-01"], shape)
        table = pa.table({"n": [1, 2], "at": at})
        pq.write_table(table, file, use_deprecated_int96_timestamps=True)
        schema = pq.read_table(file).schema
        for source in sources(file, schema):
            with pytest.raises(DataError, match=r"'at' has times before 1677 or after 2262"):
                rows_of(source)
        assert rows_of(ParquetSource(file, columns=["n"])).num_rows == 2


def test_a_damaged_page_of_times_is_called_so(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    table = pa.table({"at": times(MOMENTS)})
    options = {"compression": "none", "use_dictionary": False, "write_page_checksum": True}
    pq.write_table(table, file, use_deprecated_int96_timestamps=True, **options)
    start = pq.read_metadata(file).row_group(0).column(0).data_page_offset

    def flip(data: bytearray) -> None:
        data[start + 60] ^= 0x80

    damage(file, flip)
    with pytest.raises(DataError, match="CRC checksum verification failed"):
        rows_of(ParquetSource(file))


def test_a_time_that_even_microseconds_would_wrap_is_refused(tmp_path: Path) -> None:
    """Goal: days that no calendar of ours has come out of a damaged file, and are noticed."""
    file = tmp_path / "a.parquet"
    options = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    table = pa.table({"at": times(["2026-01-01"])})
    pq.write_table(table, file, use_deprecated_int96_timestamps=True, **options)
    day = (2_461_042).to_bytes(4, "little")  # Julian, behind the nanoseconds of the day.

    def change(data: bytearray) -> None:
        at = data.index(bytes(8) + day) + 8
        data[at : at + 4] = (2_440_588 + 213_503_983).to_bytes(4, "little")

    damage(file, change)
    with pytest.raises(DataError, match="'at' has times before 1677 or after 2262"):
        rows_of(ParquetSource(file))


@pytest.mark.parametrize("rows", [1, 7, 100])
def test_times_are_compared_where_the_two_readings_have_other_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """Goal: a batch that Arrow cuts, because of its texts, is compared with its own times."""
    file = tmp_path / "a.parquet"
    days = [f"20{n:02}-01-01" for n in range(50)]
    table = pa.table({"at": times(days)})
    pq.write_table(table, file, use_deprecated_int96_timestamps=True)
    read_again = pq.ParquetFile.iter_batches

    def otherwise(self, size, **options):
        return read_again(self, rows if self is row_groups._times else size, **options)

    footer = read_metadata(file)
    row_groups = RowGroups(file, footer, declared_schema(footer, None, file), verify_pages=True)
    with closing(row_groups), monkeypatch.context() as patched:
        patched.setattr(pq.ParquetFile, "iter_batches", otherwise)
        found = pa.Table.from_batches(row_groups.batches(0, 20))
    assert found.equals(pq.read_table(file))


def test_a_name_that_is_no_text_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"abcd": ["x"] * 10}), file, store_schema=False)

    def flip(data: bytearray) -> None:
        data[data.index(b"abcd")] = 0xF3

    damage(file, flip)
    parquet, files = sources(file, pa.schema([("abcd", ENCODED_STRING)]))
    with pytest.raises(ConfigurationError, match=r"the name of a column is no text"):
        rows_of(parquet)
    with pytest.raises(DataError, match=r"the name of a column is no text"):
        rows_of(files)


def test_what_is_not_wanted_is_not_looked_at(tmp_path: Path) -> None:
    """Goal: damaged statistics of a column end the process where it is looked at."""
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"n": [1, 2], "s": ["a", "b"]}), file)
    footer = read_metadata(file)

    class Watched:
        def __init__(self) -> None:
            self.looked: list[int] = []
            self.num_row_groups, self.num_columns = footer.num_row_groups, footer.num_columns
            self.schema = footer.schema

        def row_group(self, number: int) -> "Watched":
            assert number == 0
            return self

        def column(self, index: int) -> pq.ColumnChunkMetaData:
            self.looked.append(index)
            return footer.row_group(0).column(index)

    watched = Watched()
    assert dictionary_columns(watched, declared_schema(footer, None, file)) == []
    assert watched.looked == [1]


def test_a_file_is_closed(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    table = pa.table({"at": pa.array([0], pa.timestamp("us"))})
    pq.write_table(table, file, use_deprecated_int96_timestamps=True)
    footer = read_metadata(file)
    row_groups = RowGroups(file, footer, declared_schema(footer, None, file), verify_pages=True)
    assert [batch.num_rows for batch in row_groups.batches(0, 10)] == [1]
    row_groups.close()
    with pytest.raises(ValueError, match="closed"):
        next(row_groups.batches(0, 10))
