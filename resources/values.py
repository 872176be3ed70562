"""Validated types for configuration; an error names the field."""

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict

from laminar_core.objectstore.opening import absolute_uri, open_object_store
from laminar_core.units import accepted_by


class Values(BaseModel):
    """Frozen, and refuses fields that it does not have."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def _place(target: str) -> str:
    """Dagster runs anywhere: a relative path would be relative to nothing that one knows."""
    if absolute_uri(target) != target:
        raise ValueError("give an absolute path, or a URI such as s3://bucket/savepoints/name")
    return target


Place = Annotated[str, AfterValidator(_place), accepted_by(open_object_store)]
"""A directory or URI that means the same to every process of a machine."""
