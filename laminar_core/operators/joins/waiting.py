"""As-of joins of both directions: rows wait until event time has passed them.

They give each left row one right row at most, the closest one on one side of its time. Which one
that is does not depend on the order in which rows come. Of several right rows at one time the
greatest is taken, compared in the order of output columns: the order of arrival does not survive a
restart.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import pyarrow as pa

from laminar_core.aggregates.row_groups import Integers
from laminar_core.codec.arrow import empty_table
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators.base import Side, SubtaskContext
from laminar_core.operators.joins.columns import JoinedColumns
from laminar_core.operators.joins.output import OUTPUT_ROWS_MAX, in_pieces
from laminar_core.operators.joins.progress import JoinProgress
from laminar_core.operators.joins.side import (
    LEFT,
    RIGHT,
    TwoSided,
    late_outputs,
    read_rows,
    split_keyless,
    times_of,
)
from laminar_core.operators.joins.subtask import HeldRows, HeldTable, JoinSubtask
from laminar_core.state.expiry import EXPIRES
from laminar_core.state.keyed_rows import MISSING
from laminar_core.state.named_tables import TableLayout
from laminar_core.state.rows_layout import RowsLayout

AsOfHow = Literal["inner", "left"]
"""Whether left rows without partner are emitted."""


@dataclass(frozen=True, slots=True)
class ClosestJoin(TwoSided, ABC):
    """Give each left row the closest right row with equal keys in one direction.

    ``distance_us``: a right row that is further away is none.
    """

    distance_us: int | None = None
    how: AsOfHow = "left"

    def __post_init__(self) -> None:
        if self.how not in get_args(AsOfHow):
            raise ConfigurationError(
                ErrorCode.INVALID_OPTION,
                f"{self.operator_id}: how is {' or '.join(get_args(AsOfHow))}, not {self.how}",
            )

    @abstractmethod
    def layouts(self, *inputs: pa.Schema) -> tuple[RowsLayout, RowsLayout]:
        """Return the columns of the rows of each side that are kept."""

    @abstractmethod
    def tables(self, *inputs: pa.Schema) -> tuple[TableLayout, ...]:
        """Return the tables of state."""

    @abstractmethod
    def waits_us(self, index: int) -> int:
        """Return how long after its time a row of this side waits."""

    def output_schema(self, *inputs: pa.Schema) -> pa.Schema:
        """Return the columns of the left side, then those of the right.

        Raises:
            ConfigurationError: a column is missing (WRONG_SCHEMA), of a type that cannot be used so
                (UNSUPPORTED_TYPE), or two would have one name (INVALID_PIPELINE).
        """
        self.require_inputs(inputs)
        return self.columns(*inputs).schema

    def columns(self, *inputs: pa.Schema) -> JoinedColumns:
        """Return the columns of the result."""
        return JoinedColumns(self.sides, inputs, self.suffix)

    def side_outputs(self, *inputs: pa.Schema) -> Mapping[str, pa.Schema]:
        """Return the columns of late rows of each side."""
        return late_outputs(self.sides, inputs)

    def state_tables(self, *inputs: pa.Schema) -> Mapping[str, pa.Schema]:
        """Return the columns of each table."""
        return {table.name: table.schema for table in self.tables(*inputs)}


class ClosestJoiner(JoinSubtask, ABC):
    """One subtask: the rows of both sides whose keys are in its range of key groups."""

    def __init__(
        self,
        spec: ClosestJoin,
        context: SubtaskContext,
        inputs: Sequence[pa.Schema],
        others: Sequence[HeldTable] = (),
    ) -> None:
        self._how, self._sides = spec.how, spec.sides
        self._waits_us = [spec.waits_us(index) for index in (LEFT, RIGHT)]
        self._columns = spec.columns(*inputs)
        left, right = spec.layouts(*inputs)
        backend = context.backend
        self._waiting = (
            # Only rows with a mark are looked up by their key; the others just wait.
            HeldRows(
                spec.left.name,
                left,
                lambda rows: times_of(rows, spec.left.time),
                backend,
                is_probed=left.is_marked,
            ),
            HeldRows(
                spec.right.name,
                right,
                lambda rows: times_of(rows, spec.right.time),
                backend,
                is_probed=False,
            ),
        )
        tables = [*self._waiting, *others]
        super().__init__(context, JoinProgress(context, spec.lag_us), tables)

    def process_input(self, index: int, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch | Side]:
        """Keep the rows until their time has passed; yield left rows that cannot have a partner.

        Late rows go to a side output.

        Raises:
            DataError: an event time is so far off that it cannot be right (ARITHMETIC_OVERFLOW).
        """
        side, waiting = self._sides[index], self._waiting[index].rows
        events, timeless = read_rows(batch, side)
        events, late = self._progress.parted(events, side.keys)
        yield from side.given_back(late)
        events, keyless = split_keyless(events, side)
        rows = events.expiring_after(self._waits_us[index])
        waiting.add(waiting.arranged(rows, events.times_us))
        if index == LEFT and self._how != "inner":
            lonely = (timeless, keyless.rows)
            yield from in_pieces(self._columns.unpaired(LEFT, rows) for rows in lonely)

    def _passing(self, index: int, passed_us: int) -> pa.Table:
        """Take the rows that have waited long enough out of those that wait."""
        waiting = self._waiting[index].rows
        picked = [one.table() for one in waiting.expiring(passed_us)]
        waiting.expire(passed_us)
        return self._together(index, picked)

    def _together(self, index: int, tables: Iterable[pa.Table]) -> pa.Table:
        """Return rows of one side as they came, without what is kept besides."""
        schema = self._waiting[index].rows.layout.schema
        names = [name for name in schema.names if name != EXPIRES]
        return pa.concat_tables([empty_table(schema), *tables]).select(names)

    def _joined(self, left: pa.Table, rights: pa.Table, partner: Integers) -> Iterator[pa.Table]:
        """Yield left rows with the partners at these positions, and those without if asked for."""
        chosen = np.arange(len(partner))
        if self._how == "inner":
            chosen = np.flatnonzero(partner != MISSING)
        for start in range(0, len(chosen), OUTPUT_ROWS_MAX):
            some = chosen[start : start + OUTPUT_ROWS_MAX]
            places = pa.array(partner[some], mask=partner[some] == MISSING)
            yield self._columns.paired(left.take(pa.array(some)), rights.take(places))

    def _keys_of(self, index: int, rows: pa.Table) -> list[pa.ChunkedArray]:
        return [rows.column(key) for key in self._sides[index].keys]

    def _times_of(self, index: int, rows: pa.Table) -> Integers:
        return times_of(rows, self._sides[index].time)

    def _ranked(self, rights: pa.Table) -> pa.Table:
        """Return the right rows with their columns in the order of the result."""
        names = [c.sources[RIGHT] for c in self._columns.columns if c.sources[RIGHT] is not None]
        return rights.select(names)


def within(
    partner: Integers, left_us: Integers, right_us: Integers, distance_us: int | None
) -> Integers:
    """Leave out partners that are too far away. ``partner``: positions of right rows."""
    if distance_us is None or not len(right_us):
        return partner
    is_far = np.abs(left_us - right_us[np.maximum(partner, 0)]) > distance_us
    return np.where(is_far, MISSING, partner)
