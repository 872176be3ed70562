"""Rows whose last version counts: timers, and entries of lists and maps.

A row has an identity: the columns ``keys`` of its table. What was changed since the last cut is
kept beside the rows themselves, so that an incremental checkpoint has only that.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from laminar_core.aggregates.grouping import Reduction, group
from laminar_core.aggregates.row_groups import Integers
from laminar_core.codec.arrow import empty_table
from laminar_core.codec.key_groups import key_group_order, key_groups_of
from laminar_core.state.expiry import EXPIRES, unexpired
from laminar_core.state.named_tables import TableLayout

_CHANGES_MIN = 1_024


class ChangeLog:
    """The changes of one table since the last cut."""

    def __init__(self, layout: TableLayout) -> None:
        self._layout = layout
        self._changes: list[pa.Table] | None = None
        """None: all rows are changed, because there was no cut."""
        self._row_count = 0
        self._changes_max = _CHANGES_MIN

    def add(self, rows: pa.Table, void_us: int | None) -> None:
        """Note changes; what expires at ``void_us`` or before need not be written any more."""
        if self._changes is None:
            return
        self._changes.append(rows)
        self._row_count += rows.num_rows
        if self._row_count > self._changes_max:
            self._changes = [self._left(self._changes, void_us)]
            self._row_count = self._changes[0].num_rows
            self._changes_max = max(2 * self._row_count, _CHANGES_MIN)

    def take(self, void_us: int | None) -> "PinnedChanges | None":
        """Return the changes since the last call; None: all rows are changed."""
        changes, self._changes = self._changes, []
        self._row_count = 0
        if changes is None:
            return None
        return PinnedChanges(self._layout, (self._left(changes, void_us),), whole=False)

    def _left(self, tables: Sequence[pa.Table], void_us: int | None) -> pa.Table:
        rows = newest_changes(tables, self._layout.keys, self._layout.schema.remove(0))
        return unexpired(self._layout.name, rows, void_us)


@dataclass(frozen=True, slots=True, eq=False)
class PinnedChanges:
    """Rows as they were at a cut. Shapes: without key group; later ones replace earlier ones."""

    layout: TableLayout
    tables: tuple[pa.Table, ...]
    whole: bool = field(kw_only=True)
    """Leave out the rows that say that there is nothing: these are all rows there are."""

    def stored_tables(self, max_parallelism: int) -> Iterator[pa.Table]:
        """Yield the table of a checkpoint, if it has rows."""
        stored = self.stored_table(max_parallelism)
        if stored.num_rows:
            yield stored

    def stored_table(self, max_parallelism: int) -> pa.Table:
        """Build the table of a checkpoint, sorted by key group."""
        schema = self.layout.schema
        rows = newest_changes(self.tables, self.layout.keys, schema.remove(0))
        rows = self.layout.present_rows(rows) if self.whole else rows
        keys = self.layout.keys[:-1]
        batches = rows.combine_chunks().to_batches()
        groups = [key_groups_of(batch, keys, max_parallelism) for batch in batches]
        key_group = np.concatenate([np.empty(0, np.int32), *groups]).astype(np.int32)
        stored = rows.add_column(0, schema.field(0), [pa.array(key_group)])
        return stored.take(pa.array(key_group_order(key_group)))


def newest_changes(
    tables: Iterable[pa.Table], columns: Sequence[str], schema: pa.Schema
) -> pa.Table:
    """Return the last row of each combination of values in ``columns``."""
    rows = pa.concat_tables([empty_table(schema), *tables])
    if rows.num_rows == 1:  # Grouping it takes a millisecond, and functions change row by row.
        return rows.combine_chunks()  # A copy: a slice would keep all of its batch in memory.
    return rows.take(pa.array(newest_positions({name: rows.column(name) for name in columns})))


def newest_positions(identity: Mapping[str, pa.ChunkedArray]) -> Integers:
    """Return where each combination of values occurs last."""
    last = Reduction("row", lambda groups: pa.array(groups.order[groups.starts[1:] - 1]), None)
    found = group(dict(identity), pa.table(dict(identity)), [last])
    return found.columns[-1].to_numpy()


def least_of_all(times_us: Sequence[int | None]) -> int | None:
    """Return the least of these times; None if one is unknown, or there is none."""
    known = [time_us for time_us in times_us if time_us is not None]
    return min(known, default=None) if len(known) == len(times_us) else None


def expiries_us(rows: pa.Table) -> Integers:
    """Return when rows expire, in microseconds since 1970."""
    return rows.column(EXPIRES).cast(pa.int64()).to_numpy()
