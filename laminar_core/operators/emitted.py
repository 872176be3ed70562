"""Checks of what a user's function emits: batches, and rows of side outputs."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators.base import Side
from laminar_core.operators.stateless import one_line


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
        said = one_line(result.schema)
    raise ConfigurationError(ErrorCode.WRONG_SCHEMA, f"{what} {said} instead of {one_line(schema)}")


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
