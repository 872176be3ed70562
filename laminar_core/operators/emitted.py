"""Checks of what a user's function emits: batches, and rows of side outputs."""

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators.base import Side


def require_emitted(
    result: Any,  # noqa: ANN401 - of the user
    schema: pa.Schema,
    what: str,
) -> pa.RecordBatch:
    """Return the batch; ``what`` begins the message, and says who emitted.

    Raises:
        ConfigurationError: it is none, or has other columns (WRONG_SCHEMA).
    """
    if isinstance(result, pa.RecordBatch) and result.schema.equals(schema):
        return result
    said = type(result).__name__
    if isinstance(result, pa.RecordBatch):
        said = _one_line(result.schema)
    raise ConfigurationError(
        ErrorCode.WRONG_SCHEMA, f"{what} {said} instead of {_one_line(schema)}"
    )


def one_or_several(result: Any) -> Iterable[Any]:  # noqa: ANN401 - of the user
    """Return what a function emits, one by one; what is no list is one, and can be refused."""
    is_one = isinstance(result, pa.RecordBatch | Side) or not hasattr(result, "__iter__")
    return (result,) if is_one else result


def require_side(side: Side, sides: Mapping[str, pa.Schema], what: str) -> pa.RecordBatch:
    """Return the rows for a side output.

    Raises:
        ConfigurationError: there is none of this name, or it has other columns (WRONG_SCHEMA).
    """
    if side.output not in sides:
        known = ", ".join(sorted(sides)) or "none"
        raise ConfigurationError(
            ErrorCode.WRONG_SCHEMA,
            f"{what} rows for the side output {side.output!r}, which is not declared; declared are:"
            f" {known}",
        )
    return require_emitted(side.rows, sides[side.output], f"{what} to side {side.output!r}")


def _one_line(schema: pa.Schema) -> str:
    """Return the columns and their types for a message."""
    return "(" + ", ".join(f"{field.name} {field.type}" for field in schema) + ")"
