"""A stream as a component: what ``StreamSpec`` says in Python, in a file ``defs.yaml``."""

from datetime import date
from pathlib import Path
from typing import Any, Self, cast

import dagster as dg
from pydantic import BaseModel

from laminar_core.orchestration.components.attributes import attributes_of, checked, filled_in
from laminar_core.orchestration.factory import laminar_definitions
from laminar_core.orchestration.spec import StreamSpec


def _schema() -> dict[str, Any]:
    schema = StreamSpec.model_json_schema()
    given = schema["properties"]["arguments"]
    given["additionalProperties"] = {"type": ["string", "number", "boolean"]}  # As in YAML.
    del schema["properties"]["laminar"]["default"]  # It names the Python of this process.
    return schema


_ATTRIBUTES = attributes_of(_schema())


class StreamComponent(dg.Component):
    """A streaming job: its assets, checks, jobs, sensors and schedules.

    Each component is a group of its own, so the names of its jobs, sensors and schedules begin with
    the name of the stream.

    Attributes are the fields of ``StreamSpec``: ``name`` and ``program`` at least. A relative
    ``program`` is below the folder of ``defs.yaml``. Streams need one ``StoreComponent``, or the
    resources of ``laminar_core.resources.laminar_resources``.
    """

    def __init__(self, spec: StreamSpec) -> None:
        """Describe the stream in Python."""
        self.spec = spec

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        """Return what lists of component types show."""
        return dg.ComponentTypeSpec(
            description="A streaming job with exactly-once checkpoints, in Spark.",
            tags=["streaming", "spark"],
        )

    @classmethod
    def get_model_cls(cls) -> type[BaseModel]:
        """Return the type of the attributes in YAML, with their schema."""
        return _ATTRIBUTES

    @classmethod
    def load(cls, attributes: BaseModel | None, context: dg.ComponentLoadContext) -> Self:
        """Read the attributes.

        Raises:
            pydantic.ValidationError: names the field, the file and the line of each mistake.
        """
        values = filled_in(attributes, context, late=[("arguments", "*")])
        given = values.get("arguments")
        if isinstance(given, dict):
            values["arguments"] = {k: _text(v) for k, v in cast("dict[str, Any]", given).items()}
        if isinstance(program := values.get("program"), str):
            values["program"] = _folder(context.path) / program
        return cls(checked(StreamSpec, values, context))

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return the definitions of the stream."""
        del context
        return laminar_definitions(self.spec, group=self.spec.name)


def _folder(place: Path) -> Path:
    return place if place.is_dir() else place.parent


def _text(value: object) -> object:
    """Return a number, date or truth as the command line would have it."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, (int, float, date)) else value
