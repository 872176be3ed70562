"""The interval join: rows of two streams with equal keys whose times are close enough.

A row is kept as long as a partner may still come, which is known from its own time. A pair is
emitted when the second of its rows comes. A row that must not be lost and has had no partner is
emitted with nulls when it expires: when the watermark is later than ``_expires``, strictly, because
a row at the watermark is in time. Whether a row has had a partner is part of the state.

The watermark behind a join is held back to the oldest row that is still kept, because a pair is as
old as its older row.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import pyarrow as pa

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators.base import (
    JsonObject,
    PendingSnapshot,
    Snapshot,
    StateTable,
    SubtaskContext,
)
from laminar_core.operators.joins.columns import SUFFIX, JoinedColumns
from laminar_core.operators.joins.output import in_pieces
from laminar_core.operators.joins.progress import JoinProgress
from laminar_core.operators.joins.restoring import gathered, require_same_columns
from laminar_core.operators.joins.side import (
    JoinSide,
    read_rows,
    require_alike,
    split_keyless,
    times_of,
)
from laminar_core.protocol.types import CheckpointId
from laminar_core.state.arrangement import Arrangement, PinnedRuns
from laminar_core.state.named_tables import TABLES, described
from laminar_core.state.rescaling import Redistribution
from laminar_core.state.rows_layout import RowsLayout, require_comparable
from laminar_core.state.runs import Bounds, Run

How = Literal["inner", "left", "right", "full"]
"""The rows without partner that are emitted: none, those of one side, or all."""

LEFT, RIGHT = 0, 1


@dataclass(frozen=True, slots=True)
class IntervalJoin:
    """Pair rows with equal keys, if right time less left time is in [``low_us``, ``high_us``].

    ``lag_us``: how far the time columns may lag behind the watermark.
    """

    redistribution: ClassVar[Redistribution] = "keyed"
    needs_event_time: ClassVar[bool] = True
    operator_id: str
    left: JoinSide
    right: JoinSide
    low_us: int
    high_us: int
    how: How = "inner"
    suffix: str = SUFFIX
    lag_us: int = 0

    def __post_init__(self) -> None:
        if self.how not in get_args(How):
            raise _refused(f"{self.operator_id}: how is {', '.join(get_args(How))}, not {self.how}")
        if self.low_us > self.high_us:
            raise _refused(f"{self.operator_id}: no time is within these bounds: exchange them")

    @property
    def input_names(self) -> Sequence[str]:
        """Return what each input is called in messages."""
        return ("left input", "right input")

    @property
    def sides(self) -> tuple[JoinSide, JoinSide]:
        """Return both sides."""
        return (self.left, self.right)

    def describe(self) -> JsonObject:
        """Return keys, times and bounds: the meaning of the state."""
        layouts = [
            RowsLayout(side.keys, pa.schema([]), self.keeps_unpaired(number)).table(side.name)
            for number, side in enumerate(self.sides)
        ]
        return {
            "kind": "interval-join",
            "left": self.left.describe(),
            "right": self.right.describe(),
            "bounds_us": [self.low_us, self.high_us],
            "how": self.how,
            TABLES: described(layouts),
        }

    def keeps_unpaired(self, side: int) -> bool:
        """Return whether rows of this side without partner are emitted."""
        return self.how == "full" or self.how == ("left", "right")[side]

    def kept_us(self, side: int) -> int:
        """Return how long after its time a row can get a partner, or is in time itself."""
        return max(0, self.high_us if side == LEFT else -self.low_us)

    def bounds_from(self, side: int) -> Bounds:
        """Return the times of partners of a row of this side."""
        if side == LEFT:
            return Bounds(self.low_us, self.high_us)
        return Bounds(-self.high_us, -self.low_us)

    def output_schema(self, *inputs: pa.Schema) -> pa.Schema:
        """Return the columns of the left side, then those of the right.

        Raises:
            ConfigurationError: a column is missing (WRONG_SCHEMA), of a type that cannot be used so
                (UNSUPPORTED_TYPE), or two would have one name (INVALID_PIPELINE).
        """
        for side, schema in zip(self.sides, inputs, strict=True):
            side.check(schema)
        require_alike(*self.sides, inputs)
        for layout in self.layouts(*inputs):
            require_comparable(layout)
        return self.columns(*inputs).schema

    def columns(self, *inputs: pa.Schema) -> JoinedColumns:
        """Return the columns of the result."""
        return JoinedColumns(self.sides, inputs, self.suffix)

    def layouts(self, *inputs: pa.Schema) -> tuple[RowsLayout, ...]:
        """Return the columns of the state of each side."""
        return tuple(
            side.layout(schema, is_marked=self.keeps_unpaired(number))
            for number, (side, schema) in enumerate(zip(self.sides, inputs, strict=True))
        )

    def state_tables(self, *inputs: pa.Schema) -> Mapping[str, pa.Schema]:
        """Return the columns of both tables: key group, columns of the side, when rows expire."""
        layouts = zip(self.sides, self.layouts(*inputs), strict=True)
        return {side.name: layout.stored_schema for side, layout in layouts}

    def open(self, context: SubtaskContext, *inputs: pa.Schema) -> "IntervalJoiner":
        """Create the running instance."""
        return IntervalJoiner(self, context, inputs)


class IntervalJoiner:
    """One subtask: the rows of both sides whose keys are in its range of key groups."""

    def __init__(
        self, spec: IntervalJoin, context: SubtaskContext, inputs: Sequence[pa.Schema]
    ) -> None:
        self._spec = spec
        self._context = context
        self._columns = spec.columns(*inputs)
        self._held = tuple(Arrangement(layout) for layout in spec.layouts(*inputs))
        self._tables = {
            side.name: held.layout.table(side.name)
            for side, held in zip(spec.sides, self._held, strict=True)
        }
        self._progress = JoinProgress(context, spec.lag_us)

    @property
    def late_row_count(self) -> int:
        """The number of rows dropped so far because they came behind the watermark."""
        return self._progress.late_row_count

    @property
    def held_row_count(self) -> int:
        """The number of rows in memory."""
        return sum(held.row_count for held in self._held)

    def rows_at_once(self, index: int, batch: pa.RecordBatch) -> int:
        """Return how many rows to take at once, so that a cut need not wait for a hot key."""
        return self._held[1 - index].rows_at_once(batch, self._spec.sides[index].keys)

    def process_input(self, index: int, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Keep the rows; yield their pairs, and those that cannot have a partner.

        Raises:
            DataError: an event time is so far off that it cannot be right (ARITHMETIC_OVERFLOW).
        """
        side = self._spec.sides[index]
        events, timeless = read_rows(batch, side)
        events, keyless = split_keyless(self._progress.in_time(events, side.keys), side)
        held = self._held[index]
        run = held.arranged(events.expiring_after(self._spec.kept_us(index)), events.times_us)
        yield from in_pieces(self._pairs(index, run))
        held.add(run)
        if self._spec.keeps_unpaired(index):
            yield from in_pieces(
                self._columns.unpaired(index, rows) for rows in (timeless, keyless)
            )

    def _pairs(self, index: int, run: Run) -> Iterator[pa.Table]:
        """Yield the pairs of these rows with those of the other side, and mark both."""
        mine, theirs = self._held[index].layout, self._held[1 - index].layout
        bounds = self._spec.bounds_from(index)
        for found in self._held[1 - index].probe(run, mine.keys, bounds):
            if mine.is_marked:
                run.marks[found.probing] = True
            if theirs.is_marked:
                found.run.marks[found.found] = True
            rows = run.rows.take(pa.array(found.probing))
            partners = found.run.rows.take(pa.array(found.found))
            both = (rows, partners) if index == LEFT else (partners, rows)
            yield self._columns.paired(*both)

    def on_watermark(self, watermark_us: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows that expire without having had a partner.

        The state advances at once; the results are computed as they are consumed.
        """
        passed_us = self._progress.advance(watermark_us)
        if passed_us is None:
            return iter(())
        unpaired = [
            (index, held.expiring(passed_us, unmarked=True))
            for index, held in enumerate(self._held)
            if held.layout.is_marked
        ]
        for held in self._held:
            held.expire(passed_us)
        return in_pieces(
            self._columns.unpaired(index, picked.table())
            for index, some in unpaired
            for picked in some
        )

    def output_watermark(self, watermark_us: int) -> int:
        """Return the time of the oldest row that is kept, or the watermark if that is older.

        What has expired and is still in memory does not count: no row is kept longer than
        ``kept_us``.
        """
        reached_us = self._progress.of_times(watermark_us)
        oldest_us = [
            max(held.oldest_us, reached_us - self._spec.kept_us(index))
            for index, held in enumerate(self._held)
            if held.oldest_us is not None
        ]
        return min([reached_us, *oldest_us])

    def snapshot(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        """Pin the rows; their tables are built in the asynchronous phase."""
        del checkpoint_id
        return self._pending([held.pin() for held in self._held])

    def snapshot_changes(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        """Pin what changed since the last call."""
        del checkpoint_id
        return self._pending([held.take_changes() for held in self._held])

    def merge_tables(
        self, name: str, tables: Iterable[pa.Table], expired_us: int | None
    ) -> Iterable[pa.Table]:
        """Put the rows together that have not expired; marks that were taken back are left out."""
        yield self._tables[name].merge(tables, expired_us)

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        """Restore from the snapshots of all subtasks whose key groups overlap this one's.

        Raises:
            IncompatibleStateError: the state belongs to other columns (OPERATORS_CHANGED).
        """
        self._progress.restore(snapshots)
        found = gathered(snapshots, self._context)
        for side, held in zip(self._spec.sides, self._held, strict=True):
            tables = found.pop(side.name, [])
            require_same_columns(tables, held.layout.stored_schema, self._spec.operator_id)
            rows = self._tables[side.name].merge(tables, None)
            held.restore(rows, times_of(rows, side.time))
        assert not found, f"unknown tables: {sorted(found)}"

    def _pending(self, pinned: Sequence[PinnedRuns]) -> PendingSnapshot:
        names = [side.name for side in self._spec.sides]
        properties, passed_us = self._progress.properties(), self._progress.passed_us
        max_parallelism = self._context.max_parallelism
        expired_us = {} if passed_us is None else dict.fromkeys(names, passed_us)

        def finish_snapshot() -> Snapshot:
            tables = (
                StateTable(name, table)
                for name, rows in zip(names, pinned, strict=True)
                for table in rows.stored_tables(max_parallelism)
            )
            return Snapshot(tables, properties, expired_us=expired_us)

        return finish_snapshot


def _refused(problem: str) -> ConfigurationError:
    return ConfigurationError(ErrorCode.INVALID_OPTION, problem)
