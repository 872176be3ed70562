"""Checked values that configuration is made of; an error names the field."""

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict

from laminar_core.errors import ConfigurationError
from laminar_core.operators.windows import duration_us


class Values(BaseModel):
    """Frozen, and refuses fields that it does not have."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def milliseconds(duration: str) -> int:
    """Whole milliseconds of a ``Duration``, at least one.

    >>> milliseconds("1 minute 30 seconds")
    90000
    """
    return max(duration_us(duration) // 1000, 1)


def _duration(text: str) -> str:
    try:
        duration_us(text)
    except ConfigurationError as error:
        raise ValueError(str(error)) from error
    return text


Duration = Annotated[str, AfterValidator(_duration)]
"""As in ``"30 seconds"``."""
