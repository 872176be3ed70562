"""Timers of a process function: rows of key and due time, which fire once and are gone.

A change of a timer, that it is set or deleted, is a row with its key and due time, and the last one
counts. Changes lie in few tables sorted by due time: two neighbours become one when the older has
at most twice the rows of the newer. So what is due is the beginning of each table. The newest
changes wait until one of them is due or there are many: a function may set timers one by one, and
sorting one of them costs hardly less than sorting a thousand. Once time has passed a due time,
nothing about it is kept, also in a checkpoint, where it is the row's expiry.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from laminar_core.aggregates.row_groups import Integers
from laminar_core.aggregates.row_order import ascending
from laminar_core.codec.arrow import empty_table
from laminar_core.operators.process.changes import (
    ChangeLog,
    PinnedChanges,
    expiries_us,
    least_of_all,
    newest_changes,
)
from laminar_core.operators.process.keys import distinct_prefix
from laminar_core.state.expiry import EXPIRES
from laminar_core.state.named_tables import TableLayout
from laminar_core.state.window_layout import KEY_GROUP, TIME_TYPE

IS_SET = "_set"
"""True: the timer is set; null: it was deleted."""

FIRED_ROWS_MAX = 65_536
WAITING_ROWS_MAX = 1_024
"""Sorting a thousand changes takes hardly longer than sorting one; more would only take memory."""
_SIZE_RATIO = 2


def timer_layout(name: str, keys: Sequence[pa.Field]) -> TableLayout:
    """Return the table of timers in a checkpoint."""
    columns = [pa.field(KEY_GROUP, pa.int32()), *keys]
    columns += [pa.field(EXPIRES, TIME_TYPE), pa.field(IS_SET, pa.bool_())]
    identity = (*(key.name for key in keys), EXPIRES)
    return TableLayout(name, pa.schema(columns), identity, "newest", IS_SET)


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """Changes, each of another timer, sorted by due time."""

    rows: pa.Table
    dues_us: Integers


class _Waiting:
    """The newest changes, as they came."""

    def __init__(self) -> None:
        self.tables: list[pa.Table] = []
        self.row_count = 0
        self.next_due_us: int | None = None

    def add(self, rows: pa.Table) -> None:
        self.tables.append(rows)
        self.row_count += rows.num_rows
        due_us = int(expiries_us(rows).min())
        self.next_due_us = due_us if self.next_due_us is None else min(due_us, self.next_due_us)


class TimerTable:
    """The timers of one subtask by one clock."""

    def __init__(self, layout: TableLayout, waiting_rows_max: int = WAITING_ROWS_MAX) -> None:
        self.layout = layout
        self.reached_us: int | None = None
        """Timers that are due at this time or before have fired."""
        self._schema = layout.schema.remove(0)
        self._keys = layout.keys[:-1]
        self._parts: list[_Part] = []
        self._waiting = _Waiting()
        self._waiting_rows_max = waiting_rows_max
        self._log = ChangeLog(layout)

    @property
    def next_due_us(self) -> int | None:
        """Return when the next timer is due, or one that was deleted; None: there is none."""
        dues_us = [int(part.dues_us[0]) for part in self._parts]
        if self._waiting.next_due_us is not None:
            dues_us.append(self._waiting.next_due_us)
        return min(dues_us, default=None)

    def change(self, keys: pa.Table, dues_us: Integers, *, is_set: bool) -> None:
        """Set or delete timers. Shapes: one due time per key; keys may repeat."""
        if not len(dues_us):
            return
        flags = pa.array([True if is_set else None], pa.bool_()).take(
            pa.array(np.zeros(len(dues_us), np.int64))
        )
        dues = pa.array(dues_us).cast(TIME_TYPE)
        self.take(pa.table([*keys.columns, dues, flags], schema=self._schema))

    def take(self, rows: pa.Table) -> None:
        """Take changes that are newer than all others; rows of a checkpoint among them."""
        if not rows.num_rows:
            return
        if rows.num_rows < self._waiting_rows_max:
            # A copy: a slice would keep all of its batch in memory, for as long as it waits.
            rows = pa.concat_tables([empty_table(self._schema), rows]).combine_chunks()
        self._log.add(rows, self.reached_us)
        self._waiting.add(rows)
        if self._waiting.row_count >= self._waiting_rows_max:
            self._sort_waiting()

    def _sort_waiting(self) -> None:
        self._parts.append(self._part(self._waiting.tables))
        self._waiting = _Waiting()
        for at in range(len(self._parts) - 2, -1, -1):
            older, newer = self._parts[at : at + 2]
            if len(older.dues_us) <= _SIZE_RATIO * len(newer.dues_us):
                self._parts[at : at + 2] = [self._part([older.rows, newer.rows])]

    def restore_mark(self, reached_us: Sequence[int | None]) -> None:
        """Continue from where all subtasks of a checkpoint had come to.

        The chain of their cuts may go on, with timers in it that have fired.
        """
        self.reached_us = least_of_all(reached_us)

    def fire(self, until_us: int) -> Iterator[pa.Table]:
        """Yield what is due, in the order of due time and key; each table has a key once.

        What is set or deleted meanwhile counts: a timer that is due at once follows.
        Shapes: the key columns, and the due time as in a checkpoint.
        """
        self.reached_us = until_us if self.reached_us is None else max(until_us, self.reached_us)
        ready = empty_table(self._schema)
        while True:
            due = self._take_due(until_us)
            if due:
                ready = self._in_order(self._newest([ready, *due]))
            if not ready.num_rows:
                return
            count = distinct_prefix(ready.slice(0, FIRED_ROWS_MAX), self._keys)
            fired, ready = ready.slice(0, count), ready.slice(count)
            fired = self.layout.present_rows(fired)
            if fired.num_rows:
                yield fired.drop_columns([IS_SET])

    def pin(self) -> PinnedChanges:
        """Hold on to all timers as they are now."""
        tables = [*(part.rows for part in self._parts), *self._waiting.tables]
        return PinnedChanges(self.layout, tuple(tables), whole=True)

    def take_changes(self) -> PinnedChanges:
        """Hold on to the changes since the last call."""
        return self._log.take(self.reached_us) or self.pin()

    def _take_due(self, until_us: int) -> list[pa.Table]:
        """Remove what is due from the parts and return it, the oldest changes first."""
        first_us = self._waiting.next_due_us
        if first_us is not None and first_us <= until_us:
            self._sort_waiting()
        due: list[pa.Table] = []
        left: list[_Part] = []
        for part in self._parts:
            count = int(np.searchsorted(part.dues_us, until_us, "right"))
            if count:
                due.append(part.rows.slice(0, count))
            if count < len(part.dues_us):
                left.append(_Part(part.rows.slice(count), part.dues_us[count:]))
        self._parts = left
        return due

    def _part(self, tables: Sequence[pa.Table]) -> _Part:
        rows = self._newest(tables)
        dues_us = expiries_us(rows)
        order = np.argsort(dues_us, kind="stable")
        return _Part(rows.take(pa.array(order)).combine_chunks(), dues_us[order])

    def _newest(self, tables: Sequence[pa.Table]) -> pa.Table:
        return newest_changes(tables, self.layout.keys, self._schema)

    def _in_order(self, rows: pa.Table) -> pa.Table:
        return rows.take(ascending(rows.column(name) for name in (EXPIRES, *self._keys)))
