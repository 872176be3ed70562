"""Totals over rows that come and go: the state, and what is emitted when it changes.

A total is linear: rows that come add to it, and rows that go take the same away. So a total that is
zero in everything is as if its rows had never come, and is removed. A total can be negative in some
way while a row has gone that has yet to come: it is kept, and not emitted until it has rows.

In the changes of a checkpoint a removed total is a row whose count is null, which takes the place
of older rows of its key. A reader that merges all rows drops it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from laminar_core.aggregates.accumulators import (
    ROW_COUNT,
    Aggregate,
    first_value,
    require_known_versions,
    with_versions,
)
from laminar_core.aggregates.row_groups import Integers, as_array
from laminar_core.aggregates.weighted_rows import is_nothing
from laminar_core.codec.canonical import canonical
from laminar_core.errors import ErrorCode, IncompatibleStateError
from laminar_core.operators.base import (
    JsonObject,
    PendingSnapshot,
    Snapshot,
    StateTable,
    SubtaskContext,
)
from laminar_core.operators.keyed import (
    key_group_properties,
    owned_key_groups,
    restored_key_groups,
)
from laminar_core.operators.mapping import change_back_or_reset
from laminar_core.operators.weights import WEIGHT_FIELD
from laminar_core.protocol.types import CheckpointId
from laminar_core.state.difference import values_differ
from laminar_core.state.keyed_rows import KeyedRows, PinnedRows, RowLayout
from laminar_core.state.named_tables import TABLES, TableLayout, described
from laminar_core.state.window_state import rows_of_key_groups

TOTALS = "totals"
"""The name of the table."""
OUTPUT_ROWS_MAX = 65_536
REMOVED_MIN = 1_024
"""Removed totals stay in memory until there are more than this, and more than half of all."""

_Mask = npt.NDArray[np.bool_]


def is_over_weights(aggregates: Sequence[Aggregate]) -> bool:
    """Return whether these are aggregates over rows that come and go."""
    return any(aggregate.weighted for aggregate in aggregates)


def described_totals(keys: Sequence[str]) -> JsonObject:
    """Return what the description of an operator with such state says of its table."""
    return {TABLES: described([_table(tuple(keys), pa.schema([]))])}


def _table(keys: tuple[str, ...], stored: pa.Schema) -> TableLayout:
    return TableLayout(TOTALS, stored, keys, "newest", ROW_COUNT.name)


@dataclass(frozen=True, slots=True)
class Totals:
    """Rows by key, and which of them are there."""

    rows: pa.Table
    are_there: _Mask

    @classmethod
    def all_there(cls, rows: pa.Table) -> Self:
        """Return totals that all have rows."""
        everywhere: _Mask = np.ones(len(rows), np.bool_)
        return cls(rows, everywhere)

    @classmethod
    def counted(cls, rows: pa.Table) -> Self:
        """Return totals that are there if they have rows."""
        counts = as_array(rows.column(ROW_COUNT.name)).fill_null(pa.scalar(0, pa.int64()))
        there: Integers = counts.to_numpy()
        return cls(rows, there > 0)

    def mapped(self, results: Callable[[pa.Table], pa.Table]) -> "Totals":
        """Return the results of these rows, one each."""
        return Totals(results(self.rows), self.are_there)


Emit = Callable[[Totals, Totals], Iterator[pa.RecordBatch]]
"""Yields what follows from a change of rows of state; the first new ones replace the old ones."""


def differences(before: Totals, after: Totals, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows before with weight -1 and those after with weight 1, where they differ.

    Shapes: ``after`` has the rows of the same keys as ``before``, then those of other keys.
    ``schema`` is theirs with a weight. Floats get one form of zero and NaN, so that a row that goes
    equals the one that came.
    """
    goes, comes = changed(before, after)
    goes &= before.are_there
    comes &= after.are_there
    yield from with_weight(before.rows, goes, -1, schema)
    yield from with_weight(after.rows, comes, 1, schema)


def changed(before: Totals, after: Totals) -> tuple[_Mask, _Mask]:
    """Return which rows before, and which rows after, are not as the other ones."""
    count = before.rows.num_rows
    differ = before.are_there != after.are_there[:count]
    for old, new in zip(before.rows.columns, after.rows.slice(0, count).columns, strict=True):
        differ |= values_differ(old, new)
    return differ, np.append(differ, np.ones(after.rows.num_rows - count, np.bool_))


def with_weight(
    rows: pa.Table, chosen: _Mask, weight: int, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the chosen rows, all with this weight, in batches of bounded length."""
    some = rows.filter(pa.array(chosen))
    if not some.num_rows:
        return
    columns = [canonical(as_array(column)) for column in some.columns]
    columns.append(pa.array(np.full(some.num_rows, weight), WEIGHT_FIELD.type))
    table = pa.Table.from_arrays(columns, schema=schema)
    yield from table.to_batches(max_chunksize=OUTPUT_ROWS_MAX)


class UpdatingTotals:
    """One subtask: the totals of the keys in its range of key groups."""

    def __init__(self, layout: RowLayout, emit: Emit, context: SubtaskContext) -> None:
        self._layout = layout
        self._table = _table(layout.keys, layout.stored_schema)
        self._emit = emit
        self._context = context
        self._rows = KeyedRows(layout, context.backend.shelf(layout.schema))
        self._removed_count = 0
        """Rows in memory that say that their total was removed."""
        self._has_cut = False
        """Whether earlier rows were written as changes, so that removals have to be written."""
        types = {field.name: field.type for field in layout.schema}
        self._nothing = {
            needs.name: first_value(needs, types[needs.name])
            for needs in layout.accumulators
            if needs != ROW_COUNT
        }

    def __len__(self) -> int:
        """Return the number of totals in memory, also of those that were removed."""
        return len(self._rows)

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Merge partial results; yield the differences of their keys' totals.

        Raises:
            DataError: a sum leaves its type (ARITHMETIC_OVERFLOW).
        """
        if not batch.num_rows:
            return iter(())
        partial = pa.Table.from_batches([batch]).select(self._layout.schema.names)
        before, after = self._rows.change(partial)
        self._removed_count -= before.column(ROW_COUNT.name).null_count
        self._remove(after.filter(pa.array(is_nothing(after, self._layout.accumulators))))
        return self._emit(Totals.counted(before), Totals.counted(after))

    def on_watermark(self, watermark_us: int) -> Iterable[pa.RecordBatch]:
        """Yield nothing: results do not depend on event time."""
        del watermark_us
        return ()

    def snapshot(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        """Pin the totals; their table is built in the asynchronous phase."""
        del checkpoint_id
        return self._pending(self._rows.pin(), whole=True)

    def snapshot_changes(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        """Pin the totals that changed since the last call; a later one replaces an earlier one."""
        del checkpoint_id
        pending = self._pending(self._rows.take_changes(), whole=False)
        self._has_cut = True
        self._forget_removed()
        return pending

    def merge_tables(
        self, name: str, tables: Iterable[pa.Table], expired_us: int | None
    ) -> Iterable[pa.Table]:
        """Keep the newest total of each key."""
        assert name == TOTALS, f"{name} is unknown"
        yield with_versions(self._table.merge(tables, expired_us), self._layout.accumulators)

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        """Restore from the snapshots of all subtasks whose key groups overlap this one's.

        Raises:
            IncompatibleStateError: the state belongs to another aggregation, or to another version
                of one of its functions (OPERATORS_CHANGED).
        """
        restored_key_groups(snapshots, self._context)
        owned = owned_key_groups(self._context)
        for snapshot in snapshots:
            for table in snapshot.tables:
                assert table.name == TOTALS, f"{table.name} is unknown"
                rows = require_totals(table.rows, self._layout, self._context.operator_id)
                self._rows.replace(rows_of_key_groups(rows, owned))
        self._rows.forget(self._without_removed)

    def _remove(self, gone: pa.Table) -> None:
        """Put rows without a count in the place of totals that are nothing."""
        if not gone.num_rows:
            return
        columns = {key: gone.column(key) for key in self._layout.keys}
        nulls = pa.nulls(gone.num_rows, pa.int64())
        columns[ROW_COUNT.name] = pa.chunked_array([nulls])
        for name, value in self._nothing.items():
            columns[name] = pa.chunked_array([pa.repeat(value, gone.num_rows)])
        self._rows.replace(pa.table(columns).select(self._layout.schema.names))
        self._removed_count += gone.num_rows
        if not self._has_cut:
            self._forget_removed()

    def _forget_removed(self) -> None:
        """Drop rows of removed totals when they are many: the last cut has them."""
        if self._removed_count > max(REMOVED_MIN, len(self._rows) // 2):
            self._rows.forget(self._without_removed)
            self._removed_count = 0

    def _without_removed(self, rows: pa.Table, *, settled: bool) -> pa.Table:
        del settled  # It is called where no removal has still to be written.
        return self._table.present_rows(rows)

    def _pending(self, pinned: PinnedRows, *, whole: bool) -> PendingSnapshot:
        properties, max_parallelism = (
            key_group_properties(self._context),
            self._context.max_parallelism,
        )

        def tables() -> Iterator[StateTable]:
            for stored in pinned.stored_tables(max_parallelism):
                table = self._table.present_rows(stored) if whole else stored
                if table.num_rows:
                    yield StateTable(TOTALS, with_versions(table, pinned.layout.accumulators))

        return lambda: Snapshot(tables(), properties)


def require_totals(table: pa.Table, layout: RowLayout, operator_id: str) -> pa.Table:
    """Return a table of a checkpoint, if it has the columns that the operator keeps now.

    Raises:
        IncompatibleStateError: it has others, or another version of one of them
            (OPERATORS_CHANGED).
    """
    require_known_versions(table.schema.metadata, layout.accumulators)
    if not table.schema.equals(layout.stored_schema):
        raise IncompatibleStateError(
            ErrorCode.OPERATORS_CHANGED,
            f"operator {operator_id!r} does not fit the checkpoint: the columns of"
            f" its state have changed from {', '.join(table.schema.names)};"
            f" {change_back_or_reset(operator_id)}",
        )
    return table
