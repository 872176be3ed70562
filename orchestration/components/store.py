"""The checkpoint store as a component: the resources of all streams of a project."""

from typing import Self

import dagster as dg
from pydantic import BaseModel, Field

from laminar_core.orchestration.components.attributes import attributes_of, checked, filled_in
from laminar_core.resources import laminar_resources
from laminar_core.resources.values import Late, Values


class StoreValues(Values):
    """Where the streams of a project keep what they have."""

    uri: Late = Field(
        description="A directory that driver, workers and Dagster share, or s3://bucket/prefix."
    )
    logs: Late | None = Field(
        default=None, description="Folder for the logs of detached drivers; must survive a restart."
    )


_ATTRIBUTES = attributes_of(StoreValues.model_json_schema())


class StoreComponent(dg.Component):
    """The checkpoint store that all streams of a project share, and the logs of their drivers.

    ``{{ env.X }}`` is read when a run needs it.
    """

    def __init__(self, values: StoreValues) -> None:
        """Describe the store in Python."""
        self.values = values

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        """Return what lists of component types show."""
        return dg.ComponentTypeSpec(
            description="The checkpoint store of all streams of a project.",
            tags=["streaming", "storage"],
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
        values = filled_in(attributes, context, late=[("uri",), ("logs",)])
        return cls(checked(StoreValues, values, context))

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return the resources."""
        del context
        return dg.Definitions(resources=laminar_resources(self.values.uri, logs=self.values.logs))
