"""Finds the rows of a table in memory by their keys.

The rows of a key are neighbours, so a key is a range of rows. Distinct keys are in a hash table,
and are compared when they are found. In memory are the rows, their keys once more, and about 40
bytes for each key.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from laminar_core.aggregates.grouping import Reduction, group
from laminar_core.aggregates.key_index import MISSING, KeyIndex
from laminar_core.aggregates.row_groups import Integers, RowGroups, as_array
from laminar_core.codec.stable_hash import hash_columns
from laminar_core.operators.joins.output import OUTPUT_ROWS_MAX
from laminar_core.operators.lookups.columns import known_keys
from laminar_core.state.keyed_rows import same_keys


class TableIndex:
    """The rows of a table by key; those with a null in their key are left out.

    Shapes: ``keys`` has the key of each row, in the form in which keys are compared.
    """

    def __init__(self, keys: pa.Table, rows: pa.Table) -> None:
        known = known_keys(keys)
        if not known.all():
            keys, rows = (table.filter(pa.array(known)) for table in (keys, rows))
        groups = _grouped(keys)
        self._starts = groups.starts
        if not np.array_equal(groups.order, np.arange(len(groups.order))):
            order = pa.array(groups.order)
            keys, rows = keys.take(order), rows.take(order) if rows.num_columns else rows
        if self.has_repeated:
            keys = keys.take(pa.array(self._starts[:-1]))
        self.rows = rows.combine_chunks()
        """The rows that can be found, by place."""
        self._keys = keys.combine_chunks()
        self._index = KeyIndex()
        self._index.add(_hashes(self._keys))

    def __len__(self) -> int:
        return int(self._starts[-1])

    @property
    def has_repeated(self) -> bool:
        """Whether a key has several rows."""
        return len(self._starts) - 1 < len(self)

    @property
    def repeated(self) -> tuple[object, ...] | None:
        """The first key that has several rows; None: there is none."""
        several = np.flatnonzero(np.diff(self._starts) > 1)
        if not len(several):
            return None
        return tuple(column[int(several[0])].as_py() for column in self._keys.columns)

    def find(self, keys: pa.Table) -> Integers:
        """Return the number of each key, or ``MISSING``; null is not there."""

        def are_equal(positions: Integers, numbers: Integers) -> np.ndarray:
            return same_keys(keys.take(pa.array(positions)), self._keys.take(pa.array(numbers)))

        return self._index.find(_hashes(keys), are_equal)

    def matches(self, numbers: Integers, *, keeps_missing: bool) -> Iterator[tuple[Integers, ...]]:
        """Yield pairs of a position in ``numbers`` and the place of a row, in this order.

        A missing key has no pair, or one with the place ``MISSING``. A key with many rows needs
        only the memory of a block: there are at most ``OUTPUT_ROWS_MAX`` pairs in each.
        """
        found = numbers != MISSING
        first = np.where(found, self._starts[numbers], MISSING)
        counts = np.where(found, np.diff(self._starts, append=0)[numbers], int(keeps_missing))
        ends = np.cumsum(counts)
        for start in range(0, int(ends[-1]) if len(ends) else 0, OUTPUT_ROWS_MAX):
            at = np.arange(start, min(start + OUTPUT_ROWS_MAX, int(ends[-1])))
            position = np.searchsorted(ends, at, side="right")
            place = first[position] + at - (ends - counts)[position]
            yield position, np.where(found[position], place, MISSING)


def _grouped(keys: pa.Table) -> RowGroups:
    found: list[RowGroups] = []

    def note(groups: RowGroups) -> pa.Array:
        found.append(groups)
        return pa.nulls(groups.count)

    columns = dict(zip(keys.column_names, keys.columns, strict=True))
    group(columns, keys, [Reduction("noted", note, None)])
    return found[0]


def _hashes(keys: pa.Table) -> np.ndarray:
    columns: Sequence[pa.Array] = [as_array(column) for column in keys.columns]
    return hash_columns(columns, keys.num_rows)
