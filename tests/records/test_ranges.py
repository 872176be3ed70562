from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from laminar_core.records import limits
from laminar_core.records.ranges import Ranges, count_of, numbers_in, problem_of_ranges, ranges_of

ANY_RANGES: TypeAdapter[Ranges] = TypeAdapter(Ranges)


@given(st.sets(st.integers(0, 40)))
def test_folded_numbers_are_spelled_out_as_they_were(numbers: set[int]) -> None:
    ranges = ranges_of(sorted(numbers))
    assert list(numbers_in(ranges)) == sorted(numbers)
    assert count_of(ranges) == len(numbers)
    assert problem_of_ranges(ranges) is None
    assert all(after[0] > before[1] + 1 for before, after in pairwise(ranges))


@pytest.mark.parametrize(
    ("ranges", "problem"),
    [
        ([[0, 4], [4, 6]], "ranges overlap or are not in order at 4"),
        ([[5, 6], [0, 1]], "ranges overlap or are not in order at 0"),
        ([[0, 0], [0, 0]], "ranges overlap or are not in order at 0"),
        ([[3, 2]], "a range ends before it begins: 3 to 2"),
        ([[-1, 2]], "greater than or equal to 0"),
        ([[0, 2**63]], "less than or equal to"),
        ([[0, 2**70]], "less than or equal to"),
        ([[0]], "missing"),
        ([[0, True]], "valid integer"),
        ([[0, 1.0]], "valid integer"),
        ([[0, 1, 2]], "at most 2 items"),
    ],
)
def test_others_are_refused(ranges: list[list[float]], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        ANY_RANGES.validate_json(str(ranges).replace("True", "true"), strict=True)


def test_neighbours_may_touch_and_gaps_are_allowed() -> None:
    assert ANY_RANGES.validate_json("[[0, 1], [2, 2], [9, 9]]") == ((0, 1), (2, 2), (9, 9))


def test_a_huge_range_is_counted_without_being_spelled_out() -> None:
    assert count_of(((0, limits.COUNT_MAX),)) == 2**63
