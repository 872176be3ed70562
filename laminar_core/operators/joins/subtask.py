"""The state of a subtask of any join: its snapshots, how they are merged, and restored."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from laminar_core.aggregates.row_groups import Integers
from laminar_core.operators.base import PendingSnapshot, Snapshot, StateTable, SubtaskContext
from laminar_core.operators.joins.progress import JoinProgress
from laminar_core.operators.joins.restoring import gathered, require_same_columns
from laminar_core.protocol.types import CheckpointId
from laminar_core.state.arrangement import Arrangement
from laminar_core.state.expiry import expiry_column
from laminar_core.state.named_tables import TableLayout
from laminar_core.state.rows_layout import RowsLayout

StoredTables = Callable[[int], Iterable[pa.Table]]
"""Builds the tables of a snapshot, given the number of key groups; in the asynchronous phase."""


class HeldTable(Protocol):
    """One table of state in memory."""

    @property
    def table(self) -> TableLayout:
        """The table in a checkpoint."""
        ...

    @property
    def row_count(self) -> int:
        """The number of rows in memory."""
        ...

    def pinned(self, *, changes: bool, passed_us: int | None) -> StoredTables:
        """Hold on to all rows, or to what changed since the last call.

        ``passed_us``: rows that expire then or before may be left out.
        """
        ...

    def restore(self, tables: Sequence[pa.Table]) -> None:
        """Start from tables of consecutive cuts."""
        ...


class HeldRows:
    """A table with several rows of a key. ``times_of``: the time by which a row is found."""

    def __init__(
        self, name: str, layout: RowsLayout, times_of: Callable[[pa.Table], Integers]
    ) -> None:
        self.rows = Arrangement(layout)
        self.table = layout.table(name)
        self._times_of = times_of

    @property
    def row_count(self) -> int:
        """The number of rows in memory, also of those that have expired."""
        return self.rows.row_count

    def pinned(self, *, changes: bool, passed_us: int | None) -> StoredTables:
        """Hold on to the rows or the changes, as they are now."""
        del passed_us  # The arrangement knows what has expired.
        return (self.rows.take_changes() if changes else self.rows.pin()).stored_tables

    def restore(self, tables: Sequence[pa.Table]) -> None:
        """Start from these rows; marks that were taken back are left out."""
        rows = self.table.merge(tables, None)
        self.rows.restore(rows, self._times_of(rows))


class JoinSubtask:
    """A subtask of a join: some tables of state, and the progress of its event time."""

    def __init__(
        self, context: SubtaskContext, progress: JoinProgress, tables: Sequence[HeldTable]
    ) -> None:
        self._context = context
        self._progress = progress
        self._held_tables = {held.table.name: held for held in tables}

    @property
    def late_row_count(self) -> int:
        """The number of rows dropped so far because they came behind the watermark."""
        return self._progress.late_row_count

    @property
    def held_row_count(self) -> int:
        """The number of rows in memory."""
        return sum(held.row_count for held in self._held_tables.values())

    def snapshot(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        """Pin the rows; their tables are built in the asynchronous phase."""
        del checkpoint_id
        return self._pending(changes=False)

    def snapshot_changes(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        """Pin what changed since the last call."""
        del checkpoint_id
        return self._pending(changes=True)

    def merge_tables(
        self, name: str, tables: Iterable[pa.Table], expired_us: int | None
    ) -> Iterable[pa.Table]:
        """Put the rows together that have not expired, as the table's layout says."""
        yield self._held_tables[name].table.merge(tables, expired_us)

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        """Restore from the snapshots of all subtasks whose key groups overlap this one's.

        Raises:
            IncompatibleStateError: the state belongs to other columns (OPERATORS_CHANGED).
        """
        self._progress.restore(snapshots)
        found = gathered(snapshots, self._context)
        for name, held in self._held_tables.items():
            tables = found.pop(name, [])
            require_same_columns(tables, held.table.schema, self._context.operator_id)
            held.restore(tables)
        assert not found, f"unknown tables: {sorted(found)}"

    def _pending(self, *, changes: bool) -> PendingSnapshot:
        properties, passed_us = self._progress.properties(), self._progress.passed_us
        pinned = {
            name: held.pinned(changes=changes, passed_us=passed_us)
            for name, held in self._held_tables.items()
        }
        tables = [held.table for held in self._held_tables.values()]
        expiring = [one.name for one in tables if expiry_column(one.name, one.schema)]
        expired_us = {} if passed_us is None else dict.fromkeys(expiring, passed_us)
        max_parallelism = self._context.max_parallelism

        def stored() -> Iterator[StateTable]:
            for name, build in pinned.items():
                for table in build(max_parallelism):
                    yield StateTable(name, table)

        return lambda: Snapshot(stored(), properties, expired_us=expired_us)
