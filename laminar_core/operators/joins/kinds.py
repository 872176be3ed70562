"""The kinds of joins of pairs: which rows they emit, and what they have to remember for it."""

from typing import Literal, get_args

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators.joins.side import LEFT, RIGHT

How = Literal["inner", "left", "right", "full", "semi", "anti"]
"""``inner``: pairs; ``left``, ``right`` and ``full``: also rows of one side, or of both, without
partner. ``semi``: left rows that have a partner, each once; ``anti``: left rows that have none."""


def require_how(how: str, operator_id: str) -> None:
    """Accept a kind of join.

    Raises:
        ConfigurationError: there is no such kind (INVALID_OPTION).
    """
    if how not in get_args(How):
        raise ConfigurationError(
            ErrorCode.INVALID_OPTION, f"{operator_id}: how is {', '.join(get_args(How))}, not {how}"
        )


def has_left_only(how: How) -> bool:
    """Return whether the result has only columns of the left side."""
    return how in ("semi", "anti")


def emits_unpaired(how: How, side: int) -> bool:
    """Return whether rows of this side without partner are emitted."""
    return how == "full" or how == ("left", "right")[side] or (how == "anti" and side == LEFT)


def is_marked(how: How, side: int) -> bool:
    """Return whether it is remembered of each row of this side that it has had a partner."""
    return emits_unpaired(how, side) or (how == "semi" and side == LEFT)


def sides_in_every_row(how: How) -> tuple[int, ...]:
    """Return the sides that have a row in every row of the result."""
    return {"inner": (LEFT, RIGHT), "right": (RIGHT,), "full": ()}.get(how, (LEFT,))
