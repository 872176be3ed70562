"""The as-of join: each left row with the last right row of its key at or before its time.

A left row waits until event time has passed it, because a right row at its time may still come.
Right rows wait likewise; then the last one of each key stays, and all older ones are dropped. So
the state is one right row per key, and the rows whose time has not passed. With a greatest distance
a key that has had no right row for so long is dropped, too.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from laminar_core.aggregates.row_groups import Integers
from laminar_core.operators.base import JsonObject, SubtaskContext
from laminar_core.operators.joins.closest import closest
from laminar_core.operators.joins.output import in_pieces
from laminar_core.operators.joins.side import LEFT, RIGHT, EventRows
from laminar_core.operators.joins.subtask import StoredTables
from laminar_core.operators.joins.waiting import ClosestJoin, ClosestJoiner, within
from laminar_core.state.expiry import EXPIRES, unexpired
from laminar_core.state.keyed_rows import KeyedRows, RowLayout
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

    def __init__(self, layout: RowLayout) -> None:
        self.rows = KeyedRows(layout)
        self.table = _newest_table(layout)
        self._names = layout.schema.names

    @property
    def row_count(self) -> int:
        """The number of rows in memory, also of those that were replaced."""
        return self.rows.row_count

    def pinned(self, *, changes: bool, passed_us: int | None) -> StoredTables:
        """Hold on to the rows, or to those that changed since the last call."""
        pinned = self.rows.take_changes() if changes else self.rows.pin()

        def stored(max_parallelism: int) -> Iterator[pa.Table]:
            rows = unexpired(NEWEST, pinned.stored_table(max_parallelism), passed_us)
            if rows.num_rows:
                yield rows

        return stored

    def restore(self, tables: Sequence[pa.Table]) -> None:
        """Start from these rows; of one key the last one counts."""
        for rows in tables:
            self.rows.replace(rows.select(self._names))


def _newest_table(layout: RowLayout) -> TableLayout:
    return TableLayout(NEWEST, layout.stored_schema, layout.keys, "newest")


class AsOfJoiner(ClosestJoiner):
    """One subtask: the rows of both sides whose keys are in its range of key groups."""

    def __init__(
        self, spec: AsOfJoin, context: SubtaskContext, inputs: Sequence[pa.Schema]
    ) -> None:
        self._newest = HeldNewest(spec.newest_layout(*inputs))
        super().__init__(spec, context, inputs, [self._newest])
        self._distance_us = spec.distance_us
        self._swept_us: int | None = None
        """When keys without a right row for long were last dropped."""

    def on_watermark(self, watermark_us: int) -> Iterator[pa.RecordBatch]:
        """Yield the left rows whose time has passed, with their partners.

        The state advances at once; the results are computed as they are consumed.
        """
        passed_us = self._progress.advance(watermark_us)
        if passed_us is None:
            return iter(())
        left, right = (self._passing(index, passed_us) for index in (LEFT, RIGHT))
        result = self._matched(left, right) if left.num_rows or right.num_rows else iter(())
        self._sweep(passed_us)
        return result

    def output_watermark(self, watermark_us: int) -> int:
        """Return the watermark of the time columns: all left rows before it have been emitted."""
        return self._progress.of_times(watermark_us)

    def _matched(self, left: pa.Table, right: pa.Table) -> Iterator[pa.RecordBatch]:
        """Find the partners, keep the last right row of each key, and return the result."""
        left_side, right_side = self._sides
        keys = left.select(list(left_side.keys)).rename_columns(list(right_side.keys))
        known = self._newest.rows.matching(keys).select(right.column_names)
        rights = pa.concat_tables([known, right])
        mine, theirs = self._keyed(LEFT, left), self._keyed(RIGHT, rights)
        found = closest(mine, theirs, self._ranked(rights))
        fresh = found.last[found.last >= known.num_rows]
        newest = self._expiring(rights.take(pa.array(fresh)), theirs.times_us[fresh])
        self._newest.rows.replace(newest)
        partner = within(found.partner, mine.times_us, theirs.times_us, self._distance_us)
        return in_pieces(self._joined(left, rights, partner))

    def _expiring(self, rows: pa.Table, times_us: Integers) -> pa.Table:
        if self._distance_us is None:
            return rows
        return EventRows(rows, times_us).expiring_after(self._distance_us)

    def _sweep(self, passed_us: int) -> None:
        """Drop the keys whose last row is too old for any row to come, once per distance."""
        distance_us, swept_us = self._distance_us, self._swept_us
        if distance_us is None or (swept_us is not None and passed_us - swept_us < distance_us):
            return
        self._swept_us = passed_us
        self._newest.rows = self._newest.rows.retained(
            lambda rows: rows.column(EXPIRES).cast(pa.int64()).to_numpy() > passed_us
        )
