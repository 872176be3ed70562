"""The state of a subtask of any join: its snapshots, how they are merged, and restored."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from laminar_core.aggregates.row_groups import Integers
from laminar_core.operators.base import PendingSnapshot, Snapshot, StateTable, SubtaskContext
from laminar_core.operators.joins.progress import JoinProgress
from laminar_core.operators.joins.restoring import owned_tables, require_same_columns
from laminar_core.protocol.types import CheckpointId
from laminar_core.state.arrangement import Arrangement
from laminar_core.state.chunks import StateBackend
from laminar_core.state.expiry import expiry_column
from laminar_core.state.named_tables import TableLayout
from laminar_core.state.rows_layout import RowsLayout

StoredTables = Callable[[int], Iterable[pa.Table]]
"""Builds the tables of a snapshot, given the number of key groups; in the asynchronous phase."""


class HeldTable(Protocol):
    """One table of state."""

    @property
    def table(self) -> TableLayout:
        """The table in a checkpoint."""
        ...

    @property
    def row_count(self) -> int:
        """The number of rows that are kept."""
        ...

    def pinned(self, *, changes: bool) -> StoredTables:
        """Hold on to all rows, or to what changed since the last call."""
        ...

    def expired_us(self, passed_us: int | None) -> int | None:
        """Return the time up to which rows have expired and are not in the tables.

        None: none have. ``passed_us``: the time that has passed.
        """
        ...

    def take(self, rows: pa.Table) -> None:
        """Take one of the tables of consecutive cuts, to start from all of them."""
        ...

    def taken(self, expired_us: Sequence[int | None]) -> None:
        """Start: all tables have been taken. ``expired_us``: the mark of each snapshot."""
        ...


class HeldRows:
    """A table with several rows of a key. ``times_of``: the time by which a row is found.

    ``is_probed``: whether rows are looked up by their key.
    """

    def __init__(
        self,
        name: str,
        layout: RowsLayout,
        times_of: Callable[[pa.Table], Integers],
        backend: StateBackend,
        *,
        is_probed: bool = True,
    ) -> None:
        self.rows = Arrangement(layout, backend.shelf(layout.schema), is_probed=is_probed)
        self.table = layout.table(name)
        self._times_of = times_of
        self._taken: list[pa.Table] = []
        """Tables whose weights have to be added up."""

    @property
    def row_count(self) -> int:
        """The number of rows that are kept, also of those that have expired."""
        return self.rows.row_count

    def pinned(self, *, changes: bool) -> StoredTables:
        """Hold on to the rows or the changes, as they are now."""
        return (self.rows.take_changes() if changes else self.rows.pin()).stored_tables

    def expired_us(self, passed_us: int | None) -> int | None:
        """Return the time that has passed."""
        return passed_us

    def take(self, rows: pa.Table) -> None:
        """Keep the rows; those with weights wait for the others, and need memory for all."""
        if self.table.merging == "weights":
            self._taken.append(rows)
        else:
            self.rows.restore(rows, self._times_of(rows))

    def taken(self, expired_us: Sequence[int | None]) -> None:
        """Keep the rows with weights; marks that were taken back are left out."""
        del expired_us  # The progress knows it.
        if self._taken:
            tables, self._taken = self._taken, []
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
    def expired_row_count(self) -> int:
        """The number of rows of state given up so far because of their time."""
        return self._progress.expired_row_count + self._expired_since_start()

    def _expired_since_start(self) -> int:
        """Return how many rows have expired that the progress has not counted."""
        return 0

    @property
    def held_row_count(self) -> int:
        """The number of rows that are kept."""
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
        for stored in owned_tables(snapshots, self._context):
            held = self._held_tables[stored.name]
            require_same_columns([stored.rows], held.table.schema, self._context.operator_id)
            held.take(stored.rows)
        for name, held in self._held_tables.items():
            held.taken([snapshot.expired_us.get(name) for snapshot in snapshots])

    def _pending(self, *, changes: bool) -> PendingSnapshot:
        properties, passed_us = self._progress.properties(), self._progress.passed_us
        if expired := self.expired_row_count:
            properties["expired_row_count"] = expired
        pinned = {name: held.pinned(changes=changes) for name, held in self._held_tables.items()}
        tables = [held.table for held in self._held_tables.values()]
        expiring = [one.name for one in tables if expiry_column(one.name, one.schema)]
        marks = {name: self._held_tables[name].expired_us(passed_us) for name in expiring}
        expired_us = {name: us for name, us in marks.items() if us is not None}
        max_parallelism = self._context.max_parallelism

        def stored() -> Iterator[StateTable]:
            for name, build in pinned.items():
                for table in build(max_parallelism):
                    yield StateTable(name, table)

        return lambda: Snapshot(stored(), properties, expired_us=expired_us)
