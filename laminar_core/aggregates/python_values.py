"""Python values that a user's function returned, as arrays."""

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import pyarrow as pa


def array_of(values: Sequence[object], data_type: pa.DataType) -> pa.Array:
    """Return values as an array of a type.

    If the type is an integer, ``pa.array`` itself silently turns the float 1.75 into 1.

    Raises:
        ValueError: a float with a fraction, for an integer.
        pa.ArrowException, TypeError, OverflowError: another value that does not fit.
    """
    found = pa.array(values, data_type)
    if _has_integers(data_type) and any(_loses_fraction(value, data_type) for value in values):
        raise ValueError(f"a float with a fraction is no {data_type}")
    return found


def _has_integers(of: pa.DataType) -> bool:
    if pa.types.is_nested(of):
        return any(_has_integers(of.field(n).type) for n in range(of.num_fields))
    return pa.types.is_integer(of)


def _loses_fraction(value: object, of: pa.DataType) -> bool:
    if isinstance(value, float):
        return pa.types.is_integer(of) and not value.is_integer()
    if pa.types.is_struct(of) and isinstance(value, Mapping):
        inner = cast("Mapping[str, object]", value)
        return any(_loses_fraction(inner.get(field.name), field.type) for field in of)
    if (pa.types.is_list(of) or pa.types.is_large_list(of)) and isinstance(value, Iterable):
        return any(_loses_fraction(one, of.value_type) for one in cast("Iterable[object]", value))
    return False
