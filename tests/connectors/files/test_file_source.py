"""Lines of files come out once, from wherever reading resumed; a changed file is noticed."""

import gzip
import os
import random
from collections.abc import Callable
from contextlib import closing
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from laminar_core.connectors.discovery import first_splits
from laminar_core.connectors.files.file_reader import READ_FILES
from laminar_core.connectors.files.file_source import FileSource
from laminar_core.connectors.files.parquet_rows import ParquetFormat
from laminar_core.connectors.formats.arrow_ipc import ArrowIpcFormat
from laminar_core.connectors.formats.csv_lines import CsvFormat
from laminar_core.connectors.formats.json_format import JsonFormat
from laminar_core.connectors.formats.raw import RawFormat
from laminar_core.errors import ConfigurationError, DataError, ErrorCode, IncompatibleStateError
from laminar_core.state.splits import is_table_of_splits, rows_read
from tests.connectors.gap_checks import refuse_gaps

COLUMNS = pa.schema([("n", pa.int64()), ("name", pa.string())])
ALL = 1_000_000


def json_lines(start: int, stop: int) -> bytes:
    return b"".join(b'{"n":%d,"name":"m-%d"}\n' % (n, n % 5) for n in range(start, stop))


def zstd(data: bytes) -> bytes:
    return pa.compress(data, "zstd", asbytes=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three files of 10 lines; the later ones are compressed."""
    files: list[tuple[str, Callable[[bytes], bytes]]] = [
        ("c.json", bytes),
        ("b.json.gz", gzip.compress),
        ("a.json.zst", zstd),
    ]
    for at, (name, packed) in enumerate(files):
        (tmp_path / name).write_bytes(packed(json_lines(10 * at, 10 * at + 10)))
        os.utime(tmp_path / name, ns=(at * 1_000_000, at * 1_000_000))
    return tmp_path


def read(source: FileSource, splits: pa.Table, rows_max: int = ALL) -> list[dict[str, Any]]:
    """Return all rows; letters are rows with a defect."""
    rows: list[dict[str, Any]] = []
    with closing(source.open(splits)) as reader:
        while not reader.finished:
            batch = reader.poll(rows_max)
            if batch is not None:
                assert batch.rows.schema == source.schema()
                rows += batch.rows.to_pylist()
                if batch.letters is not None:
                    rows += batch.letters.select(["position", "defect"]).to_pylist()
    return rows


def source_of(folder: Path, **changes: Any) -> FileSource:
    settings = {"format": JsonFormat(), "columns": COLUMNS} | changes
    return FileSource(folder, **settings)


def test_files_are_read_in_the_order_of_time_whatever_their_compression(folder: Path) -> None:
    source = source_of(folder)
    splits = first_splits(source)
    assert is_table_of_splits(splits.schema)
    assert splits["split"].to_pylist() == ["c.json", "b.json.gz", "a.json.zst"]
    assert [row["n"] for row in read(source, splits)] == list(range(30))
    one = source_of(folder / "b.json.gz")
    assert [row["n"] for row in read(one, first_splits(one))] == list(range(10, 20))


def test_a_reader_goes_on_exactly_where_another_one_was(folder: Path) -> None:
    """At each crash the rows behind the last position are read again, and none is lost."""
    source, draw = source_of(folder), random.Random(7)
    for _ in range(30):
        saved, reader = first_splits(source), source.open(first_splits(source))
        kept: list[int] = []
        since: list[int] = []
        while not reader.finished:
            batch = reader.poll(draw.randrange(1, 8))
            since += [] if batch is None else batch.rows.column("n").to_pylist()
            if draw.random() < 0.3:
                saved, kept, since = reader.position(), kept + since, []
            if draw.random() < 0.2:
                reader.close()
                reader, since = source.open(saved), []
        assert kept + since == list(range(30))
        assert rows_read(reader.position()) == 30


def test_a_file_that_was_read_takes_no_place_and_may_be_deleted(folder: Path) -> None:
    source = source_of(folder)
    reader = source.open(first_splits(source))
    while reader.position().num_rows == 3 and reader.position()["split"][0].as_py() != READ_FILES:
        reader.poll(4)
    (folder / "c.json").unlink()
    position = reader.position()
    assert position["split"].to_pylist() == [READ_FILES, "b.json.gz", "a.json.zst"]
    refuse_gaps(source, position)
    assert [row["n"] for row in read(source, position)][-15:] == list(range(15, 30))
    while not reader.finished:
        reader.poll(ALL)
    assert reader.position().select(["split_id", "done", "rows_read"]).to_pylist() == [
        {"split_id": 2, "done": True, "rows_read": 30}
    ]


def test_lines_that_are_no_rows_are_letters_with_their_place(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b'{"n":1}\nnot json\n\n{"n":"x"}\n{"n":2}')
    source = source_of(tmp_path, columns=pa.schema([("n", pa.int64())]))
    for rows_max in (1, 2, ALL):
        found = read(source, first_splits(source), rows_max)
        assert sorted(found, key=str) == [
            {"n": 1},
            {"n": 2},
            {"position": 18, "defect": "wrong-type"},
            {"position": 8, "defect": "malformed"},
        ]


def test_values_of_directories_are_columns(tmp_path: Path) -> None:
    for day in ("2026-01-01", "2026-01-02"):
        (tmp_path / f"day={day}").mkdir()
        (tmp_path / f"day={day}" / "a.txt").write_text(f"of {day}\n")
    source = source_of(
        tmp_path,
        format=RawFormat(),
        columns=pa.schema([("line", pa.string())]),
        partitions=pa.schema([("day", pa.date32())]),
    )
    rows = read(source, first_splits(source))
    assert sorted(rows, key=str) == [
        {"line": f"of 2026-01-0{n}", "day": date(2026, 1, n)} for n in (1, 2)
    ]
    (tmp_path / "b.txt").touch()
    with pytest.raises(ConfigurationError, match=r"b.txt is in no directory day=") as caught:
        first_splits(source)
    assert caught.value.code is ErrorCode.WRONG_SCHEMA


CSV = {"format": CsvFormat(), "columns": COLUMNS, "header": True}


class TestHeaders:
    """The first line of a file of CSV names its columns, and is no row."""

    def test_it_is_passed_once_in_each_file(self, tmp_path: Path) -> None:
        for name in ("a.csv", "b.csv.gz"):
            data = b'n,"name"\n1,x\n2,y\n'
            (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
        source = source_of(tmp_path, **CSV)
        for rows_max in (1, ALL):
            found = read(source, first_splits(source), rows_max)
            assert [row["n"] for row in found] == [1, 2, 1, 2]
        with closing(source.open(first_splits(source))) as reader:
            reader.poll(1)
            assert len(read(source, reader.position())) == 3

    @pytest.mark.parametrize("first", [b"name,n", b"n", b"1,x", b"n;name"])
    def test_another_one_is_refused(self, tmp_path: Path, first: bytes) -> None:
        (tmp_path / "a.csv").write_bytes(first + b"\n1,x\n")
        source = source_of(tmp_path, **CSV)
        with pytest.raises(DataError, match=r"a.csv begins with the columns .* instead of n, name"):
            read(source, first_splits(source))

    def test_columns_that_are_not_wanted_are_named_by_the_format(self, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_bytes(b"id;n;name\nx;1;y\n")
        (tmp_path / "b.csv").write_bytes(b"")
        format_ = CsvFormat(columns=("id", "n", "name"), delimiter=";")
        source = source_of(tmp_path, **CSV | {"format": format_})
        assert read(source, first_splits(source)) == [{"n": 1, "name": "y"}]


@pytest.mark.parametrize("change", ["gone", "changed"])
def test_a_file_with_lines_left_that_is_gone_or_changed_is_named(folder: Path, change: str) -> None:
    source = source_of(folder)
    splits = first_splits(source)
    if change == "gone":
        (folder / "b.json.gz").unlink()
    else:
        (folder / "b.json.gz").write_bytes(b"something else")
    with pytest.raises(IncompatibleStateError, match=f"b.json.gz .*{change}") as caught:
        refuse_gaps(source, splits)
    assert caught.value.code is ErrorCode.SOURCE_CHANGED
    (gap,) = source.gaps(splits)
    with pytest.raises(IncompatibleStateError, match="skip-split instead"):
        source.mend(splits, gap, "earliest")
    mended = source.mend(splits, gap, "skip-split")
    assert source.gaps(mended) == []
    assert read(source, mended)
    with pytest.raises(DataError, match=f"b.json.gz .*{change}") as stopped:
        read(source, splits)
    assert stopped.value.code is ErrorCode.UNREADABLE_FILE


def test_a_file_that_is_written_to_while_it_is_read_stops_the_job(folder: Path) -> None:
    source = source_of(folder)
    with closing(source.open(first_splits(source))) as reader:
        for _ in range(4):
            reader.poll(3)
        with (folder / "c.json").open("ab") as file:
            file.write(json_lines(90, 91))
        with pytest.raises(DataError, match=r"c.json was changed since it was found"):
            reader.poll(3)


def test_a_broken_archive_is_named_with_the_last_good_place(tmp_path: Path) -> None:
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(json_lines(0, 50_000))[:-20_000])
    source = source_of(tmp_path)
    with pytest.raises(DataError, match=r"a.json.gz cannot be read behind offset \d+"):
        read(source, first_splits(source), 1_000)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"format": ArrowIpcFormat()}, "Arrow IPC has no lines"),
        ({"header": True}, "only files of CSV have a header"),
        ({"batch_rows": 0}, "batch_rows must be at least 1"),
        ({"partitions": pa.schema([("n", pa.int64())])}, "need different names"),
        ({"columns": pa.schema([("n", pa.duration("s"))])}, "n"),
        ({"path": "ftp://host/x"}, "give a path, or a URI"),
    ],
)
def test_a_mistake_is_refused_when_the_source_is_made(
    tmp_path: Path, changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        FileSource(**{"path": tmp_path, "format": JsonFormat(), "columns": COLUMNS} | changes)


def test_without_files_there_is_nothing_to_read(folder: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"no file \*.csv in"):
        first_splits(source_of(folder, pattern="*.csv"))
    with pytest.raises(ConfigurationError, match="no such file or directory"):
        first_splits(source_of(folder / "gone"))


def test_the_description_has_what_decides_which_rows_there_are(folder: Path) -> None:
    source = source_of(folder)
    assert source.describe() == source_of(folder, batch_rows=3).describe()
    for changes in ({"pattern": "*.json"}, {"format": CsvFormat()}, {"columns": COLUMNS.remove(1)}):
        assert source_of(folder, **changes).describe() != source.describe()
    remote = FileSource("s3://bucket/in?region=eu-central-1", JsonFormat(), COLUMNS)
    assert remote.describe()["path"] == "s3://bucket/in"


class TestComingFiles:
    """The discovery of files that keep coming, and what it reports."""

    def test_a_file_that_cannot_be_read_as_it_is_named_is_reported_and_the_others_are_read(
        self, tmp_path: Path
    ) -> None:
        columns = pa.schema([("day", pa.date32())])
        source = source_of(tmp_path, mode="continuous", partitions=columns)
        for name in ("day=2026-01-01", "day=tomorrow"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "a.json").write_bytes(json_lines(0, 1))
        discovery = source.discovery()
        found = discovery.step(discovery.step({}).state)
        assert found.splits["split"].to_pylist() == ["day=2026-01-01/a.json"]
        assert list(found.problems) == [
            "is not read: day=tomorrow/a.json: 'tomorrow' does not fit date32[day]"
        ]

    def test_a_file_whose_name_is_not_utf_8_is_reported_and_the_others_are_read(
        self, tmp_path: Path
    ) -> None:
        for name in (b"a.json", b"caf\xe9.json"):
            (tmp_path / os.fsdecode(name)).write_bytes(json_lines(0, 1))
        discovery = source_of(tmp_path, mode="continuous").discovery()
        found = discovery.step(discovery.step({}).state)
        assert found.splits["split"].to_pylist() == ["a.json"]
        problem = r"caf\udce9.json has a name that is not UTF-8: rename it"
        assert list(found.problems) == [f"is not read: {problem}"]
        with pytest.raises(ConfigurationError) as caught:
            first_splits(source_of(tmp_path))
        assert str(caught.value).endswith(problem)

    def test_late_files_are_named_and_counted(self, tmp_path: Path) -> None:
        source = source_of(tmp_path, mode="continuous", max_age="1 second")
        (tmp_path / "new.json").touch()
        discovery = source.discovery()
        state = discovery.step(discovery.step({}).state).state
        for at in range(5):
            (tmp_path / f"late{at}.json").touch()
            os.utime(tmp_path / f"late{at}.json", ns=(1, 1))
        found = discovery.step(state)
        assert found.splits.num_rows == 0
        (problem,) = found.problems
        assert problem.startswith("came later than max_age allows, and is not read: late0.json, ")
        assert problem.endswith("late2.json, and 2 more files")
        assert found.late_count == 5

    def test_without_a_limit_no_file_is_late(self, tmp_path: Path) -> None:
        assert source_of(tmp_path, mode="continuous").discovery().step({}).late_count is None

    def test_a_mistake_in_its_options_is_refused(self, tmp_path: Path) -> None:
        for changes, problem in (
            ({"mode": "always"}, "mode must be one of once, continuous"),
            ({"ordered": True, "max_age": "1 day"}, "leave max_age out"),
        ):
            with pytest.raises(ConfigurationError, match=problem):
                source_of(tmp_path, **changes)


def test_a_source_without_columns_is_refused(tmp_path: Path) -> None:
    """Goal: rows that have only the values of their directories do not get lost."""
    (tmp_path / "day=1").mkdir()
    pq.write_table(pa.table({"n": range(10)}), tmp_path / "day=1" / "a.parquet")
    source = FileSource(
        tmp_path,
        ParquetFormat(),
        columns=pa.schema([]),
        partitions=pa.schema([("day", pa.int32())]),
        pattern="*.parquet",
    )
    with pytest.raises(ConfigurationError, match="declare at least one"):
        source.discovery()


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_a_long_line_is_whole_or_a_letter(tmp_path: Path, mark: bytes) -> None:
    (tmp_path / "a.txt").write_bytes(mark + 17 * 1024**2 * b"x" + b"\nshort\n")
    of_text = pa.schema([("v", pa.string())])
    source = source_of(tmp_path, format=RawFormat(18 * 1024**2), columns=of_text)
    lengths = [len(row["v"]) for row in read(source, first_splits(source))]
    assert lengths == [17 * 1024**2, 5]
    source = source_of(tmp_path, format=RawFormat(), columns=of_text)
    rows = read(source, first_splits(source))
    assert rows == [{"v": "short"}, {"position": 0, "defect": "too-large"}]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {"format": "json"},
            r"format must be an object such as JsonFormat\(\) or CsvFormat\(\), not 'json'",
        ),
        ({"format": JsonFormat}, "format must be an object"),
        ({"columns": {"id": pa.int64()}}, "columns must be made as in"),
        ({"partitions": ["day"]}, "partitions must be made as in"),
    ],
)
def test_a_format_and_columns_of_another_type_are_refused(
    tmp_path: Path, changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        source_of(tmp_path, **changes)
