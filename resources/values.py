"""Validated types for configuration; an error names the field."""

from typing import Annotated

import dagster as dg
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from laminar_core.objectstore.opening import absolute_uri, open_object_store
from laminar_core.units import accepted_by


class Values(BaseModel):
    """Frozen, and refuses fields that it does not have."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def _late(value: object, check: ValidatorFunctionWrapHandler) -> str:
    """Keep a variable: pydantic would make its *name* of it."""
    return value if isinstance(value, dg.EnvVar) else check(value)


Late = Annotated[str, WrapValidator(_late)]
"""A text, or a ``dagster.EnvVar``, which is read when a run needs it."""


def _place(target: str) -> str:
    """Dagster runs anywhere: a relative path would be relative to nothing that one knows."""
    if absolute_uri(target) != target:
        raise ValueError("give an absolute path, or a URI such as s3://bucket/savepoints/name")
    return target


Place = Annotated[
    str, accepted_by(absolute_uri), AfterValidator(_place), accepted_by(open_object_store)
]
"""A directory or URI that means the same to every process of a machine."""
