"""Values that a user's function gives to state: they become arrays of the declared type."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from laminar_core.aggregates.python_values import array_of
from laminar_core.aggregates.row_groups import as_array
from laminar_core.errors import ConfigurationError, ErrorCode

Values = pa.Array | pa.ChunkedArray | npt.NDArray[Any] | Sequence[Any]


def typed_values(what: str, values: Values, data_type: pa.DataType) -> pa.Array:
    """Return values of the declared type; ``what`` is the state in messages.

    Raises:
        ConfigurationError: a value does not fit the type (WRONG_SCHEMA).
    """
    try:
        if isinstance(values, pa.Array | pa.ChunkedArray):
            found = as_array(values)
            return found if found.type.equals(data_type) else found.cast(data_type)
        if isinstance(values, np.ndarray):
            return pa.array(values, data_type)
        return array_of(values, data_type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        reason = str(error).partition("\n")[0]
        raise wrong(f"{what} holds {data_type}, and was given something else: {reason}") from error


def wrong(problem: str) -> ConfigurationError:
    """Return the error for state that was given something that does not fit."""
    return ConfigurationError(ErrorCode.WRONG_SCHEMA, problem)
