"""Arguments of what a pipeline is built of: other types are refused in one line."""

from types import UnionType

import pyarrow as pa

from laminar_core.errors import ConfigurationError, ErrorCode

_SHOWN_MAX = 60
"""Characters of a value in a message; more than this would hide the message."""


def require_instance(
    argument: object, kind: type | UnionType | tuple[type, ...], wanted: str
) -> None:
    """Accept an argument of this kind; ``wanted`` says in the message what it must be.

    Raises:
        ConfigurationError: it is of another kind (INVALID_OPTION).
    """
    if not isinstance(argument, kind):
        raise other_argument(argument, wanted)


def require_methods(argument: object, names: tuple[str, ...], wanted: str) -> None:
    """Accept an object that has these attributes, as sources, sinks and operators of users do.

    Raises:
        ConfigurationError: it has not, or is a class instead of an object (INVALID_OPTION).
    """
    if isinstance(argument, type) or not all(hasattr(argument, name) for name in names):
        raise other_argument(argument, wanted)


def require_function(argument: object, wanted: str) -> None:
    """Accept what can be called.

    Raises:
        ConfigurationError: it cannot (INVALID_OPTION).
    """
    if not callable(argument):
        raise other_argument(argument, wanted)


def require_schema(schema: object, name: str) -> None:
    """Accept a schema of Arrow; the message says ``name``.

    Raises:
        ConfigurationError: it is something else (INVALID_OPTION).
    """
    wanted = f'{name} must be made as in pa.schema([("id", pa.int64())])'
    require_instance(schema, pa.Schema, wanted)


def other_argument(argument: object, wanted: str) -> ConfigurationError:
    """Return the error for an argument that is not what it must be."""
    text = " ".join(repr(argument).split())
    shown = text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"
    return ConfigurationError(ErrorCode.INVALID_OPTION, f"{wanted}, not {shown}")
