"""The first row of each key: of those that come, or of those in the order of event time.

In the order of arrival, a row is passed on at once if its key is new: that is ``DISTINCT``. In the
order of event time, a row of a new key waits until event time has passed it, because an earlier one
may still come; of several at one time the least is taken, compared by all of its columns.

A key can be forgotten again, so long after the row that was passed. Rows of it that are less far
apart are dropped, and the next one is a first row again.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from laminar_core.aggregates.grouping import plain_column, plain_type
from laminar_core.aggregates.row_groups import Integers
from laminar_core.aggregates.row_order import total_order
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators.base import (
    JsonObject,
    OutputMode,
    SubtaskContext,
)
from laminar_core.operators.joins.output import in_pieces
from laminar_core.operators.joins.side import EventRows
from laminar_core.operators.kept_values import KeepsValues, Kept, KeptValues
from laminar_core.operators.process.keys import Keys
from laminar_core.state.arrangement import Arrangement
from laminar_core.state.expiry import EXPIRES
from laminar_core.state.named_tables import TABLES, TableLayout, described
from laminar_core.state.rescaling import Redistribution
from laminar_core.state.rows_layout import RowsLayout
from laminar_core.state.window_layout import KEY_GROUP, TIME_TYPE

SEEN, WAITING = "seen", "waiting"
"""The tables of state: the keys with the time of the row that was passed, and rows that wait."""

_NEVER = np.iinfo(np.int64).min
_FOR_EVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class FirstRows:
    """Pass the first row of each key on, and drop the others.

    ``time``: the column of event time, which may lag ``lag_us`` behind the watermark; None: keys
    are kept for ever, and no row is late. ``within_us``: a row that is later than the one that was
    passed by more is a first row again. ``waits``: first in the order of event time.
    """

    redistribution: ClassVar[Redistribution] = "keyed"
    accepts: ClassVar[frozenset[OutputMode]] = frozenset({"append"})
    operator_id: str
    keys: tuple[str, ...]
    time: str | None = None
    within_us: int | None = None
    waits: bool = False
    lag_us: int = 0

    @property
    def needs_event_time(self) -> bool:
        """Whether it acts on event time."""
        return self.time is not None

    @property
    def kept(self) -> Kept:
        """Return what is kept of each key: the time of the row that was passed."""
        value_type = pa.bool_() if self.time is None else TIME_TYPE
        return Kept(SEEN, value_type, self.keys, self.time, self.within_us, self.lag_us)

    def describe(self) -> JsonObject:
        """Return keys and time. How long a key is kept may change from now on."""
        layouts = [self.kept.layout(None)]
        if self.waits:
            layouts.append(RowsLayout(self.keys, pa.schema([])).table(WAITING))
        return {
            "kind": "first-rows",
            "keys": list(self.keys),
            "time": self.time,
            "waits": self.waits,
            TABLES: described(layouts),
        }

    def output_schema(self, input_schema: pa.Schema) -> pa.Schema:
        """Return the input's schema; without dictionaries if rows wait.

        Raises:
            ConfigurationError: a column is missing (WRONG_SCHEMA), cannot be a key or an event time
                (UNSUPPORTED_TYPE), or has a name that state needs (INVALID_PIPELINE).
        """
        self.kept.check(input_schema)
        if not self.waits:
            return input_schema
        for name in input_schema.names:
            if name in (KEY_GROUP, EXPIRES):
                raise ConfigurationError(
                    ErrorCode.INVALID_PIPELINE,
                    f"{self.operator_id} keeps a column {name!r} of its own, and its input has one:"
                    " give it another name with map",
                )
        return pa.schema([(field.name, plain_type(field.type)) for field in input_schema])

    def waiting_layout(self, input_schema: pa.Schema) -> RowsLayout:
        """Return the columns of rows that wait: keys first, and their time as their expiry."""
        plain = self.output_schema(input_schema)
        names = [*self.keys, *(name for name in plain.names if name not in self.keys)]
        schema = pa.schema([plain.field(name) for name in names])
        return RowsLayout(self.keys, schema.append(pa.field(EXPIRES, TIME_TYPE)))

    def tables(self, input_schema: pa.Schema) -> tuple[TableLayout, ...]:
        """Return the tables of state."""
        seen = self.kept.layout(input_schema)
        return (seen, self.waiting_layout(input_schema).table(WAITING)) if self.waits else (seen,)

    def state_tables(self, input_schema: pa.Schema) -> Mapping[str, pa.Schema]:
        """Return the columns of each table."""
        return {table.name: table.schema for table in self.tables(input_schema)}

    def open(self, context: SubtaskContext, input_schema: pa.Schema) -> "FirstRowsFinder":
        """Create the running instance."""
        return FirstRowsFinder(self, context, input_schema)


class FirstRowsFinder(KeepsValues):
    """One subtask: the keys in its range of key groups that a row was passed of."""

    def __init__(self, spec: FirstRows, context: SubtaskContext, input_schema: pa.Schema) -> None:
        self._spec = spec
        self._names = spec.output_schema(input_schema).names
        self._waiting: Arrangement | None = None
        if spec.waits:
            layout = spec.waiting_layout(input_schema)
            self._waiting = Arrangement(layout, context.backend.shelf(layout.schema))
        seen, *waiting = spec.tables(input_schema)
        self._state = KeptValues(
            spec.kept,
            context,
            seen,
            None if self._waiting is None else (waiting[0], self._waiting),
        )

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the rows of new keys, or let them wait.

        Raises:
            DataError: a row has no event time (NULL_EVENT_TIME).
        """
        batch, times_us = self._state.in_time(batch)
        if not batch.num_rows:
            return
        if self._waiting is not None:
            keys, until_us = self._known(batch, times_us)
            is_new = times_us > until_us[keys.of_row]
            table = pa.Table.from_batches([batch]).filter(pa.array(is_new))
            rows = pa.table({name: plain_column(table.column(name)) for name in self._names})
            events = EventRows(rows, times_us[is_new])
            expiring = events.expiring_after(0).select(self._waiting.layout.schema.names)
            self._waiting.add(self._waiting.arranged(expiring, events.times_us))
            return
        order = np.argsort(times_us, kind="stable")
        passed = np.sort(self._passed(batch, times_us, order))
        if len(passed):
            yield batch if len(passed) == batch.num_rows else batch.take(pa.array(passed))

    def on_watermark(self, watermark_us: int) -> Iterator[pa.RecordBatch]:
        """Yield the first rows among those whose time has passed.

        The state advances at once; the results are made as they are consumed.
        """
        waiting, passed_us = self._waiting, self._state.advance(watermark_us)
        if waiting is None or passed_us is None:
            return iter(())
        picked = [one.table() for one in waiting.expiring(passed_us)]
        waiting.expire(passed_us)
        chosen = [self._chosen(pa.concat_tables(picked))] if picked else []
        self._state.purge(watermark_us, passed_us)
        return in_pieces(chosen)

    def _chosen(self, waited: pa.Table) -> pa.Table:
        """Return the first rows among those that waited, in the order of time; note their keys."""
        (batch,) = waited.combine_chunks().to_batches()
        times_us = batch.column(EXPIRES).cast(pa.int64()).to_numpy()
        rows = pa.Table.from_batches([batch]).select(self._names)
        return rows.take(pa.array(self._passed(batch, times_us, total_order([times_us], rows))))

    def output_watermark(self, watermark_us: int) -> int:
        """Return the watermark of the time column: no row that is older waits."""
        return self._state.output_watermark(watermark_us) if self._spec.waits else watermark_us

    def _known(self, batch: pa.RecordBatch, times_us: Integers) -> tuple[Keys, Integers]:
        """Return the keys of rows, and until when later rows of each are dropped."""
        keys = Keys.of_rows(batch, self._spec.keys, times_us)
        oldest_us = keys.times_us.copy()
        np.minimum.at(oldest_us, keys.of_row, times_us)
        passed_us = self._state.values.get(Keys(keys.table, keys.of_row, oldest_us))
        known = passed_us.is_valid().to_numpy(zero_copy_only=False)
        if self._spec.within_us is None:
            return keys, np.where(known, _FOR_EVER, _NEVER)
        times_us = passed_us.cast(pa.int64()).fill_null(0).to_numpy()
        return keys, np.where(known, times_us + self._spec.within_us, _NEVER)

    def _passed(self, batch: pa.RecordBatch, times_us: Integers, order: Integers) -> Integers:
        """Return the positions of first rows, in ``order``, which follows time; note their keys."""
        keys, until_us = self._known(batch, times_us)
        within_us = _FOR_EVER if self._spec.within_us is None else self._spec.within_us
        steps = list(_first_rows(keys.of_row[order], times_us[order], until_us, within_us))
        for chosen in steps:  # Of each key at most one, and later ones replace earlier ones.
            rows = order[chosen]
            noted = keys.take(keys.of_row[rows])
            at = Keys(noted.table, noted.of_row, times_us[rows])
            self._state.values.put(at, self._noted(times_us[rows]))
        return order[np.sort(np.concatenate([np.empty(0, np.int64), *steps]))]

    def _noted(self, times_us: Integers) -> pa.Array:
        if self._spec.time is None:
            return pa.repeat(pa.scalar(value=True), len(times_us))
        return pa.array(times_us).cast(TIME_TYPE)


def _first_rows(
    numbers: Integers, times_us: Integers, until_us: Integers, within_us: int
) -> Iterator[Integers]:
    """Yield the positions of first rows: of each key the first one, then the next ones.

    Shapes: ``numbers`` has the key of each row, and ``times_us`` its time, ascending. ``until_us``
    has a time for each key; its rows up to that are none.
    """
    order = np.argsort(numbers, kind="stable")
    moments = np.unique(times_us)
    span = len(moments) + 1
    rank = np.searchsorted(moments, times_us)
    places = (numbers * span + rank)[order]  # Ascending: by key, then by time.
    ends = np.searchsorted(places, (np.arange(len(until_us)) + 1) * span)
    key = np.arange(len(until_us))
    while len(key):
        later = np.searchsorted(moments, until_us[key], "right")
        at = np.searchsorted(places, key * span + later)
        is_there = at < ends[key]
        key, at = key[is_there], at[is_there]
        if len(at):
            yield order[at]
        after_us = times_us[order[at]]
        until_us[key] = np.where(after_us > _FOR_EVER - within_us, _FOR_EVER, after_us + within_us)
