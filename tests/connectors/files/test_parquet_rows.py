"""Rows of Parquet files come out once, from wherever reading resumed, local or in a bucket."""

import random
from contextlib import closing
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from laminar_core.connectors.base import SourceReader
from laminar_core.connectors.discovery import first_splits
from laminar_core.connectors.files import s3_place
from laminar_core.connectors.files.file_source import FileSource
from laminar_core.connectors.files.parquet_rows import ParquetFormat
from laminar_core.errors import ConfigurationError, DataError, ErrorCode
from laminar_core.objectstore.s3_options import S3Options
from tests.objectstore.s3_servers import S3Server, client

COLUMNS = pa.schema([("n", pa.int64()), ("name", pa.string())])


def table(start: int, stop: int) -> pa.Table:
    rows = [{"other": 1.5, "name": f"m-{n % 5}", "n": n} for n in range(start, stop)]
    return pa.Table.from_pylist(rows)


def parquet(start: int, stop: int, group: int = 7) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table(start, stop), sink, row_group_size=group, write_page_checksum=True)
    return sink.getvalue().to_pybytes()


def source_of(folder: Path | str, **changes: Any) -> FileSource:
    settings: dict[str, Any] = {"columns": COLUMNS, "pattern": "*.parquet"}
    return FileSource(folder, ParquetFormat(), **settings | changes)


def read(source: FileSource, splits: pa.Table, rows_max: int = 1_000) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    with closing(source.open(splits)) as reader:
        while not reader.finished:
            if (batch := reader.poll(rows_max)) is not None:
                assert batch.rows.schema == source.schema()
                assert batch.message_count == batch.rows.num_rows <= rows_max
                rows += batch.rows.to_pylist()
    return rows


def read_all(reader: SourceReader, rows_max: int) -> None:
    while not reader.finished:
        reader.poll(rows_max)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for at in range(3):
        (tmp_path / f"day=2026-01-0{at + 1}").mkdir()
        (tmp_path / f"day=2026-01-0{at + 1}" / "a.parquet").write_bytes(
            parquet(30 * at, 30 * at + 30)
        )
    (tmp_path / "_SUCCESS").touch()
    return tmp_path


def test_the_declared_columns_come_out_with_those_of_the_directories(folder: Path) -> None:
    source = source_of(folder, partitions=pa.schema([("day", pa.date32())]))
    found = read(source, first_splits(source))
    assert found == [
        {"n": n, "name": f"m-{n % 5}", "day": date(2026, 1, n // 30 + 1)} for n in range(90)
    ]


def test_text_comes_out_as_it_is_declared(folder: Path) -> None:
    encoded = pa.schema([("name", pa.dictionary(pa.int32(), pa.string()))])
    for columns in (encoded, pa.schema([("name", pa.large_string())])):
        source = source_of(folder, columns=columns)
        found = read(source, first_splits(source), 4)
        assert [row["name"] for row in found] == [f"m-{n % 5}" for n in range(90)]


@pytest.mark.parametrize("batch_rows", [1, 5, 1_000])
def test_a_reader_goes_on_exactly_where_another_one_was(folder: Path, batch_rows: int) -> None:
    source, draw = source_of(folder, batch_rows=batch_rows), random.Random(batch_rows)
    for _ in range(10):
        saved = first_splits(source)
        reader, kept, since = source.open(saved), list[int](), list[int]()
        while not reader.finished:
            batch = reader.poll(draw.randrange(1, 12))
            since += [] if batch is None else batch.rows.column("n").to_pylist()
            if draw.random() < 0.3:
                saved, kept, since = reader.position(), kept + since, []
            if draw.random() < 0.2:
                reader.close()
                reader, since = source.open(saved), []
        assert kept + since == list(range(90))


@pytest.mark.parametrize(
    ("stored", "problem"),
    [
        (pa.table({"n": [1]}), "has no column 'name'; its columns are n"),
        (pa.table({"n": ["1"], "name": ["x"]}), r"another type of 'n' \(string instead of int64\)"),
        (pa.table([[1], [2], ["x"]], ["n", "n", "name"]), "more than one column 'n'"),
    ],
)
def test_a_file_with_other_columns_stops_the_job(
    tmp_path: Path, stored: pa.Table, problem: str
) -> None:
    pq.write_table(stored, tmp_path / "a.parquet")
    source = source_of(tmp_path)
    with pytest.raises(DataError, match=f"^a.parquet .*{problem}") as stopped:
        read(source, first_splits(source))
    assert stopped.value.code is ErrorCode.UNREADABLE_FILE


def test_a_null_where_none_is_allowed_stops_the_job(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [1, None]}), tmp_path / "a.parquet")
    source = source_of(tmp_path, columns=pa.schema([pa.field("n", pa.int64(), nullable=False)]))
    with pytest.raises(DataError, match="behind offset 0: n is null in a row"):
        read(source, first_splits(source))


@pytest.mark.parametrize("size", [0, 3, 50, 400])
def test_a_file_that_is_broken_off_stops_the_job(tmp_path: Path, size: int) -> None:
    (tmp_path / "a.parquet").write_bytes(parquet(0, 30)[:size])
    source = source_of(tmp_path)
    with pytest.raises(DataError, match=r"a\.parquet cannot be read behind offset 0"):
        read(source, first_splits(source))


def test_a_damaged_page_stops_the_job(folder: Path) -> None:
    file = folder / "day=2026-01-02" / "a.parquet"
    data = bytearray(file.read_bytes())
    chunk = pq.read_metadata(file).row_group(2).column(2)
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    data[start + chunk.total_compressed_size - 1] ^= 1  # The last byte of its last page.
    file.write_bytes(data)
    source = source_of(folder)
    with pytest.raises(DataError, match=r"day=2026-01-02/a.parquet cannot be read"):
        read(source, first_splits(source))


def test_pages_that_are_not_verified_are_read_as_they_are(tmp_path: Path) -> None:
    """The damaged byte is in a value: nothing else than the checksum would tell."""
    file, rows = tmp_path / "a.parquet", pa.table({"n": pa.array([5, 6, 7], pa.int64())})
    pq.write_table(rows, file, compression="none", use_dictionary=False, write_page_checksum=True)
    content = bytearray(file.read_bytes())
    content[content.index((6).to_bytes(8, "little"))] = 9
    file.write_bytes(content)
    verified = FileSource(tmp_path, ParquetFormat(), rows.schema)
    trusting = FileSource(tmp_path, ParquetFormat(verify_pages=False), rows.schema)
    with pytest.raises(DataError, match=r"a\.parquet cannot be read"):
        read(verified, first_splits(verified))
    with closing(trusting.open(first_splits(trusting))) as reader:
        batch = reader.poll(8)
        assert batch is not None
        assert batch.rows["n"].to_pylist() == [5, 9, 7]
    assert (verified.properties, trusting.properties) == ({}, {"pages_verified": False})
    assert verified.describe() == trusting.describe()


def test_a_file_that_is_written_again_while_it_is_read_stops_the_job(folder: Path) -> None:
    source = source_of(folder)
    with closing(source.open(first_splits(source))) as reader:
        reader.poll(8)
        (folder / "day=2026-01-01" / "a.parquet").write_bytes(parquet(0, 20))
        with pytest.raises(DataError, match=r"a.parquet (was changed|cannot be read)"):
            read_all(reader, 8)


def test_lines_have_a_header_and_parquet_has_none(folder: Path) -> None:
    with pytest.raises(ConfigurationError, match="only files of CSV have a header"):
        source_of(folder, header=True)
    assert source_of(folder).describe()["format"] == {"format": "parquet"}


class TestBucket:
    """Objects below a prefix of an S3 server are read as files are."""

    @pytest.fixture
    def uri(self, s3_server: S3Server) -> str:
        uri = s3_server.uri()
        for at in range(3):
            put(uri, f"{at}.parquet", parquet(30 * at, 30 * at + 30))
        return uri

    @pytest.mark.parametrize("range_bytes", [100, 1_000, 8 * 1024**2])
    def test_objects_are_read_in_ranges_of_any_size(
        self, uri: str, monkeypatch: pytest.MonkeyPatch, range_bytes: int
    ) -> None:
        monkeypatch.setattr(s3_place, "RANGE_BYTES", range_bytes)
        source = source_of(uri, columns=COLUMNS.remove(1))
        splits, found = first_splits(source), list[int]()
        while splits.num_rows and not all(splits["done"].to_pylist()):
            with closing(source.open(splits)) as reader:
                for _ in range(2):
                    batch = reader.poll(20)
                    found += [] if batch is None else batch.rows.column("n").to_pylist()
                splits = reader.position()
        assert sorted(found) == list(range(90))

    def test_an_object_that_is_replaced_while_it_is_read_stops_the_job(
        self, uri: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(s3_place, "RANGE_BYTES", 100)
        source = replace(source_of(uri), batch_rows=5)
        with closing(source.open(first_splits(source))) as reader:
            reader.poll(5)
            for at in range(3):
                put(uri, f"{at}.parquet", parquet(100, 130))
            with pytest.raises(DataError, match="was changed since it was found: it is another"):
                read_all(reader, 5)

    def test_objects_that_come_are_read_with_those_before_them(self, uri: str) -> None:
        source = source_of(uri, mode="continuous")
        discovery = source.discovery()
        first = discovery.step({})
        put(uri, "3.parquet", parquet(90, 95))
        second = discovery.step(first.state)
        assert second.splits["split"].to_pylist() == ["3.parquet"]
        splits = pa.concat_tables([first.splits, second.splits])
        assert sorted(row["n"] for row in read(source, splits)) == list(range(95))


def put(uri: str, name: str, data: bytes) -> None:
    options = S3Options.parse(uri)
    assert options.endpoint_url is not None
    bucket = client(options.endpoint_url)
    bucket.put_object(Bucket=options.bucket, Key=f"{options.prefix}/{name}", Body=data)
