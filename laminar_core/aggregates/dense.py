"""Group by small dictionaries without a hash table: one array slot per combination of keys.

The keys of a batch mostly come as indices into a dictionary that is shorter than the batch. Then an
index is an address, and adding is ``array[address] += value``: about twice as fast as
``grouping.group``, which computes the same for any columns. Batches with nulls, NaN, sums that
might overflow, or other types are left to ``grouping.group``.

Integers that lie close together are addresses themselves, see ``numbered_keys``. Other keys that
come plain, as those of partial results do, are numbered first: many integers by sorting them, and
all others with a look into a hash table for each row. Then all columns are reduced by address.
"""

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from laminar_core.aggregates.grouping import Reduction, every_sum_fits, has_nulls
from laminar_core.aggregates.numbered_keys import (
    NumberedKeys,
    by_address,
    by_hash,
    by_index,
    by_order,
)
from laminar_core.codec.canonical import is_ambiguous

SLOTS_PER_ROW_MAX = 2
"""Above this, filling and scanning the slots costs more than hashing the rows."""

_Numbers = npt.NDArray[np.int64] | npt.NDArray[np.float64]


def dense_group(
    keys: Mapping[str, pa.ChunkedArray], rows: pa.Table, reductions: Sequence[Reduction]
) -> pa.Table | None:
    """Reduce ``rows`` by dictionaries and close integers; None if keys are not that simple.

    Shapes: as ``grouping.group``, but rows come in the order of the dictionaries and of integers,
    the last key first; keys stay as they are encoded.
    """
    if not rows.num_rows or not all(_can_be_dense(key) for key in keys.values()):
        return None
    if not all(is_simple(rows, reduction) for reduction in reductions):
        return None
    numbered = _densely_numbered(keys.values(), SLOTS_PER_ROW_MAX * rows.num_rows)
    if not numbered:
        return None
    slots = _slots(numbered)
    counts = np.bincount(slots)
    occupied = np.flatnonzero(counts)
    columns: list[pa.Array] = _keys_of(occupied, numbered)
    results = (_results(rows, reduction, slots, counts) for reduction in reductions)
    if len(occupied) < len(counts):
        results = (result[occupied] for result in results)
    columns += [pa.array(result) for result in results]
    return pa.table(columns, [*keys, *(reduction.name for reduction in reductions)])


def encoded_group(
    keys: Mapping[str, pa.ChunkedArray], rows: pa.Table, reductions: Sequence[Reduction]
) -> pa.Table | None:
    """Reduce ``rows`` by one plain key, or return None if it is not that simple.

    Shapes: as ``grouping.group``; rows come in the order in which their keys appear first, or in
    ascending order of keys, where ``numbered_keys`` numbers them so.
    """
    if len(keys) != 1 or not rows.num_rows:
        return None
    [(name, key)] = keys.items()
    if key.null_count or not _can_be_encoded(key.type):
        return None
    if not all(_is_exact(rows, reduction) for reduction in reductions):
        return None
    numbered = by_address(key) or by_order(key) or by_hash(key)
    counts = np.bincount(numbered.of_rows)
    results = [
        pa.array(_results(rows, reduction, numbered.of_rows, counts)) for reduction in reductions
    ]
    return pa.table(
        [numbered.keys, *results], [name, *(reduction.name for reduction in reductions)]
    )


def _can_be_encoded(data_type: pa.DataType) -> bool:
    types = pa.types
    is_text = types.is_string(data_type) or types.is_large_string(data_type)
    is_bytes = types.is_binary(data_type) or types.is_large_binary(data_type)
    is_time = types.is_timestamp(data_type) or types.is_date(data_type)
    return is_text or is_bytes or is_time or types.is_integer(data_type)


def _can_be_dense(key: pa.ChunkedArray) -> bool:
    if not pa.types.is_dictionary(key.type):
        return pa.types.is_integer(key.type) and not key.null_count
    return can_be_listed(key)


def can_be_listed(key: pa.ChunkedArray) -> bool:
    """Return whether the keys are those of one dictionary, where each index is one key."""
    if key.null_count or not pa.types.is_dictionary(key.type):
        return False
    # Of others two indices may be one key.
    is_plain = not is_ambiguous(key.type) and not pa.types.is_struct(key.type.value_type)
    return key.num_chunks == 1 and is_plain


def _densely_numbered(
    keys: Collection[pa.ChunkedArray], slots_max: int
) -> Sequence[NumberedKeys] | None:
    """Number each key; None if there are more combinations than ``slots_max``."""
    lengths = [len(key.chunk(0).dictionary) for key in keys if pa.types.is_dictionary(key.type)]
    if math.prod(lengths) > slots_max:
        return None
    numbered: list[NumberedKeys] = []
    for key in keys:
        found = by_index(key.chunk(0)) if pa.types.is_dictionary(key.type) else by_address(key)
        if found is None:
            return None
        numbered.append(found)
    return numbered if math.prod(len(each.keys) for each in numbered) <= slots_max else None


def is_simple(rows: pa.Table, reduction: Reduction) -> bool:
    """Return whether numpy reduces the column exactly as ``grouping.group`` does."""
    if callable(reduction.function):
        return False
    if reduction.column is None:
        return True
    values = rows.column(reduction.column)
    if has_nulls(values) or reduction.function == "count":
        return not has_nulls(values)
    if pa.types.is_int64(values.type):
        return reduction.function != "sum" or every_sum_fits(values)
    if pa.types.is_float64(values.type):
        return reduction.function == "sum" or not np.isnan(values.to_numpy()).any()
    return False


def _is_exact(rows: pa.Table, reduction: Reduction) -> bool:
    """Return whether the result is that of ``grouping.group`` to the last bit.

    Of two zeros with different signs numpy and pyarrow take different ones as the least.
    """
    if not is_simple(rows, reduction):
        return False
    is_extreme = reduction.function in ("min", "max")
    return not is_extreme or pa.types.is_int64(rows.column(reduction.column).type)


def _slots(numbered: Sequence[NumberedKeys]) -> npt.NDArray[np.intp]:
    """Number the combination of keys in each row; the first key counts fastest."""
    if len(numbered) == 1:
        return numbered[0].of_rows
    slots = numbered[-1].of_rows.copy()
    for key in reversed(numbered[:-1]):
        slots *= len(key.keys)
        slots += key.of_rows
    return slots


def _keys_of(slots: npt.NDArray[np.intp], numbered: Sequence[NumberedKeys]) -> list[pa.Array]:
    """Take the numbers apart again."""
    keys: list[pa.Array] = []
    for key in numbered[:-1]:
        slots, numbers = np.divmod(slots, len(key.keys))
        keys.append(key.take(numbers))
    return [*keys, numbered[-1].take(slots)]


def _results(
    rows: pa.Table,
    reduction: Reduction,
    slots: npt.NDArray[np.intp],
    counts: npt.NDArray[np.intp],
) -> _Numbers:
    """Reduce a column into the slots; those without rows keep what they began with.

    ``counts``: the number of rows of each slot.
    """
    if reduction.function == "count":
        return counts
    values = rows.column(reduction.column).to_numpy()
    first, added = identity_of(str(reduction.function), values.dtype)
    results = np.full(len(counts), first, values.dtype)
    add_at(added, results, slots, values)
    return results


def add_at(
    function: np.ufunc,
    places: npt.NDArray[np.int64 | np.float64],
    at: npt.NDArray[np.intp],
    values: npt.ArrayLike,
) -> None:
    """Add each value, or the same one, to its place.

    A sum of floats may become infinite or NaN without a warning, as it does in pyarrow.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        function.at(places, at, values)


def identity_of(function: str, dtype: np.dtype) -> tuple[float, np.ufunc]:
    """Return what a sum or an extreme begins with, and the function that adds a value to it."""
    if function == "sum":
        return 0, np.add
    least, most = _limits(dtype)
    return (most, np.minimum) if function == "min" else (least, np.maximum)


def _limits(dtype: np.dtype) -> tuple[int, int] | tuple[float, float]:
    if dtype == np.float64:
        return -np.inf, np.inf
    return np.iinfo(np.int64).min, np.iinfo(np.int64).max
