"""The difference of two states: keys added, keys removed, keys with other values.

Whole columns are compared, of any Arrow type; no row becomes a Python object. Null equals null and
NaN equals NaN.
"""

# What Arrow counts is Any, and what numpy makes of it is unknown.
# pyright: reportUnknownVariableType=false

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow.compute import call_function

from laminar_core.aggregates.grouping import Reduction, group, plain_column
from laminar_core.aggregates.row_groups import as_array

_Mask = npt.NDArray[np.bool_]
_BEFORE, _AFTER = "row before", "row after"


@dataclass(frozen=True, slots=True)
class Difference:
    """Two states, compared by key.

    Shapes: ``before`` and ``after`` have the rows of the changed keys, in the same order;
    ``removed`` has the columns of the older state, ``added`` has the newer one's.
    """

    keys: tuple[str, ...]
    added: pa.Table
    removed: pa.Table
    before: pa.Table
    after: pa.Table
    unchanged_count: int

    @property
    def changed_count(self) -> int:
        """Number of keys with different values."""
        return self.after.num_rows

    @property
    def is_empty(self) -> bool:
        """Whether the states are equal."""
        return not (self.added.num_rows or self.removed.num_rows or self.changed_count)


def difference(before: pa.Table, after: pa.Table, keys: Sequence[str]) -> Difference:
    """Compare two states in which every key is once.

    A column that only one of them has does not make rows differ. Without ``keys`` a row is its own
    key, so nothing is changed, only added and removed, and equal rows count once.
    """
    columns = tuple(keys) or tuple(
        name for name in before.schema.names if name in after.schema.names
    )
    old, new = _matched(before, after, columns)
    in_both = ~(np.isnan(old) | np.isnan(new))
    pairs_before = before.take(pa.array(old[in_both].astype(np.int64)))
    pairs_after = after.take(pa.array(new[in_both].astype(np.int64)))
    differs = np.zeros(pairs_before.num_rows, np.bool_)
    for name in after.schema.names:
        if name not in columns and name in before.schema.names:
            differs |= values_differ(pairs_before.column(name), pairs_after.column(name))
    changed = pa.array(np.flatnonzero(differs))
    return Difference(
        keys=columns,
        added=after.take(pa.array(new[np.isnan(old)].astype(np.int64))),
        removed=before.take(pa.array(old[np.isnan(new)].astype(np.int64))),
        before=pairs_before.take(changed),
        after=pairs_after.take(changed),
        unchanged_count=len(differs) - len(changed),
    )


def _matched(
    before: pa.Table, after: pa.Table, keys: Sequence[str]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Row numbers of each key in both, NaN where it is not; exact up to 2**53 rows."""
    together = pa.concat_tables([before.select(keys), after.select(keys)])
    numbers = np.arange(together.num_rows)
    is_old = numbers < before.num_rows
    rows = {
        _BEFORE: pa.array(numbers, mask=~is_old),
        _AFTER: pa.array(numbers - before.num_rows, mask=is_old),
    }
    reductions = [Reduction(name, "max", name) for name in rows]
    columns = map(plain_column, together.columns)  # Each side has a dictionary of its own.
    found = group(dict(zip(keys, columns, strict=True)), pa.table(rows), reductions)
    # By position: a key may be called like one of ours.
    old, new = (column.to_numpy().astype(np.float64) for column in found.columns[len(keys) :])
    return old, new


def values_differ(before: pa.ChunkedArray | pa.Array, after: pa.ChunkedArray | pa.Array) -> _Mask:
    """Return a mask of the rows where two columns of equal length differ.

    Columns of different types differ everywhere.
    """
    old, new = as_array(before), as_array(after)
    if old.type != new.type:
        return np.ones(len(new), np.bool_)
    return _differ(old, new)


def _differ(old: pa.Array, new: pa.Array) -> _Mask:
    types, of = pa.types, new.type
    if types.is_dictionary(of):
        return _differ(old.dictionary_decode(), new.dictionary_decode())
    if isinstance(of, pa.BaseExtensionType):
        return _differ(old.storage, new.storage)
    if types.is_null(of):
        return np.zeros(len(new), np.bool_)
    old_known, new_known = (_flags(call_function("is_valid", [side])) for side in (old, new))
    both = old_known & new_known
    differs = old_known != new_known
    if types.is_struct(of):
        for one, other in zip(old.flatten(), new.flatten(), strict=True):
            differs |= both & _differ(one, other)
    elif types.is_list(of) or types.is_large_list(of) or types.is_fixed_size_list(of):
        differs |= both & _lists_differ(old, new, both)
    elif types.is_map(of):
        as_list = pa.list_(pa.struct([("key", of.key_type), ("value", of.item_type)]))
        return _differ(old.cast(as_list), new.cast(as_list))
    else:
        differs |= both & _flat_differ(old, new)
    return differs


def _flat_differ(old: pa.Array, new: pa.Array) -> _Mask:
    if pa.types.is_float16(new.type):
        old, new = old.cast(pa.float32()), new.cast(pa.float32())
    elif pa.types.is_interval(new.type):  # pyarrow cannot compare them.
        old, new = (side.view(pa.binary(new.type.bit_width // 8)) for side in (old, new))
    unequal = _flags(call_function("not_equal", [old, new]))
    if pa.types.is_floating(new.type):
        unequal &= ~(
            _flags(call_function("is_nan", [old])) & _flags(call_function("is_nan", [new]))
        )
    return unequal


def _lists_differ(old: pa.Array, new: pa.Array, both: _Mask) -> _Mask:
    """Lists of different lengths differ; the items of the others are compared one by one."""
    lengths = [
        call_function("list_value_length", [side]).fill_null(0).to_numpy() for side in (old, new)
    ]
    differs = lengths[0] != lengths[1]
    alike = pa.array(both & ~differs)
    items = [side.filter(alike).flatten() for side in (old, new)]
    owners = np.repeat(np.flatnonzero(alike), lengths[1][np.flatnonzero(alike)])
    differs[owners[_differ(*items)]] = True
    return differs


def _flags(array: pa.Array) -> _Mask:
    return array.fill_null(pa.scalar(value=False)).to_numpy(zero_copy_only=False)
