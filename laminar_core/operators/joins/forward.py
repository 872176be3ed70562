"""The forward as-of join: each left row with the first right row of its key at or after its time.

A left row waits for that right row, and for event time to pass it, because a closer one may come
until then. So it needs a greatest distance: a left row leaves without partner when event time has
passed its time and the distance. A right row is dropped with its time: what it could be a partner
of has been emitted, or is late. Whether a left row has left is its mark, as in joins of pairs.

When event time advances, left rows that it has not passed before look for their partner among the
right rows that it passes now. Older ones have had none before, so their partner is the first right
row of their key. Only rows that have a partner are touched.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators.base import JsonObject, SubtaskContext
from laminar_core.operators.joins.closest import Numbered, closest, numbered
from laminar_core.operators.joins.output import in_pieces
from laminar_core.operators.joins.side import LEFT, RIGHT, EventRows, times_of
from laminar_core.operators.joins.waiting import ClosestJoin, ClosestJoiner, within
from laminar_core.protocol.types import WATERMARK_END_US
from laminar_core.state.arrangement import Picked
from laminar_core.state.keyed_rows import MISSING
from laminar_core.state.named_tables import TABLES, TableLayout, described
from laminar_core.state.rows_layout import RowsLayout, require_comparable
from laminar_core.state.runs import Bounds, Matches


@dataclass(frozen=True, slots=True)
class ForwardAsOfJoin(ClosestJoin):
    """Give each left row the first right row with equal keys that is not older."""

    def __post_init__(self) -> None:
        ClosestJoin.__post_init__(self)
        if self.distance_us is None:
            raise ConfigurationError(
                ErrorCode.INVALID_OPTION,
                f"{self.operator_id}: direction='forward' needs a max_distance, or rows without "
                "a partner would be kept for ever",
            )

    def describe(self) -> JsonObject:
        """Return keys, times and the distance: the meaning of the state."""
        none = pa.schema([])
        left = RowsLayout(self.left.keys, none, is_marked=True).table(self.left.name)
        right = RowsLayout(self.right.keys, none).table(self.right.name)
        return {
            "kind": "forward-as-of-join",
            "left": self.left.describe(),
            "right": self.right.describe(),
            "distance_us": self.distance_us,
            "how": self.how,
            TABLES: described([left, right]),
        }

    def waits_us(self, index: int) -> int:
        """Return how long after its time a row of this side waits."""
        return self.distance_us or 0 if index == LEFT else 0

    def layouts(self, *inputs: pa.Schema) -> tuple[RowsLayout, RowsLayout]:
        """Return the columns of the rows of each side that are kept."""
        return self.left.layout(inputs[LEFT], is_marked=True), self.right.layout(inputs[RIGHT])

    def tables(self, *inputs: pa.Schema) -> tuple[TableLayout, ...]:
        """Return the tables of state, by side."""
        left, right = self.layouts(*inputs)
        return left.table(self.left.name), right.table(self.right.name)

    def output_schema(self, *inputs: pa.Schema) -> pa.Schema:
        """Return the columns of the left side, then those of the right.

        Raises:
            ConfigurationError: as for all as-of joins, or left rows cannot be compared
                (UNSUPPORTED_TYPE).
        """
        schema = ClosestJoin.output_schema(self, *inputs)
        require_comparable(self.layouts(*inputs)[LEFT])
        return schema

    def open(self, context: SubtaskContext, *inputs: pa.Schema) -> "ForwardJoiner":
        """Create the running instance."""
        return ForwardJoiner(self, context, inputs)


class ForwardJoiner(ClosestJoiner):
    """One subtask: the rows of both sides whose keys are in its range of key groups."""

    def __init__(
        self, spec: ForwardAsOfJoin, context: SubtaskContext, inputs: Sequence[pa.Schema]
    ) -> None:
        super().__init__(spec, context, inputs)
        self._distance_us = spec.waits_us(LEFT)

    def on_watermark(self, watermark_us: int) -> Iterator[pa.RecordBatch]:
        """Yield left rows whose partner's time has passed, and those that will not have one.

        The state advances at once; the results are computed as they are consumed.
        """
        before_us = self._progress.watermark_us
        passed_us = self._progress.advance(watermark_us)
        if passed_us is None:
            return iter(())
        left = self._waiting[LEFT].rows
        rights = self._passing(RIGHT, passed_us)
        pairs: list[Iterator[pa.Table]] = []
        if rights.num_rows:
            pairs = self._matched(rights, before_us, passed_us)
        lonely = left.expiring(passed_us, unmarked=True)
        if watermark_us != WATERMARK_END_US:
            self._progress.expired_row_count += sum(len(picked.positions) for picked in lonely)
        left.expire(passed_us)
        emitted = [] if self._how == "inner" else lonely
        alone = (self._columns.unpaired(LEFT, picked.table()) for picked in emitted)
        return in_pieces(chain(*pairs, alone))

    def output_watermark(self, watermark_us: int) -> int:
        """Return the watermark, held back to the oldest left row that has not left."""
        reached_us = self._progress.of_times(watermark_us)
        oldest_us = self._waiting[LEFT].rows.oldest_living_us(unmarked=True)
        return reached_us if oldest_us is None else min(reached_us, oldest_us)

    def _matched(
        self, rights: pa.Table, before_us: int | None, passed_us: int
    ) -> list[Iterator[pa.Table]]:
        """Mark the left rows that have a partner among these right rows; return the results."""
        waiting = self._waiting[LEFT].rows.waiting(before_us, passed_us)
        lefts = self._together(LEFT, [picked.table() for picked in waiting])
        keys = numbered(self._keys_of(LEFT, lefts), self._keys_of(RIGHT, rights))
        times_us = self._times_of(LEFT, lefts), self._times_of(RIGHT, rights)
        # As if time ran backwards: the first row after is then the last one before.
        mine, theirs = (Numbered(n, -us) for n, us in zip(keys, times_us, strict=True))
        found = closest(mine, theirs, self._ranked(rights))
        partner = within(found.partner, *times_us, self._distance_us)
        _mark(waiting, partner != MISSING)
        met = np.flatnonzero(partner != MISSING)
        results = [self._joined(lefts.take(pa.array(met)), rights, partner[met])]
        if before_us is not None:
            first = rights.take(pa.array(found.last))
            results.append(self._older(first, before_us))
        return results

    def _older(self, first: pa.Table, before_us: int) -> Iterator[pa.Table]:
        """Mark the left rows from before that have a partner; return the results.

        ``first``: the first right row of each key.
        """
        left, right = (held.rows for held in self._waiting)
        times_us = times_of(first, self._sides[RIGHT].time)
        probing = right.arranged(EventRows(first, times_us).expiring_after(0), times_us)
        found: list[Matches] = []
        for some in left.probe(probing, self._sides[RIGHT].keys, Bounds(-self._distance_us, 0)):
            fresh = ~some.run.marks[some.found] & (some.run.times_us[some.found] < before_us)
            some.run.marks[some.found[fresh]] = True
            found.append(Matches(some.run, some.probing[fresh], some.found[fresh]))
        return (
            self._columns.paired(
                some.partners(),
                probing.rows.take(pa.array(some.probing)),
            )
            for some in found
        )


def _mark(picked: Sequence[Picked], is_met: np.ndarray) -> None:
    """Mark the rows for which the mask is true; it is of all of them, one after the other."""
    start = 0
    for one in picked:
        stop = start + len(one.positions)
        one.run.marks[one.positions[is_met[start:stop]]] = True
        start = stop
