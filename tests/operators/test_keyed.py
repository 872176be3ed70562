"""Key groups of keyed state: each is restored exactly once, or nothing is."""

import pytest

from laminar_core.errors import ErrorCode, ProtocolError
from laminar_core.operators.base import Snapshot, SubtaskContext
from laminar_core.operators.keyed import (
    integers,
    key_group_properties,
    number,
    owned_key_groups,
    restored_key_groups,
)
from laminar_core.protocol.types import Generation


def at(index: int, parallelism: int) -> SubtaskContext:
    return SubtaskContext("op", index, parallelism, 8, Generation(1))


def snapshots(*contexts: SubtaskContext) -> list[Snapshot]:
    return [Snapshot(properties=key_group_properties(context)) for context in contexts]


def test_a_snapshot_says_which_key_groups_it_is_of() -> None:
    assert owned_key_groups(at(1, 2)) == range(4, 8)
    assert key_group_properties(at(1, 2)) == {"key_groups": [4, 8]}


@pytest.mark.parametrize(
    ("before", "now", "ranges"),
    [
        ([at(1, 2)], at(1, 2), [range(4, 8)]),
        ([at(0, 2), at(1, 2)], at(0, 1), [range(4), range(4, 8)]),
        ([at(0, 2)], at(0, 4), [range(4)]),
    ],
    ids=["same", "fewer", "more"],
)
def test_the_key_groups_of_a_subtask_come_from_whoever_had_them(before, now, ranges) -> None:
    assert restored_key_groups(snapshots(*before), now) == ranges


@pytest.mark.parametrize("before", [[at(0, 2)], [], [at(0, 2), at(1, 2), at(3, 4)]])
def test_a_key_group_that_is_missing_or_there_twice_is_refused(before) -> None:
    with pytest.raises(ProtocolError, match="subtask 0 of 'op' owns key groups") as caught:
        restored_key_groups(snapshots(*before), at(0, 1))
    assert caught.value.code is ErrorCode.ILLEGAL_EVENT


def test_properties_are_read_as_what_they_must_be() -> None:
    assert number(3) == 3
    assert integers([1, 2]) == [1, 2]
    with pytest.raises(AssertionError):
        number("3")
    with pytest.raises(AssertionError):
        integers(3)
