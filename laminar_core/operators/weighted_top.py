"""The first rows of each key in some order, of rows that come and go.

A row that has fallen out of the first ``count`` comes back when one of them goes. So all rows of a
key that are there are kept, with their weights. For each batch, the rows of its keys are ranked
before and after it, and the difference is emitted.

A row can go before it has come: its weight is negative then, and it has no place until it is there.
Of a row with the weight 2, two are ranked.

Rows can expire: a time to live after their own event time they leave the ranking, are taken back,
and others take their places. A row that goes expires with the row that it takes away. One that is
behind the watermark by more than the time to live is dropped as late.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from laminar_core.aggregates.grouping import plain_column, plain_type
from laminar_core.aggregates.row_groups import Integers, as_array
from laminar_core.aggregates.row_order import total_order
from laminar_core.codec.canonical import canonical
from laminar_core.codec.stable_hash import hash_columns, require_key_type
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators.base import JsonObject, OutputMode, SubtaskContext
from laminar_core.operators.columns import require_columns, require_distinct
from laminar_core.operators.joins.output import in_pieces
from laminar_core.operators.joins.progress import JoinProgress
from laminar_core.operators.joins.rows_of_keys import NUMBER, RowsOfKeys, rows_of_keys
from laminar_core.operators.joins.side import RESERVED, EventRows
from laminar_core.operators.joins.subtask import HeldRows, JoinSubtask
from laminar_core.operators.process.keys import Keys
from laminar_core.operators.sort_keys import SortKey
from laminar_core.operators.top_rows import require_count
from laminar_core.operators.weights import (
    WEIGHT,
    WEIGHT_FIELD,
    as_batch,
    unweighted_schema,
    weighted_schema,
    weights_of,
)
from laminar_core.operators.windows import event_times_us, require_time_column
from laminar_core.protocol.types import WATERMARK_END_US
from laminar_core.state.expiry import EXPIRES
from laminar_core.state.named_tables import TABLES, added_up, described
from laminar_core.state.rescaling import Redistribution
from laminar_core.state.rows_layout import RowsLayout
from laminar_core.state.window_layout import TIME_TYPE

ROWS = "rows"
"""The table of state: all rows that are there."""


@dataclass(frozen=True, slots=True)
class WeightedTop:
    """Rank the rows of each key in the order ``by``, and emit what changes in the first ``count``.

    ``rank``: the name of a column with the place of a row, from 1. ``ttl_us``: how long after its
    event time a row is kept; ``time`` is the column of that time, which may lag ``lag_us`` behind
    the watermark. None: rows are kept until they go.
    """

    redistribution: ClassVar[Redistribution] = "keyed"
    output_mode: ClassVar[OutputMode] = "retract"
    accepts: ClassVar[frozenset[OutputMode]] = frozenset({"retract"})
    operator_id: str
    keys: tuple[str, ...]
    count: int
    by: tuple[SortKey, ...]
    rank: str | None = None
    time: str | None = None
    ttl_us: int | None = None
    lag_us: int = 0

    def __post_init__(self) -> None:
        require_count(self.operator_id, self.count, self.by)

    @property
    def needs_event_time(self) -> bool:
        """Whether rows expire."""
        return self.ttl_us is not None

    @property
    def updates_by(self) -> tuple[str, ...]:
        """The columns that identify a row; none if there are several of a key without a place."""
        if self.count == 1:
            return self.keys
        return () if self.rank is None else (*self.keys, self.rank)

    def describe(self) -> JsonObject:
        """Return keys, number, order and time to live: the meaning of the state."""
        table = RowsLayout(self.keys, pa.schema([WEIGHT_FIELD])).table(ROWS)
        return {
            "kind": "weighted-top",
            "keys": list(self.keys),
            "count": self.count,
            "by": [str(key) for key in self.by],
            "rank": self.rank,
            "time": self.time,
            "ttl_us": self.ttl_us,
            TABLES: described([table]),
        }

    def output_schema(self, input_schema: pa.Schema) -> pa.Schema:
        """Return the input's columns without dictionaries, the rank, and the weight.

        Raises:
            ConfigurationError: a column is missing (WRONG_SCHEMA), cannot be a key or an event time
                (UNSUPPORTED_TYPE), or has a name that is needed here (INVALID_PIPELINE).
        """
        rows = unweighted_schema(input_schema)
        require_columns(rows, [*self.keys, *(key.column for key in self.by)])
        for key in self.keys:
            require_key_type(rows.field(key).type)
        if self.time is not None:
            require_columns(rows, [self.time])
            require_time_column(rows, self.time)
        if all(name in self.keys for name in rows.names):
            raise ConfigurationError(
                ErrorCode.INVALID_PIPELINE,
                f"{self.operator_id} has no column besides its keys, so there is nothing to order",
            )
        require_distinct(
            [*rows.names, *RESERVED, NUMBER],
            "rename it: what is stored has such a column of its own",
        )
        ranked = [] if self.rank is None else [pa.field(self.rank, pa.int32())]
        schema = pa.schema([*((f.name, plain_type(f.type)) for f in rows), *ranked])
        require_distinct(schema.names, "give the rank another name")
        return weighted_schema(schema)

    def layout(self, input_schema: pa.Schema) -> RowsLayout:
        """Return the columns of the rows that are kept: keys first."""
        rows = unweighted_schema(input_schema)
        names = [*self.keys, *(name for name in rows.names if name not in self.keys)]
        kept = pa.schema([(name, plain_type(rows.field(name).type)) for name in names])
        if self.ttl_us is not None:
            kept = kept.append(pa.field(EXPIRES, TIME_TYPE))
        return RowsLayout(self.keys, kept.append(WEIGHT_FIELD))

    def state_tables(self, input_schema: pa.Schema) -> Mapping[str, pa.Schema]:
        """Return key group, columns of the rows, when they expire, and their weight."""
        return {ROWS: self.layout(input_schema).stored_schema}

    def open(self, context: SubtaskContext, input_schema: pa.Schema) -> "WeightedRanker":
        """Create the running instance."""
        return WeightedRanker(self, context, input_schema)


class _Ranking(NamedTuple):
    """How many of each row are among the first of its key, and the place of the first of these.

    Shapes: one number per row, in the order of the ranking. Places are from 0.
    """

    counts: Integers
    places: Integers

    @classmethod
    def of(cls, weights: Integers, numbers: Integers, count: int) -> "_Ranking":
        """Rank rows that are in the order of their key's number, and then in that of the key."""
        there = np.maximum(weights, 0)
        before = np.cumsum(there) - there
        begins = np.flatnonzero(np.diff(numbers, prepend=-1))
        sizes = np.diff(np.append(begins, len(numbers)))
        places = before - np.repeat(before[begins], sizes)
        return cls(np.clip(count - places, 0, there), places)

    def copies(self) -> tuple[Integers, Integers]:
        """Return each row as often as it is among the first: its position, and its place."""
        positions = np.repeat(np.arange(len(self.counts)), self.counts)
        first = np.cumsum(self.counts) - self.counts
        return positions, self.places[positions] + np.arange(len(positions)) - first[positions]


class WeightedRanker(JoinSubtask):
    """One subtask: the rows whose keys are in its range of key groups."""

    def __init__(self, spec: WeightedTop, context: SubtaskContext, input_schema: pa.Schema) -> None:
        self._spec = spec
        self._schema = spec.output_schema(input_schema)
        layout = spec.layout(input_schema)
        self._held = HeldRows(ROWS, layout, _found_by, context.backend)
        names = [name for name in layout.schema.names if name != WEIGHT]
        self._names = [name for name in input_schema.names if name != WEIGHT]
        """The columns of rows, in the order of the input."""
        self._identity = names
        """Rows that are equal in these columns are one row with a weight."""
        super().__init__(context, JoinProgress(context, spec.lag_us), [self._held])

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Keep the rows, or take them away; yield what this changes in the first of their keys.

        Raises:
            DataError: rows expire, and one has no event time (NULL_EVENT_TIME).
        """
        rows = self._read(batch)
        if not rows.num_rows:
            return
        keys = Keys.of_rows(as_batch(rows), self._spec.keys, _zeros(rows))
        held = self._held.rows
        changes: list[pa.Table] = []
        for first, stop in self._portions(keys):
            mine = np.flatnonzero((keys.of_row >= first) & (keys.of_row < stop))
            fresh = RowsOfKeys(rows.take(pa.array(mine)), keys.of_row[mine] - first)
            there = self._rows_of(keys.take(np.arange(first, stop)), self._progress.passed_us)
            changes.append(self._changed_by(there, fresh))
        held.add(held.arranged(rows, _found_by(rows)))
        yield from in_pieces(changes)

    def on_watermark(self, watermark_us: int) -> Iterator[pa.RecordBatch]:
        """Yield what changes because rows have expired.

        At the end of the input nothing does: what is there then is the result.
        """
        if self._spec.ttl_us is None or watermark_us == WATERMARK_END_US:
            return iter(())
        before_us, passed_us = self._progress.passed_us, self._progress.advance(watermark_us)
        if passed_us is None:
            return iter(())
        held = self._held.rows
        gone = [picked.table() for picked in held.expiring(passed_us)]
        changes: list[pa.Table] = []
        if gone:
            rows = pa.concat_tables(gone)
            weights: Integers = np.maximum(weights_of(added_up(rows.combine_chunks())), 0)
            self._progress.expired_row_count += int(weights.sum())
            keys = Keys.of_rows(as_batch(rows), self._spec.keys, _zeros(rows))
            for first, stop in self._portions(keys):
                there = self._rows_of(keys.take(np.arange(first, stop)), before_us)
                stays = _found_by(there.table) > passed_us
                weights = np.where(stays, there.weights, 0)
                changes.append(self._difference(there, there.weights, weights))
        held.expire(passed_us)
        return in_pieces(changes)

    def output_watermark(self, watermark_us: int) -> int:
        """Return the watermark as it is: the result has no event time, as old rows go any time."""
        return watermark_us

    # --- rows -----------------------------------------------------------------------------------

    def _read(self, batch: pa.RecordBatch) -> pa.Table:
        """Return the rows that are in time, each once with its weight, as they are kept."""
        columns = {
            name: canonical(as_array(plain_column(pa.chunked_array([batch.column(name)]))))
            for name in self._names
        }
        rows = pa.table(columns).append_column(WEIGHT_FIELD, batch.column(WEIGHT))
        if self._spec.ttl_us is not None:
            assert self._spec.time is not None, "what expires has a time"
            expires_us = event_times_us(batch, self._spec.time) + self._spec.ttl_us
            events = self._progress.in_time(EventRows(rows, expires_us), self._spec.keys)
            rows = events.expiring_after(0)
        schema = self._held.rows.layout.schema
        return added_up(rows.select(schema.names).combine_chunks()).cast(schema)

    def _portions(self, keys: Keys) -> Iterator[tuple[int, int]]:
        """Yield ranges of keys that have so few rows together that they fit into memory."""
        first, table = 0, as_batch(keys.table)
        while first < len(keys):
            rest = table.slice(first)
            stop = first + self._held.rows.rows_at_once(rest, self._spec.keys)
            yield first, stop
            first = stop

    def _rows_of(self, keys: Keys, passed_us: int | None) -> RowsOfKeys:
        return rows_of_keys(self._held.rows, keys, passed_us, null_is_key=True)

    # --- what changes ---------------------------------------------------------------------------

    def _changed_by(self, there: RowsOfKeys, fresh: RowsOfKeys) -> pa.Table:
        """Return what changes if ``fresh`` is added to what is there."""
        weights, more = there.weights, fresh.weights
        known = self._same_rows(there.table, fresh.table)
        is_new = known < 0
        after = weights.copy()
        after[known[~is_new]] += more[~is_new]
        table = pa.concat_tables([there.table, fresh.table.filter(pa.array(is_new))])
        both = RowsOfKeys(table, np.append(there.numbers, fresh.numbers[is_new]))
        none = np.zeros(int(is_new.sum()), np.int64)
        return self._difference(both, np.append(weights, none), np.append(after, more[is_new]))

    def _same_rows(self, there: pa.Table, fresh: pa.Table) -> Integers:
        """Return for each fresh row the position of the equal one that is there, or -1.

        Only those of equal hashes are compared, because there may be many more rows than come.
        """
        names = self._identity
        hashes, wanted = (
            hash_columns([as_array(rows.column(name)) for name in names], rows.num_rows)
            for rows in (there, fresh)
        )
        wanted = np.sort(wanted)
        place = np.minimum(np.searchsorted(wanted, hashes), len(wanted) - 1)
        near = np.flatnonzero(wanted[place] == hashes)
        both = pa.concat_tables([there.select(names).take(pa.array(near)), fresh.select(names)])
        same = Keys.of_rows(as_batch(both), names, _zeros(both)).of_row
        known = np.full(len(both), -1, np.int64)
        known[same[: len(near)]] = near
        return known[same[len(near) :]]

    def _difference(self, rows: RowsOfKeys, before: Integers, after: Integers) -> pa.Table:
        """Return what changes if rows that were there so often are there as often as after."""
        spec = self._spec
        plain = rows.table.select([name for name in self._names if name not in spec.keys])
        by = [key for key in spec.by if key.column not in spec.keys]
        ranks = [rows.numbers, *(rank for key in by for rank in key.ranks(plain))]
        order = total_order(ranks, plain)
        numbers = rows.numbers[order]
        was, now = (_Ranking.of(w[order], numbers, spec.count) for w in (before, after))
        if spec.rank is None:
            weights = now.counts - was.counts
            chosen = np.flatnonzero(weights)
            return self._result(rows, order[chosen], weights[chosen])
        old, new = (pos * spec.count + place for pos, place in (was.copies(), now.copies()))
        gone = np.setdiff1d(old, new, assume_unique=True)
        come = np.setdiff1d(new, old, assume_unique=True)
        positions, places = np.divmod(np.append(gone, come), spec.count)
        weights = np.repeat(np.array([-1, 1], np.int64), [len(gone), len(come)])
        return self._result(rows, order[positions], weights, places + 1)

    def _result(
        self, rows: RowsOfKeys, chosen: Integers, weights: Integers, places: Integers | None = None
    ) -> pa.Table:
        some = rows.table.select(self._names).take(pa.array(chosen))
        columns = [as_array(column) for column in some.columns]
        if places is not None:
            columns.append(pa.array(places.astype(np.int32)))
        columns.append(pa.array(weights.astype(np.int32)))
        return pa.Table.from_arrays(columns, schema=self._schema)


def _found_by(rows: pa.Table) -> Integers:
    """Return the time by which rows are found: they are not, so when they expire."""
    if EXPIRES not in rows.column_names:
        return _zeros(rows)
    return rows.column(EXPIRES).cast(pa.int64()).to_numpy()


def _zeros(rows: pa.Table) -> Integers:
    return np.zeros(len(rows), np.int64)
