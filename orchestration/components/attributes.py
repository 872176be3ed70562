"""The attributes of a component in YAML: templates are filled in, mistakes are shown at their line.

Dagster checks attributes before templates are filled in, and derives types for both. The types of
streams are not among those that it can derive. So attributes arrive here as they were written, and
are checked by the same models as in Python. Only the schema, by which ``dg check yaml`` judges,
allows templates wherever a value stands.
"""

import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar, cast

import dagster as dg
from dagster._utils.pydantic_yaml import enrich_validation_errors_with_source_position
from dagster.components.resolved.scopes import EnvScope, LoadContextScope
from pydantic import BaseModel, ConfigDict

M = TypeVar("M", bound=BaseModel)
Path = tuple[str | int, ...]

_TEMPLATE = re.compile(r"\{[{%]")
_VARIABLE = re.compile(r"\{\{\s*env(?:\.(\w+)|\(\s*['\"](\w+)['\"]\s*\))\s*\}\}")
_TEMPLATE_SCHEMA: dict[str, Any] = {"type": "string", "pattern": r"\{[{%]"}
_TYPED = frozenset({"integer", "number", "boolean", "array", "object"})


class Attributes(BaseModel):
    """Attributes as they were written; a subclass has the schema of the model that checks them."""

    model_config = ConfigDict(extra="allow")


def attributes_of(schema: Mapping[str, Any]) -> type[Attributes]:
    """Return the type of attributes whose values, or templates of them, have this JSON schema."""
    with_them = with_templates(schema)

    class Written(Attributes):
        @classmethod
        def model_json_schema(cls, *_: object, **_options: object) -> dict[str, Any]:
            return with_them

    return Written


def with_templates(schema: Mapping[str, Any]) -> dict[str, Any]:
    r"""Return a JSON schema that allows a template in place of every value that is no text.

    >>> with_templates({"properties": {"workers": {"type": "integer"}}})["properties"]["workers"]
    {'anyOf': [{'type': 'integer'}, {'type': 'string', 'pattern': '\\{[{%]'}]}
    """
    parts = {key: schema[key] for key in ("properties", "$defs") if key in schema}
    return {**schema, **{key: _each(value) for key, value in parts.items()}}


def _each(schemas: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _or_template(schema) for name, schema in schemas.items()}


def _or_template(schema: Mapping[str, Any]) -> dict[str, Any]:
    if "properties" in schema:  # A section: its values may be templates, but it is a mapping.
        return with_templates(schema)
    if "anyOf" in schema:
        return {**schema, "anyOf": [*schema["anyOf"], _TEMPLATE_SCHEMA]}
    if "enum" not in schema and schema.get("type") not in _TYPED:
        return dict(schema)
    told = {key: schema[key] for key in ("description", "default", "title") if key in schema}
    plain = {key: value for key, value in schema.items() if key not in told}
    return {**told, "anyOf": [plain, _TEMPLATE_SCHEMA]}


class _Environment(EnvScope):
    """Variables of the process that loads the definitions; one that is not set is a mistake."""

    def __getattr__(self, key: str) -> Any:  # noqa: ANN401 - as Dagster's
        if key.startswith("jinja"):  # Jinja looks for marks of its own.
            raise AttributeError(key)
        return self(key)

    def __call__(self, key: str, default: Any = ...) -> Any:  # noqa: ANN401 - as Dagster's
        if key not in os.environ and default is ...:
            raise LookupError(f"the environment variable {key} is not set")
        return os.environ.get(key, default)


def filled_in(
    attributes: BaseModel | None, context: dg.ComponentLoadContext, late: Collection[Path]
) -> dict[str, Any]:
    """Return the attributes with their templates filled in.

    ``late`` are the places (``*``: any key) where ``{{ env.X }}`` becomes a ``dagster.EnvVar``,
    which is read when a run needs it, and need not be set before.
    """
    scope = {"env": _Environment(), "context": LoadContextScope(context)}
    resolution = context.with_rendering_scope(scope).resolution_context.at_path("attributes")
    written = {} if attributes is None else attributes.model_dump()
    return cast("dict[str, Any]", _filled(written, resolution, (), late))


def _filled(
    value: object, context: dg.ResolutionContext, path: Path, late: Collection[Path]
) -> object:
    if isinstance(value, dict):
        items = cast("dict[str, object]", value).items()
        return {k: _filled(v, context.at_path(k), (*path, k), late) for k, v in items}
    if isinstance(value, list):
        parts = enumerate(cast("list[object]", value))
        return [_filled(v, context.at_path(n), (*path, n), late) for n, v in parts]
    if not isinstance(value, str) or not _TEMPLATE.search(value):
        return value  # Dagster would make a number of the text "1".
    variable = _VARIABLE.fullmatch(value.strip())
    if variable and any(_fits(path, place) for place in late):
        return dg.EnvVar(variable[1] or variable[2])
    return cast("object", context.resolve_value(value))  # pyright: ignore[reportUnknownMemberType]


def _fits(path: Path, place: Path) -> bool:
    return len(path) == len(place) and all(b in ("*", a) for a, b in zip(path, place, strict=True))


def checked(model: type[M], values: Mapping[str, Any], context: dg.ComponentLoadContext) -> M:
    """Return the model with these values.

    Raises:
        pydantic.ValidationError: names the field, the file and the line of each mistake.
    """
    with _at_its_line(context):
        return model.model_validate(dict(values))


@contextmanager
def _at_its_line(context: dg.ComponentLoadContext) -> Iterator[None]:
    written = context.resolution_context.source_position_tree
    found = written.children.get("attributes", written) if written else None
    where = enrich_validation_errors_with_source_position
    with where(found, ["attributes"]) if found else nullcontext():
        yield
