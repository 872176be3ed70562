"""A total order of rows: by some columns first, then by all, so that no tie is left to luck.

Null is least and NaN greatest, as in Spark. Values without an order are compared as text. Rows that
are still tied are equal in every column.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
from pyarrow.compute import RankOptions, SortOptions, call_function

from laminar_core.aggregates.group_keys import flat_keys
from laminar_core.aggregates.grouping import comparable, is_ordered
from laminar_core.aggregates.row_groups import Integers, as_array
from laminar_core.codec.canonical import canonical_floats

_SIGN_LESS = np.int64(2**63 - 1)
_PACKED_BITS = 63


def total_order(ranks: Sequence[Integers], rows: pa.Table, *, descending: bool = False) -> Integers:
    """Return the order of rows by ``ranks``, the most significant first, then by all columns.

    ``descending``: of tied rows, the greatest comes first. Equal rows keep their order.
    """
    return without_ties(stable_order(ranks), ranks, rows, descending=descending)


def stable_order(ranks: Sequence[Integers]) -> Integers:
    """Return the order of rows by ``ranks``, the most significant first; equal ones keep theirs.

    If the ranks and the position of a row fit into 63 bits together, plain integers are sorted.
    numpy does that several times faster than it sorts positions by several arrays.
    """
    count = len(ranks[0])
    if not count:
        return np.empty(0, np.int64)
    lows = [int(rank.min()) for rank in ranks]
    highs = [int(rank.max()) for rank in ranks]
    widths = [(high - low).bit_length() for low, high in zip(lows, highs, strict=True)]
    position_bits = count.bit_length()
    if sum(widths) + position_bits > _PACKED_BITS:
        return np.lexsort(ranks[::-1])
    packed = np.zeros(count, np.int64)
    for rank, low, width in zip(ranks, lows, widths, strict=True):
        packed <<= width
        packed |= rank - low
    packed <<= position_bits
    packed |= np.arange(count)
    packed.sort()
    packed &= (1 << position_bits) - 1
    return packed


def without_ties(
    order: Integers, ranks: Sequence[Integers], rows: pa.Table, *, descending: bool = False
) -> Integers:
    """Return an order by ``ranks`` with rows of equal ranks ordered by all columns.

    ``order`` and ``descending``: as in ``stable_order`` and ``total_order``.
    """
    is_tied = np.zeros(len(order), np.bool_)
    is_tied[1:] = np.logical_and.reduce([rank[order][1:] == rank[order][:-1] for rank in ranks])
    if not is_tied.any():
        return order
    is_tied[:-1] |= is_tied[1:]
    tied = order[is_tied]
    some = rows.take(pa.array(tied))
    values = [rank for column in some.columns for rank in ranks_of(column)]
    values = [~rank for rank in values] if descending else values
    keys = [*(rank[tied] for rank in ranks), *values]
    settled = order.copy()
    settled[is_tied] = tied[stable_order(keys)]
    return settled


def ranks_of(column: pa.ChunkedArray) -> list[Integers]:
    """Return numbers that order values as this column does; one or two per value."""
    values = as_array(column)
    if pa.types.is_null(values.type):
        return []
    rank = _rank(values)
    if not values.null_count:
        return [rank]
    known = values.is_valid().to_numpy(zero_copy_only=False)
    return [known.astype(np.int64), np.where(known, rank, 0)]


def ascending(columns: Iterable[pa.ChunkedArray]) -> pa.Array:
    """Return the positions of rows in the order of keys of any type, the first column first.

    Nulls and NaN come last; equal rows keep their order.
    """
    flat = [comparable(part) for column in columns for part in flat_keys(column)]
    table = pa.Table.from_arrays(flat, [str(n) for n in range(len(flat))])
    options = SortOptions([(name, "ascending") for name in table.column_names])
    return call_function("sort_indices", [table], options)


def places(numbers: Integers) -> Integers:
    """Return the place of each row in its group, from 0; rows of a group are neighbours."""
    begins = np.flatnonzero(np.diff(numbers, prepend=-1))
    return np.arange(len(numbers)) - np.repeat(begins, np.diff(np.append(begins, len(numbers))))


def _rank(values: pa.Array) -> Integers:
    types, data_type = pa.types, values.type
    if not is_ordered(data_type):
        texts: Iterable[str] = (repr(value) for value in values.to_pylist())
        return _dense(pa.array(texts, pa.string()))
    if types.is_floating(data_type):
        known = canonical_floats(values).fill_null(0).cast(pa.float64())
        bits: Integers = known.view(pa.int64()).to_numpy()
        return np.where(bits < 0, bits ^ _SIGN_LESS, bits)
    if types.is_integer(data_type) and not types.is_uint64(data_type):
        return values.fill_null(0).cast(pa.int64()).to_numpy()
    if types.is_timestamp(data_type) or types.is_duration(data_type):
        return values.view(pa.int64()).fill_null(0).to_numpy()
    return _dense(comparable(values))


def _dense(values: pa.Array | pa.ChunkedArray) -> Integers:
    ranks = call_function("rank", [values], RankOptions(tiebreaker="dense"))
    return ranks.to_numpy().astype(np.int64)
