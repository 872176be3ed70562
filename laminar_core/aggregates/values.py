"""Columns of any type as numbers: their order, their equality, their hash.

pyarrow orders, compares and hashes only some types. Here every ordered scalar type becomes an array
of integers, with Spark's rules for floating point: NaN equals NaN and is larger than any number,
and ``0.0`` equals ``-0.0``.
"""

import numpy as np
import pyarrow as pa
from pyarrow.compute import RankOptions, call_function

from laminar_core.aggregates.grouping import comparable, plain_type
from laminar_core.aggregates.row_groups import Integers, as_array
from laminar_core.codec.canonical import canonical_floats
from laminar_core.codec.stable_hash import UInt64Array, hash_array

NULL_RANK = -(2**63)
"""Less than the rank of any value."""

_SIGN = np.int64(-(2**63))


def plain(column: pa.Array) -> pa.Array:
    """Return the column without a dictionary encoding."""
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def canonical_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type of :func:`canonical` values: the plain type, but float32 for half floats."""
    data_type = plain_type(data_type)
    return pa.float32() if pa.types.is_float16(data_type) else data_type


def canonical(column: pa.Array) -> pa.Array:
    """Return the values such that equal ones have equal bytes: one NaN, one zero, no dictionary."""
    values = plain(column).cast(canonical_type(column.type))
    return canonical_floats(values) if pa.types.is_floating(values.type) else values


def ranks(column: pa.Array) -> Integers:
    """Return an integer for every value, in the order of the values; equal ones are equal.

    Numbers and times are their own ranks, at the cost of a copy; other types are sorted. Ranks of
    two columns are not comparable. A null has ``NULL_RANK``.
    """
    if pa.types.is_null(column.type) or column.null_count == len(column):
        return np.full(len(column), NULL_RANK)
    values = as_array(comparable(pa.chunked_array([canonical(column)])))
    nulls = None
    if values.null_count:
        nulls = call_function("is_null", [values]).to_numpy(zero_copy_only=False)
    found = _own_ranks(values)
    if found is None or (found == NULL_RANK)[slice(None) if nulls is None else ~nulls].any():
        options = RankOptions(sort_keys="ascending", tiebreaker="dense")
        found = call_function("rank", [values], options).to_numpy().astype(np.int64)
    if nulls is not None:
        found[nulls] = NULL_RANK
    return found


def _own_ranks(values: pa.Array) -> Integers | None:
    """Return 64 bits in the order of the values, or None for longer types; nulls are arbitrary."""
    types = pa.types
    if types.is_floating(values.type):
        bits = _bits(values.cast(pa.float64()))
        return bits ^ ((bits >> 63) & np.int64(2**63 - 1))  # Negative numbers count backwards.
    if types.is_uint64(values.type):
        return _bits(values) ^ _SIGN
    if types.is_boolean(values.type):
        values = values.cast(pa.int8())
    if not (types.is_integer(values.type) or types.is_temporal(values.type)):
        return None
    if values.type.bit_width == pa.int64().bit_width:
        return _bits(values)
    is_day_or_time = types.is_date32(values.type) or types.is_time32(values.type)
    return _bits((values.cast(pa.int32()) if is_day_or_time else values).cast(pa.int64()))


def _bits(values: pa.Array) -> Integers:
    """A copy of 64-bit values as integers."""
    if not len(values):
        return np.empty(0, np.int64)
    data = np.frombuffer(values.buffers()[1], np.int64, len(values), 8 * values.offset)
    return data.copy()


def hashes(column: pa.Array) -> UInt64Array:
    """Return the stable hash of every value, whatever its type; all nulls have the same."""
    return hash_array(hashable(column))


def hashable(column: pa.Array) -> pa.Array:
    """Return the column in a type that the hash accepts; equality of values is preserved."""
    values, types = canonical(column), pa.types
    if types.is_floating(values.type):
        return values.cast(pa.float64()).view(pa.int64())
    if types.is_timestamp(values.type) or types.is_duration(values.type):
        return values.cast(pa.int64())  # The hash of keys does not tell nanoseconds apart.
    return values.cast(pa.int64()) if types.is_time64(values.type) else values
