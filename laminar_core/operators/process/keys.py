"""The keys of one call of a process function, which all arrays about them are aligned to."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow.compute import call_function

from laminar_core.aggregates.grouping import Reduction, group, plain_column
from laminar_core.aggregates.row_groups import Integers, RowGroups

Which = Integers | npt.NDArray[np.bool_] | Sequence[int] | pa.BooleanArray


@dataclass(frozen=True, slots=True, eq=False)
class Keys:
    """Distinct keys. What is read from state has one value per key, in this order.

    ``table`` has the key columns. ``of_row``: for each row of the call, the position of its key.
    """

    table: pa.Table
    of_row: Integers
    times_us: Integers
    """Per key, the event time of this call: of its newest row, or of its timer."""

    @classmethod
    def of_rows(cls, rows: pa.RecordBatch, columns: Sequence[str], times_us: Integers) -> "Keys":
        """Return the keys of rows, in the order in which they appear.

        So where each row has a key of its own, one value per row is also one value per key.
        """
        held = pa.Table.from_batches([rows]).select(list(columns))
        plain = {name: plain_column(held.column(name)) for name in columns}
        numbers: list[Integers] = []

        def first(groups: RowGroups) -> pa.Array:
            numbers.append(groups.numbers())
            return pa.array(groups.order[groups.starts[:-1]])

        found = group(plain, held, [Reduction(_ROW, first, None)])
        firsts = found.columns[-1].to_numpy()
        table, of_row = found.select(list(range(len(columns)))), numbers[0]
        if (firsts[1:] < firsts[:-1]).any():  # pyarrow promises no order of groups.
            order = np.argsort(firsts)
            place = np.empty_like(order)
            place[order] = np.arange(len(order))
            table, of_row = table.take(pa.array(order)), place[of_row]
        newest_us = np.full(len(firsts), np.iinfo(np.int64).min, np.int64)
        np.maximum.at(newest_us, of_row, times_us)
        return cls(table.combine_chunks(), of_row, newest_us)

    def named(self, columns: Sequence[str]) -> "Keys":
        """Return the same keys with these names of the key columns, in their order."""
        return replace(self, table=self.table.rename_columns(list(columns)))

    def __len__(self) -> int:
        return self.table.num_rows

    def column(self, name: str) -> pa.Array:
        """Return a key column, one value per key."""
        return self.table.column(name).combine_chunks()

    def take(self, which: Which) -> "Keys":
        """Return some of the keys: by position, or where a mask is true.

        Rows are not numbered in the result: ``of_row`` is empty.
        """
        found = np.asarray(which)
        positions = np.flatnonzero(found) if found.dtype == np.bool_ else found.astype(np.int64)
        table = self.table.take(pa.array(positions))
        return Keys(table, np.empty(0, np.int64), self.times_us[positions])

    def each(self, rows: pa.RecordBatch) -> "Iterator[tuple[Keys, pa.RecordBatch]]":
        """Yield one key at a time with its rows, in their order; ``rows`` are those of the call.

        This is a loop in Python over keys, and so slower than arrays for many keys.
        """
        order = np.argsort(self.of_row, kind="stable")
        ordered = rows.take(pa.array(order))
        bounds = np.searchsorted(self.of_row[order], np.arange(len(self) + 1))
        for n, (start, stop) in enumerate(pairwise(bounds.tolist())):
            one = replace(self.take([n]), of_row=np.zeros(stop - start, np.int64))
            yield one, ordered.slice(start, stop - start)

    def of_values(self, count: int) -> Integers | None:
        """Return the position of the key that each of ``count`` values belongs to.

        There is one value per row of the call, or one per key; of a single key, any number. None:
        there are others.
        """
        if len(self) == 1:
            return np.zeros(count, np.int64)
        if len(self.of_row) == count:
            return self.of_row
        return np.arange(count) if len(self) == count else None

    @property
    def values(self) -> tuple[Any, ...]:
        """The columns of a single key, as Python values."""
        assert len(self) == 1, f"these are {len(self)} keys"
        return tuple(column[0].as_py() for column in self.table.columns)

    def times(self) -> pa.Array:
        """Return the event time of each key in this call, as timestamps."""
        return pa.array(self.times_us).cast(pa.timestamp("us", tz="UTC"))


_ROW = "first row of the key"


def distinct_prefix(rows: pa.Table, columns: Sequence[str]) -> int:
    """Return how many of the first rows have keys that differ from each other."""
    held = {name: rows.column(name) for name in columns}

    def second(groups: RowGroups) -> pa.Array:
        sizes = np.diff(groups.starts)
        repeated = groups.starts[:-1][sizes > 1] + 1
        place = np.full(groups.count, rows.num_rows)
        place[sizes > 1] = groups.order[repeated]
        return pa.array(place)

    found = group(held, rows, [Reduction(_ROW, second, None)]).columns[-1]
    return int(call_function("min", [found]).as_py() or 0)
