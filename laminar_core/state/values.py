"""Columns of any type as numbers: their order, their equality, their hash.

What pyarrow orders, compares or hashes depends on the type. Here every scalar type that is ordered
becomes an array of integers, with Spark's rules for floating point: NaN equals NaN and is larger
than any number, and ``0.0`` equals ``-0.0``.
"""

import numpy as np
import pyarrow as pa
from pyarrow.compute import RankOptions, call_function

from laminar_core.state.grouping import comparable, plain_type
from laminar_core.state.row_groups import Integers, as_array
from laminar_core.state.stable_hash import UInt64Array, hash_array

NULL_RANK = -1


def plain(column: pa.Array) -> pa.Array:
    """The values themselves, without a dictionary."""
    return column.cast(plain_type(column.type))


def canonical_type(data_type: pa.DataType) -> pa.DataType:
    """Type of :func:`canonical` values: that of the plain ones, but for half floats float32."""
    data_type = plain_type(data_type)
    return pa.float32() if pa.types.is_float16(data_type) else data_type


def canonical(column: pa.Array) -> pa.Array:
    """Equal values get equal bytes: one NaN, one zero, no dictionary."""
    values = plain(column).cast(canonical_type(column.type))
    if not pa.types.is_floating(values.type):
        return values
    zero, nan = pa.scalar(0.0, values.type), pa.scalar(float("nan"), values.type)
    added = call_function("add", [values, zero])  # -0.0 + 0.0 is 0.0.
    return call_function("if_else", [call_function("is_nan", [added]), nan, added])


def ranks(column: pa.Array) -> Integers:
    """Dense rank of every value: equal values have equal ranks. That of a null is -1."""
    if pa.types.is_null(column.type) or column.null_count == len(column):
        return np.full(len(column), NULL_RANK)
    values = as_array(comparable(pa.chunked_array([canonical(column)])))
    options = RankOptions(sort_keys="ascending", tiebreaker="dense")
    found = call_function("rank", [values], options).to_numpy().astype(np.int64)
    if values.null_count:
        found[call_function("is_null", [values]).to_numpy(zero_copy_only=False)] = NULL_RANK
    return found


def hashes(column: pa.Array) -> UInt64Array:
    """Hash every value by the stable hash, whatever its type; the nulls alike."""
    return hash_array(hashable(column))


def hashable(column: pa.Array) -> pa.Array:
    """Equal values of the column, and only those, are equal in a type that the hash takes."""
    values, types = canonical(column), pa.types
    if types.is_floating(values.type):
        return values.cast(pa.float64()).view(pa.int64())
    if types.is_timestamp(values.type) or types.is_duration(values.type):
        return values.cast(pa.int64())  # The hash of keys does not tell nanoseconds apart.
    return values.cast(pa.int64()) if types.is_time64(values.type) else values
