"""Resources whose values the definitions settle: no form of a job shows them, or takes others.

Dagster would offer the values of every resource in every launchpad, so that a single run could be
given another store.
"""

# Dagster's resources are only partly typed.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false

from typing import Any, TypeVar

import dagster as dg
from dagster._config.pythonic_config.resource import (
    ConfigurableResourceFactoryResourceDefinition as Definition,
)
from dagster._core.definitions.definition_config_schema import (
    ConfiguredDefinitionConfigSchema,
    DefinitionConfigSchema,
)
from dagster._utils.cached_method import cached_method

T = TypeVar("T")


class SettledResource(dg.ConfigurableResource[T]):
    """Takes its values from its constructor alone; a ``dg.EnvVar`` is read when a run begins."""

    @cached_method  # Dagster compares definitions by identity.
    def get_resource_definition(self) -> Definition:
        """Return the definition, which asks a run for nothing."""
        settled = super().get_resource_definition()
        return Definition(
            self.__class__,
            settled.resource_fn,
            _Settled(settled),
            settled.description,
            settled.nested_resources,
            settled.nested_partial_resources,
        )


class _Settled(ConfiguredDefinitionConfigSchema):
    """No fields; the values go to the resource, and to its page in the UI."""

    def __init__(self, settled: Definition) -> None:
        nothing = DefinitionConfigSchema(dg.Field(dg.Shape({})))
        super().__init__(settled, nothing, settled.config_schema.default_value)
        self._shown = settled.config_schema.default_value_as_json_str

    @property
    def default_provided(self) -> bool:
        return True

    @property
    def default_value(self) -> dict[str, Any]:
        return {}

    @property
    def default_value_as_json_str(self) -> str:
        return self._shown
