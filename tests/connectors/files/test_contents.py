"""Lines of a file are batches with positions to go on at, behind a header if there is one."""

import gzip
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from laminar_core.connectors.files.contents import Contents, Header, Lines
from laminar_core.connectors.files.places import LocalPlace
from laminar_core.connectors.formats.csv_lines import CsvFormat
from laminar_core.errors import DataError

COLUMNS = pa.schema([("n", pa.int64())])
CSV = CsvFormat().decoder(COLUMNS)


def read(path: Path, contents: Contents, position: int = 0, rows_max: int = 2) -> list[int]:
    place = LocalPlace(path)
    (found,) = place.files()
    numbers: list[int] = []
    with closing(place.open(found)) as file:
        content = contents.open(file, found, position)
        while (batch := content.read(rows_max)) is not None:
            assert batch.split_id is None
            numbers += batch.rows.column("n").to_pylist()
    return numbers


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_the_header_is_passed_at_the_start_of_a_file_only(tmp_path: Path, name: str) -> None:
    data = b"n\n1\n2\n3\n"
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    contents = Lines(CSV, Header(("n",), ","))
    assert contents.schema == COLUMNS
    assert read(tmp_path / name, contents) == [1, 2, 3]
    behind_two_rows = 3 if name.endswith("gz") else data.index(b"3")
    assert read(tmp_path / name, contents, behind_two_rows) == [3]


def test_another_header_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"m\n1\n")
    with pytest.raises(DataError, match=r"a\.csv begins with the columns m instead of n"):
        read(tmp_path / "a.csv", Lines(CSV, Header(("n",), ",")))


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"n\r1\r", "begins with no header: .*new-line character.*: n 1$"),
        (150_000 * b"n" + b"\n1\n", "begins with no header: field larger than .*: n{299}…$"),
        (b" n\n1\n", "begins with the columns n instead of n without blanks$"),
        (b"n\x1b[31m\n1\n", r"begins with the columns n\\x1b\[31m instead of n$"),
    ],
)
def test_a_header_that_cannot_be_read_is_shown_in_one_line(
    tmp_path: Path, data: bytes, problem: str
) -> None:
    (tmp_path / "a.csv").write_bytes(data)
    with pytest.raises(DataError, match=problem):
        read(tmp_path / "a.csv", Lines(CSV, Header(("n",), ",")))


def test_messages_that_are_no_rows_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"1\nx\n")
    place = LocalPlace(tmp_path)
    (found,) = place.files()
    with closing(place.open(found)) as file:
        batch = Lines(CSV).open(file, found, 0).read(10)
    assert batch is not None
    assert batch.letters is not None
    assert (batch.rows.num_rows, batch.letters.num_rows, batch.messages) == (1, 1, 2)
