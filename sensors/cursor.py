"""Cursors: the state of a sensor between ticks."""

from typing import Self

from pydantic import ValidationError

from laminar_core.resources.values import Values


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
