"""Parts of files: no part where it cannot be, none twice, and no file without one."""

from typing import NamedTuple

import pytest

from laminar_core.records.file_parts import problem_of


class FilePart(NamedTuple):
    path: str
    offset: int
    size_bytes: int
    channel: str

    @property
    def end(self) -> int:
        return self.offset + self.size_bytes


SIZES = {"a": 10, "b": 4}
WHOLE = [FilePart("a", 6, 4, "two"), FilePart("b", 0, 4, "three"), FilePart("a", 0, 6, "one")]


def test_parts_may_fill_their_files_in_any_order_of_the_list():
    assert problem_of(SIZES, WHOLE) is None
    assert problem_of({}, []) is None


def test_bytes_that_are_of_no_part_do_no_harm():
    assert problem_of(SIZES, [FilePart("a", 7, 2, "one"), FilePart("b", 1, 2, "two")]) is None


@pytest.mark.parametrize(
    ("part", "problem"),
    [
        (FilePart("c", 0, 1, "x"), "x is in a file that is not listed: c"),
        (FilePart("a", 9, 2, "x"), "x is behind the end of a"),
        (FilePart("a", 1 << 60, 1, "x"), "x is behind the end of a"),
        (FilePart("a", 5, 1, "x"), "x overlaps with another part of a"),
        (FilePart("b", 0, 4, "three"), "three overlaps with another part of b"),
    ],
)
def test_a_part_that_cannot_be_there_is_named(part, problem):
    assert problem_of(SIZES, [*WHOLE, part]) == problem


def test_a_part_that_spans_others_overlaps():
    found = problem_of(SIZES, [*WHOLE, FilePart("a", 0, 10, "x")])
    assert found is not None
    assert "overlaps with another part of a" in found


def test_a_file_without_a_part_is_named():
    assert problem_of(SIZES, WHOLE[1:2]) == "files without parts: ['a']"
