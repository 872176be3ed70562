"""Ranges of numbers in a record: a short form of lists whose neighbours have much in common."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated

from pydantic import AfterValidator

from laminar_core.records.record import Count, Many

Range = tuple[Count, Count]
"""The first number and the last one."""


def problem_of_ranges(ranges: Iterable[Range]) -> str | None:
    """Return why these ranges cannot be one after the other; None: they can. Gaps are allowed."""
    previous = -1
    for first, last in ranges:
        if last < first:
            return f"a range ends before it begins: {first} to {last}"
        if first <= previous:
            return f"ranges overlap or are not in order at {first}"
        previous = last
    return None


def _in_order(ranges: tuple[Range, ...]) -> tuple[Range, ...]:
    if (problem := problem_of_ranges(ranges)) is not None:
        raise ValueError(problem)
    return ranges


Ranges = Annotated[Many[Range], AfterValidator(_in_order)]
"""Ascending, and none overlaps with another one."""


def ranges_of(numbers: Iterable[int]) -> tuple[Range, ...]:
    """Fold ascending numbers.

    >>> ranges_of([0, 1, 2, 5, 7, 8])
    ((0, 2), (5, 5), (7, 8))
    """
    found: list[Range] = []
    for number in numbers:
        if found and found[-1][1] + 1 == number:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
    return tuple(found)


def count_of(ranges: Iterable[Range]) -> int:
    """Return how many numbers the ranges have, without spelling them out."""
    return sum(last - first + 1 for first, last in ranges)


def numbers_in(ranges: Sequence[Range]) -> Iterator[int]:
    """Yield every number; compare ``count_of`` with a bound before."""
    for first, last in ranges:
        yield from range(first, last + 1)
