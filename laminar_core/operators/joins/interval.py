"""The interval join: rows of two streams with equal keys whose times are close enough.

The upper bound can be a column of the left side, so that each of its rows is kept for a time of its
own: an auction as long as it is open.

The watermark behind a join is held back to the oldest row that is still kept, because a pair is as
old as its older row. Behind bounds of a column that could be for long, so there only the rows count
whose times are event time in the result.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from laminar_core.aggregates.row_groups import Integers
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators.base import JsonObject
from laminar_core.operators.joins.kinds import has_left_only, require_how, sides_in_every_row
from laminar_core.operators.joins.pairing import PairJoin
from laminar_core.operators.joins.side import LEFT, RIGHT, EventRows, times_of
from laminar_core.operators.joins.subtask import HeldRows
from laminar_core.state.runs import Bounds, Matches, Run
from laminar_core.units import US_MAX


@dataclass(frozen=True, slots=True)
class IntervalJoin(PairJoin):
    """Pair rows with equal keys, if right time less left time is in [``low_us``, ``high_us``].

    ``high_us`` is None: the right time is at most the value of the column ``left.until``.
    """

    low_us: int
    high_us: int | None

    def __post_init__(self) -> None:
        require_how(self.how, self.operator_id)
        assert (self.high_us is None) == (self.left.until is not None), "one upper bound"
        if self.high_us is not None and self.low_us > self.high_us:
            raise ConfigurationError(
                ErrorCode.INVALID_OPTION,
                f"{self.operator_id}: no time is within these bounds: exchange them",
            )

    def describe(self) -> JsonObject:
        """Return keys, times and bounds: the meaning of the state."""
        return {
            "kind": "interval-join",
            "left": self.left.describe(),
            "right": self.right.describe(),
            "bounds_us": [self.low_us, self.high_us],
            "how": self.how,
            **self.described_tables(),
        }

    def timed_sides(self) -> Sequence[int]:
        """Return the sides whose times are event time in the result.

        Such a side is in every row. With an upper bound of each row, a left row may be much older
        than its pair: the time of the right row counts, if both are in every row.
        """
        sides = sides_in_every_row(self.how)
        return (RIGHT,) if sides == (LEFT, RIGHT) and self.left.until is not None else sides

    def kept_us(self, index: int) -> int | None:
        """Return how long after its time a row can get a partner, or is in time itself.

        None: each row has a time of its own.
        """
        if index == RIGHT:
            return max(0, -self.low_us)
        return None if self.high_us is None else max(0, self.high_us)

    def expires_us(self, index: int, events: EventRows) -> Integers:
        """Return the last moment at which a partner of each row may come, or the row itself."""
        kept_us = self.kept_us(index)
        if kept_us is not None:
            return events.times_us + kept_us
        return np.maximum(events.times_us, self._until_us(events.rows))

    def bounds_from(self, index: int) -> Bounds:
        """Return the times of partners of a row of this side."""
        high_us = US_MAX if self.high_us is None else self.high_us
        return Bounds(self.low_us, high_us) if index == LEFT else Bounds(-high_us, -self.low_us)

    def are_partners(self, index: int, run: Run, found: Matches) -> np.ndarray | None:
        """Return which pairs fit that have equal keys and times within bounds; None: all."""
        if self.left.until is None:
            return None
        names = [self.left.until]
        if index == LEFT:
            until = run.rows.select(names).take(pa.array(found.probing))
            return found.run.times_us[found.found] <= self._until_us(until)
        return run.times_us[found.probing] <= self._until_us(found.partners(names))

    def found_by(self, index: int, rows: pa.Table) -> Integers:
        """Return the time of each row."""
        return times_of(rows, self.sides[index].time)

    def held_back_us(self, index: int, held: HeldRows, watermark_us: int) -> int | None:
        """Return the time of the oldest row that is kept; None: no result has it.

        What has expired and is still in memory does not count.
        """
        if self.left.until is not None or has_left_only(self.how):
            if index not in self.timed_sides():
                return None
            return held.rows.oldest_living_us(unmarked=has_left_only(self.how))
        oldest_us, kept_us = held.rows.oldest_us, self.kept_us(index)
        assert kept_us is not None, "a bound for all rows"
        return None if oldest_us is None else max(oldest_us, watermark_us - kept_us)

    def _until_us(self, rows: pa.Table) -> Integers:
        assert self.left.until is not None
        return times_of(rows, self.left.until)
