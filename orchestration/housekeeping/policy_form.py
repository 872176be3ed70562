"""The fields of a retention policy in a form: a wrong name or word is refused by the launchpad."""

# Dagster's config types are only partly typed.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportUnknownMemberType=false

from datetime import timedelta
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import dagster as dg
from dagster._core.definitions.definition_config_schema import DefinitionConfigSchema

from laminar_core.retention.config import RetentionConfig


def with_policy_fields(form: DefinitionConfigSchema) -> DefinitionConfigSchema:
    """Return the schema of a form whose field ``policy`` has the fields of a policy, all optional.

    What is left out stays as it is in the stream's policy.
    """
    shape = form.as_field().config_type
    assert isinstance(shape, dg.Shape), "a form has fields"
    policy = dg.Field(
        dg.Shape(_policy_fields()),
        is_required=False,
        description=shape.fields["policy"].description,
    )
    changed = dg.Shape({**shape.fields, "policy": policy})
    return DefinitionConfigSchema(dg.Field(changed, description=form.description))


def _policy_fields() -> dict[str, dg.Field]:
    return {
        name: dg.Field(
            _config_type(f"policy_{name}", field.annotation),
            is_required=False,
            description=field.description,
        )
        for name, field in RetentionConfig.model_fields.items()
    }


def _config_type(name: str, annotation: Any) -> Any:  # noqa: ANN401 - types of both worlds
    if get_origin(annotation) is Annotated:
        return _config_type(name, get_args(annotation)[0])
    if get_origin(annotation) is Literal:
        return dg.Enum(name, [dg.EnumValue(word) for word in get_args(annotation)])
    kinds = [kind for kind in get_args(annotation) or (annotation,) if kind is not timedelta]
    (kind,) = (kind for kind in kinds if kind is not NoneType)
    plain = _config_type(name, kind) if get_args(kind) else {int: dg.Int, str: dg.String}[kind]
    return dg.Noneable(plain) if NoneType in kinds else plain
