"""Tables of lookups: their files are pinned once, and read as they were or not at all."""

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle

from laminar_core.connectors.files import lookup_table
from laminar_core.connectors.files.file_source import FileSource
from laminar_core.connectors.files.lookup_table import LookupTable, PinnedFiles
from laminar_core.connectors.formats.csv_lines import CsvFormat
from laminar_core.connectors.formats.json_format import JsonFormat
from laminar_core.errors import ConfigurationError, DataError, ErrorCode
from tests.connectors.files.test_parquet_rows import parquet, put
from tests.objectstore.s3_servers import S3Server

COLUMNS = pa.schema([("n", pa.int64()), ("name", pa.string())])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for at in range(2):
        (tmp_path / f"day={at}").mkdir()
        (tmp_path / f"day={at}" / "a.parquet").write_bytes(parquet(10 * at, 10 * at + 10))
    (tmp_path / "_SUCCESS").touch()
    return tmp_path


def numbers(pinned: PinnedFiles) -> list[int]:
    return sorted(n for rows in pinned.batches() for n in rows.column("n").to_pylist())


def refused(pinned: PinnedFiles) -> str:
    with pytest.raises(DataError) as caught:
        numbers(pinned)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_directory_of_parquet_has_the_columns_of_its_files(folder: Path) -> None:
    table = LookupTable.parquet(folder, partitions=pa.schema([("day", pa.int32())]))
    assert table.schema.names == ["other", "name", "n", "day"]
    assert table.schema.field("name").type == pa.string()
    pinned = table.pinned(["n", "day"])
    assert pinned.schema.names == ["n", "day"], "what is not used is not read"
    days = [row["day"] for rows in table.pinned(["day"]).batches() for row in rows.to_pylist()]
    assert sorted(days) == [0] * 10 + [1] * 10, "without a column of the files, too"
    assert numbers(cloudpickle.loads(cloudpickle.dumps(pinned))) == list(range(20))
    assert [file["name"] for file in pinned.describe()["files"]] == [
        "day=0/a.parquet",
        "day=1/a.parquet",
    ]


def test_a_single_file_and_some_files_are_tables(folder: Path) -> None:
    assert numbers(LookupTable.parquet(folder / "day=1" / "a.parquet").pinned(["n"])) == [
        *range(10, 20)
    ]
    some = LookupTable.parquet(folder, pattern="day=0/*")
    assert numbers(some.pinned(["n"])) == list(range(10))


def test_text_that_is_stored_as_a_dictionary_is_text(tmp_path: Path) -> None:
    names = pa.array(["a", "b"]).dictionary_encode()
    pq.write_table(
        pa.table({"name": names, "long": pa.array(["x"] * 2, pa.large_string())}),
        tmp_path / "t.parquet",
    )
    table = LookupTable.parquet(tmp_path)
    assert table.schema == pa.schema([("name", pa.string()), ("long", pa.string())])
    (rows,) = table.pinned(["name", "long"]).batches()
    assert rows.to_pylist() == [{"name": "a", "long": "x"}, {"name": "b", "long": "x"}]


def test_files_that_come_later_are_not_read_and_others_are_refused(folder: Path) -> None:
    pinned = LookupTable.parquet(folder).pinned(["n"])
    before = pinned.describe()
    (folder / "day=0" / "b.parquet").write_bytes(parquet(50, 60))
    assert numbers(pinned) == list(range(20))
    changed = folder / "day=1" / "a.parquet"
    data, status = changed.read_bytes(), changed.stat()
    changed.write_bytes(parquet(0, 40))
    assert "day=1/a.parquet was changed since it was found" in refused(pinned)
    changed.write_bytes(data)
    os.utime(changed, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert "written again, with the same length" in refused(pinned)
    os.utime(changed, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert numbers(pinned) == list(range(20)), "it is back as it was"
    changed.unlink()
    said = refused(pinned)
    assert "day=1/a.parquet is gone (in " in said
    assert "bring it back as it was, or start the job again" in said
    now = LookupTable.parquet(folder).pinned(["n"]).describe()
    assert before != now
    assert len(now["files"]) == 2


def test_lines_are_tables_too_and_a_line_that_is_no_row_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("n,name\n1,a\n2,b\n")
    table = LookupTable(FileSource(tmp_path / "t.csv", CsvFormat(), COLUMNS, header=True))
    pinned = table.pinned(["n"])
    assert numbers(pinned) == [1, 2]
    (tmp_path / "t.json").write_text('{"n": 1, "name": "a"}\n{"n": "x"}\n')
    bad = LookupTable(FileSource(tmp_path / "t.json", JsonFormat(), COLUMNS)).pinned(["n"])
    with pytest.raises(DataError, match=r"t.json has a line that is no row, at offset") as caught:
        numbers(bad)
    assert caught.value.code is ErrorCode.BAD_ROW


def test_what_is_no_table_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="no such file or directory"):
        LookupTable.parquet(folder / "none")
    with pytest.raises(ConfigurationError, match=r"no file \*.orc in"):
        LookupTable.parquet(folder, pattern="*.orc")
    with pytest.raises(ConfigurationError, match="look up in a stream"):
        LookupTable(FileSource(folder, JsonFormat(), COLUMNS, mode="continuous"))
    with pytest.raises(ConfigurationError, match="is not a size"):
        LookupTable.parquet(folder, size_max="much")
    monkeypatch.setattr(lookup_table, "FILES_MAX", 1)
    with pytest.raises(ConfigurationError, match="has 2 files and may have 1"):
        LookupTable.parquet(folder).pinned(["n"])
    (folder / "a.parquet").write_bytes(b"no parquet")
    with pytest.raises(DataError, match=r"a\.parquet cannot be read"):
        LookupTable.parquet(folder)


def test_objects_are_pinned_by_their_etag(s3_server: S3Server) -> None:
    uri = s3_server.uri()
    put(uri, "a.parquet", parquet(0, 10))
    table = LookupTable.parquet(uri)
    pinned = table.pinned(["n"])
    assert numbers(pinned) == list(range(10))
    before = pinned.describe()
    put(uri, "a.parquet", parquet(0, 10))
    assert table.pinned(["n"]).describe() == before, "the same bytes are the same object"
    put(uri, "a.parquet", parquet(5, 15))
    assert "a.parquet was changed since it was found: it is another object" in refused(pinned)
