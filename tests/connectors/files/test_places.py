"""A directory is listed and read, and a file that is not the same any more is noticed."""

import os
from contextlib import closing
from pathlib import Path

import pytest

from laminar_core.connectors.files.places import (
    FileChangedError,
    LocalPlace,
    counts,
    place_at,
)
from laminar_core.errors import ConfigurationError, StorageUnavailable

NAMES = ["a.json", "day=1/b.json", "_old/c.json", "d/.e.json", "f.json.tmp", "g._COPYING_"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in NAMES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("12345")
    return tmp_path


def test_names_with_an_underscore_or_a_dot_in_front_and_unfinished_ones_do_not_count() -> None:
    assert [name for name in NAMES if counts(name, "*")] == ["a.json", "day=1/b.json"]
    assert [name for name in NAMES if counts(name, "b*")] == ["day=1/b.json"]


@pytest.mark.parametrize(
    ("pattern", "matching"),
    [
        ("*.json", ["a.json", "x/a.json", "x/y/a.json", "x/y/z/a.json"]),
        ("x/*.json", ["x/a.json"]),
        ("*/a.json", ["x/a.json"]),
        ("x/**", ["x/a.json", "x/y/a.json", "x/y/z/a.json"]),
        ("**/a.json", ["a.json", "x/a.json", "x/y/a.json", "x/y/z/a.json"]),
        ("x/**/z/*", ["x/y/z/a.json"]),
        ("**/y/**/*.json", ["x/y/a.json", "x/y/z/a.json"]),
        ("x/**/b.json", []),
        ("/".join(["**"] * 40) + "/b.json", []),
    ],
)
def test_a_pattern_of_several_parts_is_compared_with_the_whole_name(
    pattern: str, matching: list[str]
) -> None:
    names = ["a.json", "x/a.json", "x/y/a.json", "x/y/z/a.json"]
    assert [name for name in names if counts(name, pattern)] == matching


def test_files_are_listed_with_all_directories_below(folder: Path) -> None:
    found = {file.name: file.size_bytes for file in LocalPlace(folder).files()}
    assert found["day=1/b.json"] == 5
    assert "_old/c.json" not in found
    assert {file.name for file in LocalPlace(folder).files("b")} == {
        *("day=1/b.json", "d/.e.json", "f.json.tmp", "g._COPYING_")
    }


def test_only_regular_files_are_listed_and_a_pipe_is_not_waited_for(folder: Path) -> None:
    os.mkfifo(folder / "pipe.json")
    (folder / "dangling.json").symlink_to("nowhere.json")
    place = LocalPlace(folder)
    assert {"pipe.json", "dangling.json"}.isdisjoint(file.name for file in place.files())
    assert place.stat("pipe.json") is None
    found = place.stat("a.json")
    assert found is not None
    (folder / "pipe.json").replace(folder / "a.json")
    with pytest.raises(FileChangedError):
        place.open(found)


def test_a_link_to_itself_is_one_line(folder: Path) -> None:
    (folder / "loop.json").symlink_to("loop.json")
    with pytest.raises(StorageUnavailable, match=r"cannot read .*loop\.json: Too many levels"):
        list(LocalPlace(folder).files())


def test_a_single_file_is_a_place_too(folder: Path) -> None:
    place = LocalPlace(folder / "a.json")
    (file,) = place.files()
    assert file.name == "a.json"
    with closing(place.open(file)) as opened:
        assert opened.read(10) == b"12345"
    assert place.stat("a.json") == file


def test_a_directory_that_is_not_there_is_refused_and_one_that_is_unreadable_may_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigurationError, match="no such file or directory"):
        list(LocalPlace(tmp_path / "gone").files())

    def fails(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "scandir", fails)
    with pytest.raises(StorageUnavailable, match="Permission denied; try again"):
        list(LocalPlace(tmp_path).files())


@pytest.mark.parametrize("change", ["longer", "same length"])
@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_file_that_was_written_again_is_noticed(folder: Path, change: str, when: str) -> None:
    place = LocalPlace(folder)
    found = place.stat("a.json")
    assert found is not None

    def write() -> None:
        (folder / "a.json").write_text("123456" if change == "longer" else "54321")
        os.utime(folder / "a.json", ns=(1, 1))

    if when == "before":
        write()
        with pytest.raises(FileChangedError):
            place.open(found)
        return
    with closing(place.open(found)) as file:
        file.check_unchanged()
        write()
        with pytest.raises(FileChangedError):
            file.check_unchanged()


def test_a_name_out_of_storage_does_not_leave_the_directory(folder: Path) -> None:
    inner = LocalPlace(folder / "day=1")
    assert inner.stat("../a.json") is None
    assert inner.stat(str(folder / "a.json")) is None
    assert inner.stat("b.json/x") is None


def test_a_path_is_a_directory_and_a_uri_a_bucket(tmp_path: Path) -> None:
    assert isinstance(place_at(str(tmp_path)), LocalPlace)
    assert place_at("s3://bucket/in?region=eu-central-1").whole_at_once
