"""Validated types for configuration; an error names the field."""

from collections.abc import Callable
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict

from laminar_core.errors import ConfigurationError
from laminar_core.objectstore.opening import absolute_uri, open_object_store
from laminar_core.operators.windows import duration_us
from laminar_core.records.sizes import size_bytes


class Values(BaseModel):
    """Frozen, and refuses fields that it does not have."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def milliseconds(duration: str) -> int:
    """Return the whole milliseconds of a ``Duration``, at least one.

    >>> milliseconds("1 minute 30 seconds")
    90000
    """
    return max(duration_us(duration) // 1000, 1)


def accepted_by(check: Callable[[str], object]) -> AfterValidator:
    """Return a type for texts that ``check`` accepts.

    Its error is reported with the field's name.
    """

    def validate(text: str) -> str:
        try:
            check(text)
        except ConfigurationError as error:
            raise ValueError(str(error)) from error
        return text

    return AfterValidator(validate)


Duration = Annotated[str, accepted_by(duration_us)]
"""A duration, such as ``"30 seconds"``."""

Size = Annotated[str, accepted_by(size_bytes)]
"""A size, such as ``"64MiB"``; a number alone is bytes."""


def _place(target: str) -> str:
    """Dagster runs anywhere: a relative path would be relative to nothing that one knows."""
    if absolute_uri(target) != target:
        raise ValueError("give an absolute path, or a URI such as s3://bucket/savepoints/name")
    return target


Place = Annotated[str, AfterValidator(_place), accepted_by(open_object_store)]
"""A directory or URI that means the same to every process of a machine."""
