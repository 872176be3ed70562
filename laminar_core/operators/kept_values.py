"""One value per key that expires in event time: the state of operators that update their results.

A value is gone a time to live after the event time of its last change. This depends on the event
time of the row that looks for it, not on the watermark, so it is the same after a restart. A row
behind the watermark could look for a value that memory has no more, so it is dropped as late.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import pyarrow as pa

from laminar_core.aggregates.grouping import plain_type
from laminar_core.aggregates.row_groups import Integers
from laminar_core.codec.stable_hash import require_key_type
from laminar_core.operators.base import (
    JsonObject,
    PendingSnapshot,
    Snapshot,
    StateTable,
    SubtaskContext,
)
from laminar_core.operators.columns import require_columns, require_distinct
from laminar_core.operators.joins.progress import JoinProgress
from laminar_core.operators.joins.restoring import gathered, require_same_columns
from laminar_core.operators.joins.side import EventRows
from laminar_core.operators.keyed import number, owned_key_groups, restored_key_groups
from laminar_core.operators.process.values import KeyedValues, ValueState
from laminar_core.operators.weights import as_batch
from laminar_core.operators.windows import event_times_us, require_time_column
from laminar_core.protocol.types import WATERMARK_END_US, CheckpointId
from laminar_core.state.arrangement import Arrangement
from laminar_core.state.expiry import EXPIRES
from laminar_core.state.named_tables import WEIGHT, TableLayout
from laminar_core.state.window_layout import KEY_GROUP, TIME_TYPE

NO_TIME_US = -(2**62)
"""The event time of rows whose operator does not act on it."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A value of this type per key, in a table and a column of this name.

    ``time``: the column of event time, whose values may lag ``lag_us`` behind the watermark; None:
    the operator does not act on event time. ``late_after_us``: how far behind the watermark a row
    is late.
    """

    name: str
    type: pa.DataType
    keys: tuple[str, ...]
    time: str | None = None
    ttl_us: int | None = None
    lag_us: int = 0
    late_after_us: int = 0

    @property
    def declared(self) -> ValueState:
        """Return the value as a state."""
        ttl = None if self.ttl_us is None else timedelta(microseconds=self.ttl_us)
        return ValueState(self.type, ttl)

    def layout(self, schema: pa.Schema | None) -> TableLayout:
        """Return the table; without a schema, only what a description says of it."""
        types = [
            pa.null() if schema is None else plain_type(schema.field(key).type) for key in self.keys
        ]
        columns = [*zip(self.keys, types, strict=True), (self.name, self.type)]
        if self.ttl_us is not None:
            columns.append((EXPIRES, TIME_TYPE))
        stored = pa.schema([(KEY_GROUP, pa.int32()), *columns])
        return TableLayout(self.name, stored, self.keys, "newest")

    def check(self, schema: pa.Schema) -> None:
        """Accept an input with these columns.

        Raises:
            ConfigurationError: a column is missing (WRONG_SCHEMA), cannot be a key or an event time
                (UNSUPPORTED_TYPE), or has a name that state needs (INVALID_PIPELINE).
        """
        require_columns(schema, self.keys)
        for key in self.keys:
            require_key_type(schema.field(key).type)
        require_distinct(
            [*self.keys, self.name, KEY_GROUP, EXPIRES, WEIGHT],
            "rename the key: what is stored has such a column of its own",
        )
        if self.time is not None:
            require_columns(schema, [self.time])
            require_time_column(schema, self.time)


class KeptValues:
    """The values of one subtask, which of its rows are late, and its snapshots.

    ``waiting``: rows that wait until event time has passed them, in a table of their own.
    """

    def __init__(
        self,
        kept: Kept,
        context: SubtaskContext,
        layout: TableLayout,
        waiting: tuple[TableLayout, Arrangement] | None = None,
    ) -> None:
        self.values = KeyedValues(context.operator_id, layout, kept.declared, context.backend)
        self._kept = kept
        self._context = context
        self._waiting = waiting
        self._progress = JoinProgress(context, kept.lag_us + kept.late_after_us)

    @property
    def late_row_count(self) -> int:
        """The number of rows dropped so far because they came too far behind the watermark."""
        return self._progress.late_row_count

    @property
    def expired_row_count(self) -> int:
        """The number of values dropped so far because they had not changed for long."""
        return self.values.expired_row_count

    @property
    def held_row_count(self) -> int:
        """The number of keys in memory, and of rows that wait."""
        return len(self.values) + (0 if self._waiting is None else self._waiting[1].row_count)

    def in_time(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Integers]:
        """Return the rows that are not late, and the event time of each.

        Raises:
            DataError: a row has no event time (NULL_EVENT_TIME).
        """
        if self._kept.time is None:
            return batch, np.full(len(batch), NO_TIME_US)
        times_us = event_times_us(batch, self._kept.time)
        events = EventRows(pa.Table.from_batches([batch]), times_us)
        kept = self._progress.in_time(events, self._kept.keys)
        return (batch if kept is events else as_batch(kept.rows)), kept.times_us

    def advance(self, watermark_us: int) -> int | None:
        """Advance event time; return the newest time that has passed, or None if none has.

        What has expired is dropped, unless rows wait: those whose time has passed now have to find
        it first, and then ``purge`` drops it.
        """
        passed_us = self._progress.advance(watermark_us)
        if passed_us is not None and self._waiting is None:
            self.purge(watermark_us, passed_us)
        return passed_us

    def purge(self, watermark_us: int, passed_us: int) -> None:
        """Drop what has expired, after the watermark with which event time has passed this time."""
        if watermark_us != WATERMARK_END_US:
            self.values.purge(passed_us + 1 + self._kept.late_after_us)

    def output_watermark(self, watermark_us: int) -> int:
        """Return what a watermark means for the column of event time."""
        return self._progress.of_times(watermark_us)

    # --- snapshots ------------------------------------------------------------------------------

    def pending(self, *, changes: bool) -> PendingSnapshot:
        """Pin the state, or what changed of it; the tables are built in the asynchronous phase."""
        layout, groups = self.values.layout, self._context.max_parallelism
        pinned = self.values.take_changes() if changes else self.values.pin()
        marks = {layout.name: self.values.expired_us}
        waiting = None
        if self._waiting is not None:
            name, held = self._waiting[0].name, self._waiting[1]
            waiting = name, held.take_changes() if changes else held.pin()
            marks[name] = self._progress.passed_us
        properties: JsonObject = {
            **self._progress.properties(),
            "expired_row_count": self.expired_row_count,
        }
        expired_us = {name: us for name, us in marks.items() if us is not None}

        def tables() -> Iterator[StateTable]:
            for stored in pinned.stored_tables(groups):
                yield StateTable(layout.name, stored)
            if waiting is not None:
                for rows in waiting[1].stored_tables(groups):
                    yield StateTable(waiting[0], rows)

        return lambda: Snapshot(tables(), properties, expired_us=expired_us)

    def merge_tables(
        self, name: str, tables: Iterable[pa.Table], expired_us: int | None
    ) -> Iterable[pa.Table]:
        """Put the tables of this name together, without what has expired."""
        yield self._table(name).merge(tables, expired_us)

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        """Restore from the snapshots of all subtasks whose key groups overlap this one's.

        Raises:
            IncompatibleStateError: the state belongs to other columns (OPERATORS_CHANGED).
        """
        self._progress.restore(snapshots)
        owned = owned_key_groups(self._context)
        ranges = restored_key_groups(snapshots, self._context)
        for snapshot, groups in zip(snapshots, ranges, strict=True):
            if groups.start in owned:
                count = number(snapshot.properties["expired_row_count"])
                self.values.expired_row_count += count
        found = gathered(snapshots, self._context)
        for name, tables in found.items():
            require_same_columns(tables, self._table(name).schema, self._context.operator_id)
        layout = self.values.layout
        for table in found.get(layout.name, ()):
            self.values.restore(table.drop_columns([KEY_GROUP]))
        self.values.restore_mark([one.expired_us.get(layout.name) for one in snapshots])
        if self._waiting is not None:
            waiting, held = self._waiting
            rows = waiting.merge(found.get(waiting.name, ()), None)
            held.restore(rows, rows.column(EXPIRES).cast(pa.int64()).to_numpy())

    def _table(self, name: str) -> TableLayout:
        if self._waiting is not None and name == self._waiting[0].name:
            return self._waiting[0]
        assert name == self.values.layout.name, f"{name} is unknown"
        return self.values.layout


class KeepsValues:
    """A subtask whose whole state is such values: its numbers and its snapshots."""

    _state: KeptValues

    @property
    def late_row_count(self) -> int:
        """The number of rows dropped so far because they came too far behind the watermark."""
        return self._state.late_row_count

    @property
    def expired_row_count(self) -> int:
        """The number of keys that were forgotten so far."""
        return self._state.expired_row_count

    @property
    def held_row_count(self) -> int:
        """The number of keys in memory, and of rows that wait."""
        return self._state.held_row_count

    def snapshot(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        """Pin the state; its tables are built in the asynchronous phase."""
        del checkpoint_id
        return self._state.pending(changes=False)

    def snapshot_changes(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        """Pin what changed since the last call."""
        del checkpoint_id
        return self._state.pending(changes=True)

    def merge_tables(
        self, name: str, tables: Iterable[pa.Table], expired_us: int | None
    ) -> Iterable[pa.Table]:
        """Keep the newest value of each key, and the rows that wait."""
        return self._state.merge_tables(name, tables, expired_us)

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        """Restore from the snapshots of all subtasks whose key groups overlap this one's."""
        self._state.restore(snapshots)
