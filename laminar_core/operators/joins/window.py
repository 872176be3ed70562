"""The window join: rows of two streams with equal keys, in one window.

The place of a row is its window, and a window is known by its last moment, the microsecond before
its end. So a row is late when its window has ended, expires with it, and meets the rows with the
same last moment. A row of several windows is kept once for each of them.

The result has columns for the window. The watermark is passed on as it is: what is certain of the
times of rows is that they lag behind it by less than the size of the window.
"""

from dataclasses import dataclass

import pyarrow as pa

from laminar_core.aggregates.row_groups import Integers
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators.aggregation import WINDOW_END
from laminar_core.operators.base import JsonObject
from laminar_core.operators.joins.columns import JoinedColumns
from laminar_core.operators.joins.kinds import has_left_only, require_how
from laminar_core.operators.joins.pairing import PairJoin
from laminar_core.operators.joins.side import EventRows, times_of
from laminar_core.operators.joins.subtask import HeldRows
from laminar_core.operators.windows import (
    Window,
    ends_us,
    last_ends_us,
    window_starts_us,
    windows_per_row,
)
from laminar_core.state.expiry import EXPIRES
from laminar_core.state.runs import Bounds
from laminar_core.state.window_layout import TIME_TYPE, WINDOW_START

WINDOWS_PER_ROW_MAX = 100
"""A row is kept once for each window that it is in."""


@dataclass(frozen=True, slots=True)
class WindowJoin(PairJoin):
    """Pair rows with equal keys that are in the same window."""

    window: Window

    def __post_init__(self) -> None:
        require_how(self.how, self.operator_id)
        if (count := windows_per_row(self.window)) > WINDOWS_PER_ROW_MAX:
            raise ConfigurationError(
                ErrorCode.INVALID_OPTION,
                f"{self.operator_id}: a row would be in {count} windows, and a join keeps it once "
                f"for each, at most {WINDOWS_PER_ROW_MAX} times: choose a longer slide or step",
            )

    def describe(self) -> JsonObject:
        """Return keys, times and windows: the meaning of the state."""
        return {
            "kind": "window-join",
            "left": self.left.describe(),
            "right": self.right.describe(),
            "window": self.window.describe(),
            "how": self.how,
            **self.described_tables(),
        }

    def judged(self, events: EventRows) -> EventRows:
        """Return the rows with the last moment of the last window that each is in."""
        return EventRows(events.rows, last_ends_us(self.window, events.times_us) - 1)

    def placed(self, index: int, judged: EventRows) -> EventRows:
        """Return each row once for each of its windows, with the last moment of that."""
        if windows_per_row(self.window) == 1:
            return judged
        own_us = times_of(judged.rows, self.sides[index].time)
        positions, ends = ends_us(self.window, own_us)
        return EventRows(judged.rows.take(pa.array(positions)), ends - 1)

    def expires_us(self, index: int, events: EventRows) -> Integers:
        """Return the last moment of each row's window."""
        del index
        return events.times_us

    def bounds_from(self, index: int) -> Bounds:
        """Return that partners are in the same window."""
        del index
        return Bounds(0, 0)

    def found_by(self, index: int, rows: pa.Table) -> Integers:
        """Return the last moment of each row's window."""
        del index
        return times_of(rows, EXPIRES)

    def held_back_us(self, index: int, held: HeldRows, watermark_us: int) -> int | None:
        """Return None: the windows of later results end after the watermark."""
        del index, held, watermark_us
        return None

    def right_columns(self) -> tuple[str, ...]:
        """Return that a window needs no more than its end."""
        return ()

    def columns(self, *inputs: pa.Schema) -> JoinedColumns:
        """Return the columns of the result.

        Raises:
            ConfigurationError: two would have one name (INVALID_PIPELINE).
        """
        return WindowedColumns(self, inputs)


class WindowedColumns(JoinedColumns):
    """The columns of the result of a window join: those of its rows, and then of the window."""

    def __init__(self, spec: WindowJoin, inputs: tuple[pa.Schema, ...]) -> None:
        left_only = has_left_only(spec.how)
        super().__init__(spec.sides, inputs, spec.suffix, left_only=left_only)
        self._window = spec.window
        for name in (WINDOW_START, WINDOW_END):
            if name in self.schema.names:
                raise ConfigurationError(
                    ErrorCode.INVALID_PIPELINE,
                    f"{spec.operator_id} adds a column {name!r}, and an input has one: give it "
                    "another name with map",
                )
            self.schema = self.schema.append(pa.field(name, TIME_TYPE))

    def _result(self, values: list[pa.Array | pa.ChunkedArray], rows: pa.Table) -> pa.Table:
        """Return the result; a row without event time is in no window."""
        windows = [pa.nulls(rows.num_rows, TIME_TYPE)] * 2
        if EXPIRES in rows.column_names:
            ends = times_of(rows, EXPIRES) + 1
            starts = window_starts_us(self._window, ends)
            windows = [pa.array(some).cast(TIME_TYPE) for some in (starts, ends)]
        return pa.Table.from_arrays([*values, *windows], schema=self.schema)
