"""The as-of join: each left row with the last right row of its key at or before its time.

A left row waits until event time has passed it, because a right row at its time may still come.
Right rows wait likewise; then the last one of each key stays, and all older ones are dropped. So
the state is one right row per key, and the rows whose time has not passed. With a greatest distance
a key that has had no right row for so long is dropped, too.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from laminar_core.aggregates.row_groups import Integers
from laminar_core.operators.base import JsonObject, SubtaskContext
from laminar_core.operators.joins.closest import Numbered, closest, numbered
from laminar_core.operators.joins.output import in_pieces
from laminar_core.operators.joins.side import LEFT, RIGHT, EventRows
from laminar_core.operators.joins.subtask import StoredTables
from laminar_core.operators.joins.waiting import ClosestJoin, ClosestJoiner, within
from laminar_core.operators.process.changes import least_of_all
from laminar_core.protocol.types import WATERMARK_END_US
from laminar_core.state.chunks import StateBackend
from laminar_core.state.expiry import EXPIRES, unexpired
from laminar_core.state.keyed_rows import MISSING, KeyedRows, RowLayout
from laminar_core.state.named_tables import TABLES, TableLayout, described
from laminar_core.state.rows_layout import RowsLayout

NEWEST = "newest"
"""The table with the last right row of each key whose time has passed."""


@dataclass(frozen=True, slots=True)
class AsOfJoin(ClosestJoin):
    """Give each left row the last right row with equal keys that is not younger."""

    def describe(self) -> JsonObject:
        """Return keys, times and the distance: the meaning of the state."""
        none = pa.schema([])
        layouts = [RowsLayout(side.keys, none).table(side.name) for side in self.sides]
        layouts.append(TableLayout(NEWEST, none, self.right.keys, "newest"))
        return {
            "kind": "as-of-join",
            "left": self.left.describe(),
            "right": self.right.describe(),
            "distance_us": self.distance_us,
            "how": self.how,
            TABLES: described(layouts),
        }

    def waits_us(self, index: int) -> int:
        """Return that rows wait until their time has passed."""
        del index
        return 0

    def layouts(self, *inputs: pa.Schema) -> tuple[RowsLayout, RowsLayout]:
        """Return the columns of the rows of each side whose time has not passed."""
        return self.left.layout(inputs[LEFT]), self.right.layout(inputs[RIGHT])

    def newest_layout(self, *inputs: pa.Schema) -> RowLayout:
        """Return the columns of the last right row of each key.

        It expires if there is a greatest distance.
        """
        schema = self.right.layout(inputs[RIGHT]).schema
        if self.distance_us is None:
            schema = schema.remove(schema.get_field_index(EXPIRES))
        return RowLayout(self.right.keys, (), schema)

    def tables(self, *inputs: pa.Schema) -> tuple[TableLayout, ...]:
        """Return the tables of state: rows that wait, by side, and the last row of each key."""
        waiting = zip(self.sides, self.layouts(*inputs), strict=True)
        return (
            *(layout.table(side.name) for side, layout in waiting),
            _newest_table(self.newest_layout(*inputs)),
        )

    def open(self, context: SubtaskContext, *inputs: pa.Schema) -> "AsOfJoiner":
        """Create the running instance."""
        return AsOfJoiner(self, context, inputs)


class HeldNewest:
    """The table with the last right row of each key whose time has passed."""

    def __init__(self, layout: RowLayout, backend: StateBackend) -> None:
        self.rows = KeyedRows(layout, backend.shelf(layout.schema))
        self.table = _newest_table(layout)
        self.swept_us: int | None = None
        """When keys without a right row for long were last dropped."""
        self._names = layout.schema.names

    @property
    def row_count(self) -> int:
        """The number of rows in memory, also of those that were replaced."""
        return self.rows.row_count

    def pinned(self, *, changes: bool) -> StoredTables:
        """Hold on to the rows, or to those that changed since the last call."""
        return (self.rows.take_changes() if changes else self.rows.pin()).stored_tables

    def expired_us(self, passed_us: int | None) -> int | None:
        """Return when old keys were last dropped: later ones are kept, and counted when they go."""
        del passed_us
        return self.swept_us

    def sweep(self, expired_us: int) -> int:
        """Drop the rows that expire then or before; return how many these are."""
        self.swept_us, before = expired_us, len(self.rows)

        def kept(rows: pa.Table, *, settled: bool) -> pa.Table:
            del settled
            return unexpired(NEWEST, rows, expired_us)

        self.rows.forget(kept)
        return before - len(self.rows)

    def take(self, rows: pa.Table) -> None:
        """Keep these rows; of one key the last one counts."""
        self.rows.replace(rows.select(self._names))

    def taken(self, expired_us: Sequence[int | None]) -> None:
        """Continue from where all subtasks had dropped old keys; each table was complete."""
        self.swept_us = least_of_all(expired_us)


def _newest_table(layout: RowLayout) -> TableLayout:
    return TableLayout(NEWEST, layout.stored_schema, layout.keys, "newest")


class AsOfJoiner(ClosestJoiner):
    """One subtask: the rows of both sides whose keys are in its range of key groups."""

    def __init__(
        self, spec: AsOfJoin, context: SubtaskContext, inputs: Sequence[pa.Schema]
    ) -> None:
        self._newest = HeldNewest(spec.newest_layout(*inputs), context.backend)
        super().__init__(spec, context, inputs, [self._newest])
        self._distance_us = spec.distance_us

    def on_watermark(self, watermark_us: int) -> Iterator[pa.RecordBatch]:
        """Yield the left rows whose time has passed, with their partners.

        The state advances at once; the results are computed as they are consumed.
        """
        passed_us = self._progress.advance(watermark_us)
        if passed_us is None:
            return iter(())
        left, right = (self._passing(index, passed_us) for index in (LEFT, RIGHT))
        result = self._matched(left, right) if left.num_rows or right.num_rows else iter(())
        gone = self._sweep(passed_us)
        if watermark_us != WATERMARK_END_US:
            self._progress.expired_row_count += gone
        return result

    def output_watermark(self, watermark_us: int) -> int:
        """Return the watermark of the time columns: all left rows before it have been emitted."""
        return self._progress.of_times(watermark_us)

    def _matched(self, left: pa.Table, right: pa.Table) -> Iterator[pa.RecordBatch]:
        """Find the partners, keep the last right row of each key, and return the result.

        Rows that are kept are older than all of these, because what is older is late. So the
        partner of a left row is one of these right rows, or else the row that its key has.
        """
        kept, key_count = self._newest.rows, len(self._newest.rows)
        mine, theirs = self._numbered(left, right)
        partner, last = closest(mine, theirs, self._ranked(right))
        from_before = (partner == MISSING) & (mine.keys < key_count)
        known = kept.rows_of(mine.keys[from_before]).select(right.column_names)
        partner[from_before] = right.num_rows + np.arange(known.num_rows)
        rights = pa.concat_tables([right, known]).combine_chunks()
        rights_us = np.append(theirs.times_us, self._times_of(RIGHT, known))
        newest = self._expiring(right.take(pa.array(last)), theirs.times_us[last])
        kept.put(newest, np.where(theirs.keys[last] < key_count, theirs.keys[last], MISSING))
        partner = within(partner, mine.times_us, rights_us, self._distance_us)
        return in_pieces(self._joined(left, rights, partner))

    def _numbered(self, left: pa.Table, right: pa.Table) -> tuple[Numbered, Numbered]:
        """Number the keys of both sides: those that have a row as they are there, others after."""
        kept = self._newest.rows
        keys = self._keys_of(LEFT, left), self._keys_of(RIGHT, right)
        known = [kept.numbers_of(columns) for columns in keys]
        new = [np.flatnonzero(numbers == MISSING) for numbers in known]
        unknown = (
            [column.take(pa.array(rows)) for column in columns]
            for columns, rows in zip(keys, new, strict=True)
        )
        for numbers, rows, others in zip(known, new, numbered(*unknown), strict=True):
            numbers[rows] = len(kept) + others
        return (
            Numbered(known[LEFT], self._times_of(LEFT, left)),
            Numbered(known[RIGHT], self._times_of(RIGHT, right)),
        )

    def _expiring(self, rows: pa.Table, times_us: Integers) -> pa.Table:
        if self._distance_us is None:
            return rows
        return EventRows(rows, times_us).expiring_after(self._distance_us)

    def _sweep(self, passed_us: int) -> int:
        """Drop the keys whose last row is too old for any row to come, once per distance.

        Return how many these are.
        """
        distance_us, swept_us = self._distance_us, self._newest.swept_us
        if distance_us is None or (swept_us is not None and passed_us - swept_us < distance_us):
            return 0
        return self._newest.sweep(passed_us)
