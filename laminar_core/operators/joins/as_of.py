"""The as-of join: each left row with the last right row of its key at or before its time.

A left row waits until event time has passed it, because a right row at its time may still come.
Right rows wait likewise; then the last one of each key stays, and all older ones are dropped. So
the state is one right row per key, and the rows whose time has not passed. With a greatest distance
a key that has had no right row for so long is dropped, too.

Of several right rows at one time the greatest is taken, compared in the order of output columns:
the order of arrival does not survive a restart.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np
import pyarrow as pa

from laminar_core.aggregates.row_groups import Integers
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators.base import (
    JsonObject,
    PendingSnapshot,
    Side,
    Snapshot,
    StateTable,
    SubtaskContext,
)
from laminar_core.operators.joins.closest import Keyed, closest
from laminar_core.operators.joins.columns import SUFFIX, JoinedColumns
from laminar_core.operators.joins.output import OUTPUT_ROWS_MAX, in_pieces
from laminar_core.operators.joins.progress import JoinProgress
from laminar_core.operators.joins.restoring import gathered, require_same_columns
from laminar_core.operators.joins.side import (
    EventRows,
    JoinSide,
    late_outputs,
    read_rows,
    require_alike,
    split_keyless,
    times_of,
)
from laminar_core.protocol.types import CheckpointId
from laminar_core.state.arrangement import Arrangement
from laminar_core.state.expiry import EXPIRES, unexpired
from laminar_core.state.keyed_rows import MISSING, KeyedRows, RowLayout
from laminar_core.state.named_tables import TABLES, TableLayout, described
from laminar_core.state.rescaling import Redistribution
from laminar_core.state.rows_layout import RowsLayout

AsOfHow = Literal["inner", "left"]
"""Whether left rows without partner are emitted."""

LEFT, RIGHT = 0, 1
NEWEST = "newest"
"""The table with the last right row of each key whose time has passed."""


@dataclass(frozen=True, slots=True)
class AsOfJoin:
    """Give each left row the last right row with equal keys that is not younger.

    ``distance_us``: a right row that is older by more is none. ``lag_us``: how far the time columns
    may lag behind the watermark.
    """

    redistribution: ClassVar[Redistribution] = "keyed"
    needs_event_time: ClassVar[bool] = True
    operator_id: str
    left: JoinSide
    right: JoinSide
    distance_us: int | None = None
    how: AsOfHow = "left"
    suffix: str = SUFFIX
    lag_us: int = 0

    def __post_init__(self) -> None:
        if self.how not in get_args(AsOfHow):
            raise ConfigurationError(
                ErrorCode.INVALID_OPTION,
                f"{self.operator_id}: how is {' or '.join(get_args(AsOfHow))}, not {self.how}",
            )

    @property
    def input_names(self) -> Sequence[str]:
        """Return what each input is called in messages."""
        return ("left input", "right input")

    @property
    def sides(self) -> tuple[JoinSide, JoinSide]:
        """Return both sides."""
        return (self.left, self.right)

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

    def output_schema(self, *inputs: pa.Schema) -> pa.Schema:
        """Return the columns of the left side, then those of the right.

        Raises:
            ConfigurationError: a column is missing (WRONG_SCHEMA), of a type that cannot be used so
                (UNSUPPORTED_TYPE), or two would have one name (INVALID_PIPELINE).
        """
        for side, schema in zip(self.sides, inputs, strict=True):
            side.check(schema)
        require_alike(*self.sides, inputs)
        return self.columns(*inputs).schema

    def columns(self, *inputs: pa.Schema) -> JoinedColumns:
        """Return the columns of the result."""
        return JoinedColumns(self.sides, inputs, self.suffix)

    def layouts(self, *inputs: pa.Schema) -> tuple[RowsLayout, ...]:
        """Return the columns of the rows of each side whose time has not passed."""
        return tuple(side.layout(one) for side, one in zip(self.sides, inputs, strict=True))

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
        newest = self.newest_layout(*inputs)
        waiting = zip(self.sides, self.layouts(*inputs), strict=True)
        return (
            *(layout.table(side.name) for side, layout in waiting),
            TableLayout(NEWEST, newest.stored_schema, newest.keys, "newest"),
        )

    def side_outputs(self, *inputs: pa.Schema) -> Mapping[str, pa.Schema]:
        """Return the columns of late rows of each side."""
        return late_outputs(self.sides, inputs)

    def state_tables(self, *inputs: pa.Schema) -> Mapping[str, pa.Schema]:
        """Return the columns of each table."""
        return {table.name: table.schema for table in self.tables(*inputs)}

    def open(self, context: SubtaskContext, *inputs: pa.Schema) -> "AsOfJoiner":
        """Create the running instance."""
        return AsOfJoiner(self, context, inputs)


class AsOfJoiner:
    """One subtask: the rows of both sides whose keys are in its range of key groups."""

    def __init__(
        self, spec: AsOfJoin, context: SubtaskContext, inputs: Sequence[pa.Schema]
    ) -> None:
        self._spec = spec
        self._context = context
        self._columns = spec.columns(*inputs)
        self._waiting = tuple(Arrangement(layout) for layout in spec.layouts(*inputs))
        self._newest_layout = spec.newest_layout(*inputs)
        self._tables = {table.name: table for table in spec.tables(*inputs)}
        self._newest = KeyedRows(self._newest_layout)
        self._swept_us: int | None = None
        """When keys without a right row for long were last dropped."""
        self._progress = JoinProgress(context, spec.lag_us)

    @property
    def late_row_count(self) -> int:
        """The number of rows dropped so far because they came behind the watermark."""
        return self._progress.late_row_count

    @property
    def held_row_count(self) -> int:
        """The number of rows in memory."""
        return sum(rows.row_count for rows in self._waiting) + self._newest.row_count

    def process_input(self, index: int, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch | Side]:
        """Keep the rows until their time has passed; yield left rows that cannot have a partner.

        Late rows go to a side output.

        Raises:
            DataError: an event time is so far off that it cannot be right (ARITHMETIC_OVERFLOW).
        """
        side, waiting = self._spec.sides[index], self._waiting[index]
        events, timeless = read_rows(batch, side)
        events, late = self._progress.parted(events, side.keys)
        yield from side.given_back(late)
        events, keyless = split_keyless(events, side)
        waiting.add(waiting.arranged(events.expiring_after(0), events.times_us))
        if index == LEFT and self._spec.how != "inner":
            yield from in_pieces(self._columns.unpaired(LEFT, rows) for rows in (timeless, keyless))

    def on_watermark(self, watermark_us: int) -> Iterator[pa.RecordBatch]:
        """Yield the left rows whose time has passed, with their partners.

        The state advances at once; the results are computed as they are consumed.
        """
        passed_us = self._progress.advance(watermark_us)
        if passed_us is None:
            return iter(())
        left, right = (self._passing(index, passed_us) for index in (LEFT, RIGHT))
        result = self._joined(left, right) if left.num_rows or right.num_rows else iter(())
        self._sweep(passed_us)
        return result

    def output_watermark(self, watermark_us: int) -> int:
        """Return the watermark of the time columns: all left rows before it have been emitted."""
        return self._progress.of_times(watermark_us)

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
        """Put the rows together that have not expired, and keep the last one of each key."""
        yield self._tables[name].merge(tables, expired_us)

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        """Restore from the snapshots of all subtasks whose key groups overlap this one's.

        Raises:
            IncompatibleStateError: the state belongs to other columns (OPERATORS_CHANGED).
        """
        self._progress.restore(snapshots)
        found = gathered(snapshots, self._context)
        for side, waiting in zip(self._spec.sides, self._waiting, strict=True):
            tables = found.pop(side.name, [])
            require_same_columns(tables, waiting.layout.stored_schema, self._spec.operator_id)
            rows = self._tables[side.name].merge(tables, None)
            waiting.restore(rows, times_of(rows, side.time))
        tables = found.pop(NEWEST, [])
        require_same_columns(tables, self._newest_layout.stored_schema, self._spec.operator_id)
        for rows in tables:
            self._newest.replace(rows.select(self._newest_layout.schema.names))
        assert not found, f"unknown tables: {sorted(found)}"

    # --- matching -------------------------------------------------------------------------------

    def _passing(self, index: int, passed_us: int) -> pa.Table:
        """Take the rows whose time has passed out of those that wait."""
        waiting = self._waiting[index]
        picked = [one.table() for one in waiting.expiring(passed_us)]
        waiting.expire(passed_us)
        names = [name for name in waiting.layout.schema.names if name != EXPIRES]
        return pa.concat_tables([waiting.layout.schema.empty_table(), *picked]).select(names)

    def _joined(self, left: pa.Table, right: pa.Table) -> Iterator[pa.RecordBatch]:
        """Find the partners, keep the last right row of each key, and return the result."""
        keys = left.select(list(self._spec.left.keys)).rename_columns(list(self._spec.right.keys))
        known = self._newest.matching(keys).select(right.column_names)
        rights = pa.concat_tables([known, right])
        mine, theirs = self._keyed(LEFT, left), self._keyed(RIGHT, rights)
        found = closest(mine, theirs, self._ranked(rights))
        fresh = found.last[found.last >= known.num_rows]
        self._newest.replace(self._expiring(rights.take(pa.array(fresh)), theirs.times_us[fresh]))
        partner = self._near(found.partner, mine.times_us, theirs.times_us)
        return in_pieces(self._results(left, rights, partner))

    def _results(self, left: pa.Table, rights: pa.Table, partner: Integers) -> Iterator[pa.Table]:
        chosen = np.arange(len(partner))
        if self._spec.how == "inner":
            chosen = np.flatnonzero(partner != MISSING)
        for start in range(0, len(chosen), OUTPUT_ROWS_MAX):
            some = chosen[start : start + OUTPUT_ROWS_MAX]
            places = pa.array(partner[some], mask=partner[some] == MISSING)
            yield self._columns.paired(left.take(pa.array(some)), rights.take(places))

    def _near(self, partner: Integers, left_us: Integers, right_us: Integers) -> Integers:
        """Leave out partners that are too old."""
        distance_us = self._spec.distance_us
        if distance_us is None or not len(right_us):
            return partner
        is_far = left_us - right_us[np.maximum(partner, 0)] > distance_us
        return np.where(is_far, MISSING, partner)

    def _keyed(self, index: int, rows: pa.Table) -> Keyed:
        side = self._spec.sides[index]
        return Keyed([rows.column(key) for key in side.keys], times_of(rows, side.time))

    def _ranked(self, rights: pa.Table) -> pa.Table:
        """Return the right rows with their columns in the order of the result."""
        names = [c.sources[RIGHT] for c in self._columns.columns if c.sources[RIGHT] is not None]
        return rights.select(names)

    def _expiring(self, rows: pa.Table, times_us: Integers) -> pa.Table:
        if self._spec.distance_us is None:
            return rows
        return EventRows(rows, times_us).expiring_after(self._spec.distance_us)

    def _sweep(self, passed_us: int) -> None:
        """Drop the keys whose last row is too old for any row to come, once per distance."""
        distance_us, swept_us = self._spec.distance_us, self._swept_us
        if distance_us is None or (swept_us is not None and passed_us - swept_us < distance_us):
            return
        self._swept_us = passed_us
        self._newest = self._newest.retained(
            lambda rows: rows.column(EXPIRES).cast(pa.int64()).to_numpy() > passed_us
        )

    # --- snapshots ------------------------------------------------------------------------------

    def _pending(self, *, changes: bool) -> PendingSnapshot:
        pinned = [
            (side.name, waiting.take_changes() if changes else waiting.pin())
            for side, waiting in zip(self._spec.sides, self._waiting, strict=True)
        ]
        newest = self._newest.take_changes() if changes else self._newest.pin()
        properties, passed_us = self._progress.properties(), self._progress.passed_us
        names = [name for name, _ in pinned]
        if self._spec.distance_us is not None:
            names.append(NEWEST)
        expired_us = {} if passed_us is None else dict.fromkeys(names, passed_us)
        max_parallelism = self._context.max_parallelism

        def tables() -> Iterator[StateTable]:
            for name, rows in pinned:
                for table in rows.stored_tables(max_parallelism):
                    yield StateTable(name, table)
            table = newest.stored_table(max_parallelism)
            table = unexpired(NEWEST, table, expired_us.get(NEWEST))
            if table.num_rows:
                yield StateTable(NEWEST, table)

        return lambda: Snapshot(tables(), properties, expired_us=expired_us)
