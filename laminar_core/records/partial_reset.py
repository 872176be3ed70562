"""A part of a pipeline that a generation begins anew, as the generation's base records it."""

from typing import Annotated

from pydantic import Field

from laminar_core.records.limits import ITEMS_MAX
from laminar_core.records.record import Many, Record


class PartialReset(Record):
    """Operators that begin without state, while all others continue from the base.

    It holds for every checkpoint of earlier generations, because the output of the part that they
    count on was withdrawn.
    """

    operators: Many[str]
    """Sources, operators and sinks: all that hangs together."""
    positions: Annotated[dict[str, str], Field(max_length=ITEMS_MAX)] = Field(
        default_factory=dict[str, str],
        exclude_if=lambda positions: not positions,
        description="Where sources are read from, other than from their beginning.",
    )
