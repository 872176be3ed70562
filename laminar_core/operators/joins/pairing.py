"""Joins of pairs: two rows meet if their keys are equal and their times fit.

A row is kept as long as a partner may still come, which is known when it comes. A pair is emitted
when the second of its rows comes. A row that must not be lost and has had no partner is emitted
when it expires: when the watermark is later than ``_expires``, strictly, because a row at the
watermark is in time. Whether a row has had a partner is part of the state.

A semi join emits a left row with its first partner; an anti join, when it expires without one. Of
right rows both keep only what finds them. A left row whose partner is there already is not kept.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass

import numpy as np
import pyarrow as pa

from laminar_core.aggregates.row_groups import Integers
from laminar_core.operators.base import JsonObject, Side, SubtaskContext
from laminar_core.operators.joins.columns import JoinedColumns
from laminar_core.operators.joins.kinds import (
    How,
    emits_unpaired,
    has_left_only,
    is_marked,
    require_how,
)
from laminar_core.operators.joins.output import in_pieces
from laminar_core.operators.joins.progress import JoinProgress
from laminar_core.operators.joins.side import (
    LEFT,
    RIGHT,
    EventRows,
    TwoSided,
    late_outputs,
    read_rows,
    split_keyless,
)
from laminar_core.operators.joins.subtask import HeldRows, JoinSubtask
from laminar_core.protocol.types import WATERMARK_END_US
from laminar_core.state.named_tables import TABLES, described
from laminar_core.state.rows_layout import RowsLayout, require_comparable
from laminar_core.state.runs import Bounds, Matches, Run


@dataclass(frozen=True, slots=True)
class PairJoin(TwoSided, ABC):
    """A join of pairs; which times fit, and how long a row is kept, is left to its kinds."""

    _: KW_ONLY
    how: How = "inner"

    def __post_init__(self) -> None:
        require_how(self.how, self.operator_id)

    def judged(self, events: EventRows) -> EventRows:
        """Return rows, given with their own time, with the time that decides if they are late."""
        return events

    def placed(self, index: int, judged: EventRows) -> EventRows:
        """Return each row once for each place where it can have partners, with its time there."""
        del index
        return judged

    @abstractmethod
    def expires_us(self, index: int, events: EventRows) -> Integers:
        """Return the last moment at which a partner of each row may come, or the row itself."""

    @abstractmethod
    def bounds_from(self, index: int) -> Bounds:
        """Return the times of partners of a row of this side."""

    @abstractmethod
    def found_by(self, index: int, rows: pa.Table) -> Integers:
        """Return the time by which rows that are kept are found."""

    @abstractmethod
    def held_back_us(self, index: int, held: HeldRows, watermark_us: int) -> int | None:
        """Return the time to which rows that are kept hold the watermark back; None: they do not.

        It is also called without rows.
        """

    def are_partners(self, index: int, run: Run, found: Matches) -> np.ndarray | None:
        """Return which pairs fit that have equal keys and times within bounds; None: all.

        ``run`` has the probing rows, of this side.
        """
        del index, run, found
        return None

    def columns(self, *inputs: pa.Schema) -> JoinedColumns:
        """Return the columns of the result."""
        return JoinedColumns(self.sides, inputs, self.suffix, left_only=has_left_only(self.how))

    def right_columns(self) -> Sequence[str]:
        """Return what a semi or anti join keeps of the right side, besides the keys."""
        return (self.right.time,)

    def output_schema(self, *inputs: pa.Schema) -> pa.Schema:
        """Return the columns of the left side, then those of the right.

        Raises:
            ConfigurationError: a column is missing (WRONG_SCHEMA), of a type that cannot be used so
                (UNSUPPORTED_TYPE), or two would have one name (INVALID_PIPELINE).
        """
        self.require_inputs(inputs)
        for layout in self.layouts(*inputs):
            require_comparable(layout)
        return self.columns(*inputs).schema

    def layouts(self, *inputs: pa.Schema) -> tuple[RowsLayout, RowsLayout]:
        """Return the columns of the state of each side."""
        only = self.right_columns() if has_left_only(self.how) else None
        left = self.left.layout(inputs[LEFT], is_marked=is_marked(self.how, LEFT))
        return left, self.right.layout(
            inputs[RIGHT], is_marked=is_marked(self.how, RIGHT), only=only
        )

    def described_tables(self) -> JsonObject:
        """Return the description of the tables of state."""
        layouts = [
            RowsLayout(side.keys, pa.schema([]), is_marked(self.how, index)).table(side.name)
            for index, side in enumerate(self.sides)
        ]
        return {TABLES: described(layouts)}

    def side_outputs(self, *inputs: pa.Schema) -> Mapping[str, pa.Schema]:
        """Return the columns of late rows of each side."""
        return late_outputs(self.sides, inputs)

    def state_tables(self, *inputs: pa.Schema) -> Mapping[str, pa.Schema]:
        """Return the columns of both tables: key group, columns of the side, when rows expire."""
        layouts = zip(self.sides, self.layouts(*inputs), strict=True)
        return {side.name: layout.stored_schema for side, layout in layouts}

    def open(self, context: SubtaskContext, *inputs: pa.Schema) -> "PairJoiner":
        """Create the running instance."""
        return PairJoiner(self, context, inputs)


class PairJoiner(JoinSubtask):
    """One subtask: the rows of both sides whose keys are in its range of key groups."""

    def __init__(
        self, spec: PairJoin, context: SubtaskContext, inputs: Sequence[pa.Schema]
    ) -> None:
        self._spec = spec
        self._columns = spec.columns(*inputs)
        left, right = spec.layouts(*inputs)
        backend = context.backend
        self._held = (
            HeldRows(spec.left.name, left, lambda rows: spec.found_by(LEFT, rows), backend),
            HeldRows(spec.right.name, right, lambda rows: spec.found_by(RIGHT, rows), backend),
        )
        super().__init__(context, JoinProgress(context, spec.lag_us), self._held)
        self._expired_before_end: int | None = None

    def _expired_since_start(self) -> int:
        """Return how many rows, with or without partners, can have none any more.

        At the end of the input all rows go, and say nothing about its time.
        """
        if self._expired_before_end is not None:
            return self._expired_before_end
        return sum(held.rows.expired_row_count for held in self._held)

    def rows_at_once(self, index: int, batch: pa.RecordBatch) -> int:
        """Return how many rows to take at once, so that a cut need not wait for a hot key."""
        return self._held[1 - index].rows.rows_at_once(batch, self._spec.sides[index].keys)

    def process_input(self, index: int, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch | Side]:
        """Keep the rows; yield what follows from their partners, and those that can have none.

        Late rows go to a side output.

        Raises:
            DataError: an event time is so far off that it cannot be right (ARITHMETIC_OVERFLOW).
        """
        spec, side, held = self._spec, self._spec.sides[index], self._held[index].rows
        events, timeless = read_rows(batch, side)
        in_time, late = self._progress.parted(spec.judged(events), side.keys)
        yield from side.given_back(late)
        placed = spec.placed(index, in_time)
        if placed is not in_time:
            placed = placed.select(~self._progress.are_late(placed, side.keys))
        events, keyless = split_keyless(placed, side)
        run = held.arranged(self._kept(index, events), events.times_us)
        yield from in_pieces(self._met(index, run))
        held.add(self._still_needed(index, run))
        if emits_unpaired(spec.how, index):
            lonely = keyless.expiring_at(keyless.times_us)
            yield from in_pieces(self._columns.unpaired(index, rows) for rows in (timeless, lonely))

    def _kept(self, index: int, events: EventRows) -> pa.Table:
        """Return the columns of the rows that are kept."""
        rows = events.expiring_at(self._spec.expires_us(index, events))
        return rows.select(self._held[index].rows.layout.schema.names)

    def _still_needed(self, index: int, run: Run) -> Run:
        """Leave out left rows that have had a partner, if the first one decides."""
        if index != LEFT or not has_left_only(self._spec.how) or not run.marks.any():
            return run
        waiting = np.flatnonzero(~run.marks)
        rows, times_us = run.rows.take(pa.array(waiting)), run.times_us[waiting]
        return self._held[index].rows.arranged(rows, times_us)

    def _met(self, index: int, run: Run) -> Iterator[pa.Table]:
        """Mark the rows that meet, those of ``run`` and those that are kept; yield what follows."""
        spec = self._spec
        probed = self._held[1 - index].rows
        for found in probed.probe(run, spec.sides[index].keys, spec.bounds_from(index)):
            fits = spec.are_partners(index, run, found)
            if fits is not None:
                found = found.where(fits)  # noqa: PLW2901 - the same pairs, but fewer
            mine, theirs = found.probing, found.found
            if has_left_only(spec.how):
                yield from self._first_met(*((run, mine) if index == LEFT else (found.run, theirs)))
                continue
            if is_marked(spec.how, index):
                run.marks[mine] = True
            if is_marked(spec.how, 1 - index):
                found.run.marks[theirs] = True
            rows, partners = run.rows.take(pa.array(mine)), found.partners()
            both = (rows, partners) if index == LEFT else (partners, rows)
            yield self._columns.paired(*both)

    def _first_met(self, run: Run, met: Integers) -> Iterator[pa.Table]:
        """Mark left rows that meet; yield those of a semi join that meet for the first time."""
        fresh = np.unique(met[~run.marks[met]])
        run.marks[fresh] = True
        if self._spec.how == "semi" and len(fresh):
            yield self._columns.unpaired(LEFT, run.rows.take(pa.array(fresh)))

    def on_watermark(self, watermark_us: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows that expire without having had a partner.

        The state advances at once; the results are computed as they are consumed.
        """
        passed_us = self._progress.advance(watermark_us)
        if passed_us is None:
            return iter(())
        unpaired = [
            (index, held.rows.expiring(passed_us, unmarked=True))
            for index, held in enumerate(self._held)
            if emits_unpaired(self._spec.how, index)
        ]
        if watermark_us == WATERMARK_END_US:
            self._expired_before_end = self._expired_since_start()
        for held in self._held:
            held.rows.expire(passed_us)
        return in_pieces(
            self._columns.unpaired(index, picked.table())
            for index, some in unpaired
            for picked in some
        )

    def output_watermark(self, watermark_us: int) -> int:
        """Return the watermark, held back to the oldest row that a later result can have."""
        reached_us = self._progress.of_times(watermark_us)
        held_us = [
            self._spec.held_back_us(index, held, reached_us)
            for index, held in enumerate(self._held)
        ]
        return min([reached_us, *(one for one in held_us if one is not None)])
