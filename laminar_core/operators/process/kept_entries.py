"""Entries with a time to live: the common part of lists and maps of a process function."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from laminar_core.aggregates.row_groups import Integers
from laminar_core.operators.process.changes import PinnedChanges, expiries_us
from laminar_core.operators.process.declared import PURGES_PER_TTL
from laminar_core.operators.process.entries import EntryTable, PinnedEntries
from laminar_core.operators.process.given import wrong
from laminar_core.operators.process.keys import Keys
from laminar_core.state.expiry import EXPIRES
from laminar_core.state.window_layout import TIME_TYPE


class KeptEntries:
    """The entries of one state in one subtask, for the operator and for ``KeyedLists`` and maps.

    As with values, an entry is seen if its expiry is not before the event time of the call.
    """

    next_position = 0
    """The position of the next entry of a list; entries of maps have none."""

    def __init__(self, operator_id: str, table: EntryTable, ttl_us: int | None) -> None:
        self.layout = table.layout
        self.expired_row_count = 0
        """Number of entries dropped so far because they were not changed in time."""
        self._what = f"state {self.layout.name!r} of process {operator_id!r}"
        self._ttl_us = ttl_us
        self._table = table

    @property
    def row_count(self) -> int:
        """Number of rows held, also of those that were replaced or removed."""
        return self._table.row_count

    # --- for lists and maps ---------------------------------------------------------------------

    def _owners(self, keys: Keys, count: int) -> Integers:
        owners = keys.of_values(count)
        if owners is None:
            raise wrong(
                f"{self._what} was given {count} values for {len(keys)} keys of"
                f" {len(keys.of_row)} rows: give one per row, or one per key"
            )
        return owners

    def _entries_of(self, keys: Keys) -> tuple[Integers, pa.Table]:
        """Return what a call sees of these keys, by the position of the key."""
        owners, rows = self._table.of_keys(keys.table)
        seen = self._seen(rows, keys.times_us[owners])
        return owners[seen], rows.filter(pa.array(seen))

    def _seen(self, rows: pa.Table, times_us: Integers) -> np.ndarray:
        seen = self._table.are_present(rows)
        return seen & (expiries_us(rows) >= times_us) if self._ttl_us is not None else seen

    def _change(
        self, keys: Keys, owners: Integers, own: Sequence[pa.Array], expiries: Integers | None
    ) -> None:
        """Write entries. Shapes: ``own`` are the columns between keys and expiry."""
        columns = [*keys.table.take(pa.array(owners)).columns, *own]
        if expiries is not None:
            columns.append(pa.array(expiries).cast(TIME_TYPE))
        self._table.change(pa.table(columns, schema=self.layout.schema.remove(0)))

    def _next_expiries(self, times_us: Integers) -> Integers | None:
        return None if self._ttl_us is None else times_us + self._ttl_us

    def clear(self, keys: Keys) -> None:
        """Remove all entries of these keys."""
        owners, rows = self._table.of_keys(keys.table)
        present = self._table.are_present(rows)
        owners, rows = owners[present], rows.filter(pa.array(present))
        if self._ttl_us is not None:
            gone = expiries_us(rows) < keys.times_us[owners]
            self.expired_row_count += int(gone.sum())
        self._table.change(self._removed(rows))

    def _removed(self, rows: pa.Table) -> pa.Table:
        """Return the rows that say that these entries are gone; they expire with them."""
        kept = (*self.layout.keys, EXPIRES)
        columns = [
            rows.column(field.name) if field.name in kept else pa.nulls(rows.num_rows, field.type)
            for field in rows.schema
        ]
        return pa.table(columns, schema=rows.schema)

    # --- for the operator -----------------------------------------------------------------------

    @property
    def expired_us(self) -> int | None:
        """Entries that expire at this time or before have been dropped."""
        return self._table.expired_us

    def purge(self, before_us: int) -> None:
        """Drop what no later call can see, whose event time is not before ``before_us``.

        It is done when a part of the time to live has passed.
        """
        if self._ttl_us is None:
            return
        last_us, known_us = before_us - 1, self.expired_us
        if known_us is None or last_us >= known_us + self._ttl_us // PURGES_PER_TTL:
            self.expired_row_count += self._table.expire(last_us)

    def pin(self) -> PinnedEntries:
        """Hold on to all entries as they are now."""
        return self._table.pin()

    def take_changes(self) -> PinnedChanges | PinnedEntries:
        """Hold on to the entries that changed since the last call."""
        return self._table.take_changes()

    def restore(self, rows: pa.Table) -> None:
        """Take rows from a checkpoint; later ones replace earlier ones."""
        self._table.restore(rows)

    def restore_mark(self, expired_us: Sequence[int | None]) -> None:
        """Continue from where all subtasks of a checkpoint had come to."""
        self._table.restore_mark(expired_us)
