"""Group by small dictionaries without a hash table: one array slot per combination of keys.

The keys of a batch mostly come as indices into a dictionary that is shorter than the batch. Then an
index is an address, and adding is ``array[address] += value``: about twice as fast as
``grouping.group``, which computes the same for any columns. Batches with nulls, NaN, sums that
might overflow, or other types are left to ``grouping.group``.

Keys that come plain, as those of partial results do, are encoded first. That costs one look into a
hash table of keys for each row, and then all columns are reduced by address.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from laminar_core.aggregates.grouping import Reduction, every_sum_fits
from laminar_core.codec.canonical import is_ambiguous

SLOTS_PER_ROW_MAX = 2
"""Above this, filling and scanning the slots costs more than hashing the rows."""

_Numbers = npt.NDArray[np.int64] | npt.NDArray[np.float64]


def dense_group(
    keys: Mapping[str, pa.ChunkedArray], rows: pa.Table, reductions: Sequence[Reduction]
) -> pa.Table | None:
    """Reduce ``rows`` by dictionary-encoded ``keys``, or return None if they are not that simple.

    Shapes: as ``grouping.group``, but rows come in the order of the dictionaries, the last key
    first; keys stay dictionary-encoded.
    """
    if not _are_dense(keys.values(), rows.num_rows):
        return None
    if not all(_is_simple(rows, reduction) for reduction in reductions):
        return None
    encoded = [key.chunk(0) for key in keys.values()]
    slots = _slots(encoded)
    counts = np.bincount(slots)
    occupied = np.flatnonzero(counts)
    columns: list[pa.Array] = _keys_of(occupied, encoded)
    columns += [
        pa.array(_results(rows, reduction, slots, counts)[occupied]) for reduction in reductions
    ]
    return pa.table(columns, [*keys, *(reduction.name for reduction in reductions)])


def encoded_group(
    keys: Mapping[str, pa.ChunkedArray], rows: pa.Table, reductions: Sequence[Reduction]
) -> pa.Table | None:
    """Reduce ``rows`` by one plain key, or return None if it is not that simple.

    Shapes: as ``grouping.group``; rows come in the order in which their keys appear first.
    """
    if len(keys) != 1 or not rows.num_rows:
        return None
    [(name, key)] = keys.items()
    if key.null_count or not _can_be_encoded(key.type):
        return None
    if not all(_is_exact(rows, reduction) for reduction in reductions):
        return None
    encoded = key.dictionary_encode()
    values = encoded.chunk(0).dictionary  # All chunks have the same one.
    slots = np.concatenate([chunk.indices.to_numpy() for chunk in encoded.chunks]).astype(np.intp)
    counts = np.bincount(slots)
    results = [pa.array(_results(rows, reduction, slots, counts)) for reduction in reductions]
    return pa.table([values, *results], [name, *(reduction.name for reduction in reductions)])


def _can_be_encoded(data_type: pa.DataType) -> bool:
    types = pa.types
    is_text = types.is_string(data_type) or types.is_large_string(data_type)
    is_bytes = types.is_binary(data_type) or types.is_large_binary(data_type)
    is_time = types.is_timestamp(data_type) or types.is_date(data_type)
    return is_text or is_bytes or is_time or types.is_integer(data_type)


def _are_dense(keys: Iterable[pa.ChunkedArray], row_count: int) -> bool:
    slots = 0
    for key in keys:
        if not pa.types.is_dictionary(key.type) or key.num_chunks != 1 or key.null_count:
            return False
        if is_ambiguous(key.type) or pa.types.is_struct(key.type.value_type):
            return False  # Two indices may be one key.
        slots = max(slots, 1) * len(key.chunk(0).dictionary)
    return 0 < slots <= SLOTS_PER_ROW_MAX * row_count


def _is_simple(rows: pa.Table, reduction: Reduction) -> bool:
    if callable(reduction.function):
        return False
    if reduction.column is None:
        return True
    values = rows.column(reduction.column)
    if values.null_count or reduction.function == "count":
        return not values.null_count
    if pa.types.is_int64(values.type):
        return reduction.function != "sum" or every_sum_fits(values)
    if pa.types.is_float64(values.type):
        return reduction.function == "sum" or not np.isnan(values.to_numpy()).any()
    return False


def _is_exact(rows: pa.Table, reduction: Reduction) -> bool:
    """Return whether the result is that of ``grouping.group`` to the last bit.

    Of two zeros with different signs numpy and pyarrow take different ones as the least.
    """
    if not _is_simple(rows, reduction):
        return False
    is_extreme = reduction.function in ("min", "max")
    return not is_extreme or pa.types.is_int64(rows.column(reduction.column).type)


def _slots(encoded: Sequence[pa.DictionaryArray]) -> npt.NDArray[np.intp]:
    """Number the combination of keys in each row; the first key counts fastest."""
    slots = encoded[-1].indices.to_numpy().astype(np.intp)
    for key in reversed(encoded[:-1]):
        slots *= len(key.dictionary)
        slots += key.indices.to_numpy()
    return slots


def _keys_of(
    slots: npt.NDArray[np.intp], encoded: Sequence[pa.DictionaryArray]
) -> list[pa.DictionaryArray]:
    """Take the numbers apart again."""
    keys: list[pa.DictionaryArray] = []
    for key in encoded:
        slots, indices = np.divmod(slots, len(key.dictionary))
        indices = pa.array(indices).cast(key.type.index_type)
        keys.append(pa.DictionaryArray.from_arrays(indices, key.dictionary))
    return keys


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
    if reduction.function == "sum":
        results = np.zeros(len(counts), values.dtype)
        np.add.at(results, slots, values)
    elif reduction.function == "min":
        results = np.full(len(counts), _limits(values.dtype)[1])
        np.minimum.at(results, slots, values)
    else:
        results = np.full(len(counts), _limits(values.dtype)[0])
        np.maximum.at(results, slots, values)
    return results


def _limits(dtype: np.dtype) -> tuple[int, int] | tuple[float, float]:
    if dtype == np.float64:
        return -np.inf, np.inf
    return np.iinfo(np.int64).min, np.iinfo(np.int64).max
