"""Cursors: the state of a sensor between ticks.

Their numbers have bounds, so a damaged one counts as unreadable, instead of naming no object.
"""

from typing import Annotated, Self

from pydantic import Field, ValidationError

from laminar_core.records.limits import COUNT_MAX, NUMBER_MAX, TIME_MS_MAX
from laminar_core.resources.values import Values

Number = Annotated[int, Field(ge=0, le=NUMBER_MAX)]
"""Number of a generation, a checkpoint or a record; 0: none."""
ClockMs = Annotated[int, Field(ge=0, le=TIME_MS_MAX)]
"""Milliseconds since 1970; 0: never."""
Beat = Annotated[int, Field(ge=-1, le=COUNT_MAX)]
"""Number of a heartbeat within its generation; -1: none."""
Tally = Annotated[int, Field(ge=0, le=COUNT_MAX)]
"""How often something was seen."""


class Cursor(Values):
    """A cursor that saves time or prevents repeated reports; nothing else depends on it."""

    @classmethod
    def read(cls, text: str | None) -> Self:
        """Parse it; one that cannot be read is as good as none."""
        try:
            return cls.model_validate_json(text or "{}")
        except ValidationError:
            return cls()


class AlertCursor(Cursor):
    """Causes that an alert has been raised for, as long as they last."""

    told: tuple[str, ...] = ()
