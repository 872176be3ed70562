"""Kinds of joins: the rows that each emits, and those that it remembers."""

import pytest

from laminar_core.errors import ConfigurationError
from laminar_core.operators.joins.kinds import (
    How,
    emits_unpaired,
    has_left_only,
    is_marked,
    require_how,
    sides_in_every_row,
)


@pytest.mark.parametrize(
    ("how", "unpaired", "marked", "in_every_row"),
    [
        ("inner", [False, False], [False, False], (0, 1)),
        ("left", [True, False], [True, False], (0,)),
        ("right", [False, True], [False, True], (1,)),
        ("full", [True, True], [True, True], ()),
        ("semi", [False, False], [True, False], (0,)),
        ("anti", [True, False], [True, False], (0,)),
    ],
)
def test_every_kind(
    how: How, unpaired: list[bool], marked: list[bool], in_every_row: tuple[int, ...]
) -> None:
    require_how(how, "join")
    assert [emits_unpaired(how, side) for side in (0, 1)] == unpaired
    assert [is_marked(how, side) for side in (0, 1)] == marked
    assert sides_in_every_row(how) == in_every_row
    assert has_left_only(how) == (how in {"semi", "anti"})


def test_other_kinds_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"join: how is inner, .*, anti, not cross"):
        require_how("cross", "join")
