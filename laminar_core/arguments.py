"""Arguments of what a pipeline is built of: other types are refused in one line."""

from collections.abc import Sequence
from numbers import Real
from types import UnionType
from typing import cast

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.options import shown
from laminar_core.units import is_whole


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
    import pyarrow as pa  # noqa: PLC0415 - commands that read no rows do not wait for it

    wanted = f'{name} must be made as in pa.schema([("id", pa.int64())])'
    require_instance(schema, pa.Schema, wanted)


def require_whole(argument: object, least: int, name: str) -> None:
    """Accept a whole number that is large enough.

    Raises:
        ConfigurationError: it is less, or something else (INVALID_OPTION).
    """
    if not is_whole(argument):
        raise other_argument(argument, f"{name} must be a whole number")
    require_number(argument, least, name)


def require_number(argument: object, least: float, name: str) -> None:
    """Accept a number that is large enough.

    Raises:
        ConfigurationError: it is less, or something else (INVALID_OPTION).
    """
    if not (isinstance(argument, Real) and cast("float", argument) >= least):  # NaN is not.
        raise other_argument(argument, f"{name} must be at least {least:g}")


def require_choice(argument: object, choices: Sequence[str], name: str) -> None:
    """Accept one of these texts.

    Raises:
        ConfigurationError: it is another, or something else (INVALID_OPTION).
    """
    if not isinstance(argument, str) or argument not in choices:
        raise other_argument(argument, f"{name} must be one of {', '.join(choices)}")


def is_names(argument: object) -> bool:
    """Return whether these are several texts, at least one; not one text alone."""
    if not isinstance(argument, Sequence) or isinstance(argument, str | bytes):
        return False
    names = cast("Sequence[object]", argument)
    return len(names) > 0 and all(isinstance(each, str) for each in names)


def other_argument(argument: object, wanted: str) -> ConfigurationError:
    """Return the error for an argument that is not what it must be."""
    return ConfigurationError(ErrorCode.INVALID_OPTION, f"{wanted}, not {shown(argument)}")
