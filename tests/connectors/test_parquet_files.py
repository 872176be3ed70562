"""Which files are found, what their columns are called and typed, and what is refused."""

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from laminar_core.connectors.parquet_files import (
    check_same_schema,
    declared_schema,
    list_files,
    unreadable,
)
from laminar_core.connectors.parquet_reading import ENCODED_STRING
from laminar_core.errors import ConfigurationError, DataError, ErrorCode


def write(path: Path, table: pa.Table | None = None, **options) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table if table is not None else pa.table({"n": [1, 2, 3]}), path, **options)
    return path


def footer(path):
    return pq.read_metadata(path)


@pytest.fixture
def tree(tmp_path):
    for name in ["b.parquet", "a.parquet", "day=1/c.parquet", "notes.txt"]:
        write(tmp_path / name)
    for name in ["_d.parquet", ".e.parquet", "_staging/f.parquet", "day=1/.tmp/g.parquet"]:
        write(tmp_path / name)
    return tmp_path


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("", ["a.parquet", "b.parquet", "day=1/c.parquet"]),
        ("b.parquet", ["b.parquet"]),
        ("notes.txt", ["notes.txt"]),
        ("_d.parquet", ["_d.parquet"]),
        ("*.parquet", ["a.parquet", "b.parquet"]),
        ("[ab].parquet", ["a.parquet", "b.parquet"]),
        ("day=*", ["day=1/c.parquet"]),
        ("**/*.parquet", ["a.parquet", "b.parquet", "day=1/c.parquet"]),
    ],
)
def test_files_are_found_by_name_and_sorted(tree, pattern, found):
    assert list_files(str(tree / pattern)) == [tree / name for name in found]


@pytest.mark.parametrize("missing", ["nope", "nope/*.parquet", "empty"])
def test_nothing_there_is_said_in_one_line(tmp_path, missing):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigurationError, match=r"^no .*" + missing.replace("*", r"\*")) as caught:
        list_files(str(tmp_path / missing))
    assert caught.value.code is ErrorCode.NO_SUCH_PATH
    assert "\n" not in str(caught.value)


def test_a_file_whose_name_looks_like_a_pattern_is_a_file(tmp_path):
    file = write(tmp_path / "part[1].parquet")
    assert list_files(str(file)) == [file]


@pytest.mark.parametrize(
    "stored",
    [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())],
    ids=str,
)
def test_every_kind_of_string_is_declared_as_a_dictionary(tmp_path, stored):
    values = (
        pa.array(["x", "y"]).cast(stored) if stored != pa.string_view() else pa.array(["x"], stored)
    )
    file = write(tmp_path / "a.parquet", pa.table({"s": values}))
    assert declared_schema(footer(file), None, file) == pa.schema([("s", ENCODED_STRING)])


def test_other_types_are_declared_as_stored_and_nullability_does_not_matter(tmp_path):
    types = [pa.int64(), pa.timestamp("us", tz="UTC"), pa.binary(), pa.list_(pa.string())]
    schema = pa.schema([pa.field(str(at), kind, nullable=False) for at, kind in enumerate(types)])
    file = write(tmp_path / "a.parquet", schema.empty_table())
    declared = declared_schema(footer(file), None, file)
    assert [kind for kind in declared.types if not pa.types.is_list(kind)] == types[:3]
    assert all(field.nullable for field in declared)


def test_columns_come_in_the_order_asked_for(tmp_path):
    file = write(tmp_path / "a.parquet", pa.table({"a": [1], "b": [1.5], "c": ["x"]}))
    assert declared_schema(footer(file), ["c", "a"], file).names == ["c", "a"]


@pytest.mark.parametrize("columns", [["a", "nope"], ["a", "a"]], ids=str)
def test_an_impossible_choice_of_columns_names_file_and_column(tmp_path, columns):
    file = write(tmp_path / "a.parquet", pa.table({"a": [1], "b": [1.5]}))
    with pytest.raises(
        ConfigurationError, match=rf"a\.parquet .* '{columns[1]}'; .* a, b"
    ) as caught:
        declared_schema(footer(file), columns, file)
    assert caught.value.code is ErrorCode.WRONG_SCHEMA


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({"a": pa.int64()}, r"fewer columns \(no b\)"),
        ({"a": pa.int64(), "b": pa.float64(), "c": pa.int8()}, r"more columns \(also c\)"),
        ({"a": pa.int64(), "b": pa.int32()}, r"another type of 'b' \(int32 instead of double\)"),
        ({"b": pa.float64(), "a": pa.int64()}, "another order of columns"),
    ],
    ids=["fewer", "more", "type", "order"],
)
def test_the_first_difference_of_two_schemas_is_named(found, said):
    wanted = pa.schema([("a", pa.int64()), ("b", pa.float64())])
    with pytest.raises(ConfigurationError, match=f"^new.parquet has {said} than old.parquet"):
        check_same_schema("old.parquet", wanted, "new.parquet", pa.schema(found))
    check_same_schema("old.parquet", wanted, "new.parquet", wanted)


def test_failures_to_read_name_the_part_and_the_file():
    with (
        pytest.raises(
            DataError, match=r"^cannot read row group 3 of x\.parquet: bad page$"
        ) as caught,
        unreadable("x.parquet", "row group 3 of "),
    ):
        raise pa.ArrowInvalid("bad\n page")
    assert caught.value.code is ErrorCode.UNREADABLE_FILE


def test_a_name_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"caf\xe9.parquet")).touch()
    with pytest.raises(
        ConfigurationError, match=r"caf\\udce9.parquet has a name that is not UTF-8"
    ):
        list_files(str(tmp_path))


def test_a_named_pipe_is_no_file_to_wait_for(tree: Path) -> None:
    os.mkfifo(tree / "pipe.parquet")
    assert tree / "pipe.parquet" not in list_files(str(tree))
