"""Session windows in two operators: combine in every subtask, merge in the key's owner.

A session is a set of rows of one key, in which each is at most the gap later than the one before.
``PartialSessions`` reduces each batch to partial sessions before the keyed exchange. ``Sessions``
owns the keys, keeps the state, and emits a session when event time has passed its end.

A row is late for sessions when the watermark has passed its own time: the session that it belongs
to may have been emitted, and a second one would overlap it. Windows need not be so strict, because
their ends do not depend on rows. The merging side decides that, but it gets partial sessions, and
cannot take one apart. Its watermark is never ahead of a sender's, unless the sender was idle. So
rows that are behind the watermark of the sender, or come before its first one, are combined only
with rows of the same time.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from laminar_core.aggregates.accumulators import (
    Accumulator,
    Aggregate,
    accumulate,
    accumulators_of,
    finish,
    require_known_versions,
    with_versions,
)
from laminar_core.aggregates.grouping import plain_column
from laminar_core.aggregates.row_groups import Integers
from laminar_core.errors import ErrorCode, IncompatibleStateError
from laminar_core.operators.aggregation import OUTPUT_ROWS_MAX, WINDOW_END
from laminar_core.operators.base import (
    JsonObject,
    OutputMode,
    PendingSnapshot,
    Snapshot,
    StateTable,
    SubtaskContext,
)
from laminar_core.operators.columns import require_columns, require_distinct
from laminar_core.operators.early_results import EmittedResults, are_due
from laminar_core.operators.keyed import (
    key_group_properties,
    number,
    owned_key_groups,
    restored_key_groups,
)
from laminar_core.operators.mapping import change_back_or_reset
from laminar_core.operators.partial_results import (
    combined_schema,
    partial_schema,
    result_schema,
)
from laminar_core.operators.progress import Progress, least_watermark_us, progress_properties
from laminar_core.operators.stateless import StatelessSubtask
from laminar_core.operators.weights import unweighted_schema, weighted_schema
from laminar_core.operators.windows import event_times_us, require_time_column
from laminar_core.protocol.types import CheckpointId
from laminar_core.state.changed_keys import ChangedKeys
from laminar_core.state.expiry import EXPIRES
from laminar_core.state.named_tables import TABLES, TableLayout, described
from laminar_core.state.rescaling import Redistribution
from laminar_core.state.session_rows import by_key_and_time, key_codes, times_of
from laminar_core.state.session_state import (
    EMITTED,
    PinnedSessions,
    SessionLayout,
    SessionState,
    row_count_of,
)
from laminar_core.state.window_layout import TIME_TYPE, WINDOW_START
from laminar_core.state.window_state import rows_of_key_groups

SESSIONS = "sessions"
"""The name of the table of state."""

_NUMBER = "session number"
_BOUNDS = (pa.field(WINDOW_START, TIME_TYPE), pa.field(EXPIRES, TIME_TYPE))


@dataclass(frozen=True, slots=True)
class PartialSessions:
    """Reduce every batch to partial sessions; stateless.

    Output: the keys (plain values), ``window_start``, ``_expires`` (the last time plus the gap),
    the accumulators, ``count(*)`` among them.
    """

    needs_event_time: ClassVar[bool] = True
    operator_id: str
    keys: tuple[str, ...]
    time_column: str
    gap_us: int
    aggregates: tuple[Aggregate, ...]
    time_lag_us: int = 0
    """How far ``time_column`` may lag behind the watermark; the merging side gets it that much
    later.
    """

    def describe(self) -> JsonObject:
        """Return keys, time, gap and aggregates.

        The meaning of rows in flight to the merging side.
        """
        return {
            "kind": "partial-sessions",
            "keys": list(self.keys),
            "time_column": self.time_column,
            "gap_us": self.gap_us,
            "aggregates": [dict(aggregate.describe()) for aggregate in self.aggregates],
        }

    @property
    def accumulators(self) -> tuple[Accumulator, ...]:
        """The columns of state."""
        return accumulators_of(self.aggregates)

    def output_schema(self, input_schema: pa.Schema) -> pa.Schema:
        """Return keys, ``window_start``, ``_expires``, accumulators.

        Raises:
            ConfigurationError: a column is missing (WRONG_SCHEMA) or of a type that cannot be a
                key, an event time or aggregated so (UNSUPPORTED_TYPE), or a key is called like
                another column of state (INVALID_PIPELINE).
        """
        require_columns(input_schema, [self.time_column])
        require_time_column(input_schema, self.time_column)
        require_distinct([EMITTED, *self.keys], "rename the key column")
        return combined_schema(input_schema, self.keys, self.accumulators, _BOUNDS)

    def open(self, context: SubtaskContext, input_schema: pa.Schema) -> "SessionCombiner":
        """Create the running instance."""
        del context
        return SessionCombiner(self, self.output_schema(input_schema))


class SessionCombiner(StatelessSubtask):
    """The running instance: it combines rows that are in time."""

    def __init__(self, spec: PartialSessions, schema: pa.Schema) -> None:
        super().__init__(self._combine)
        self._spec = spec
        self._schema = schema
        self._watermark_us: int | None = None

    def on_watermark(self, watermark_us: int) -> Iterable[pa.RecordBatch]:
        """Note which rows may be late from now on; yield nothing."""
        self._watermark_us = self.output_watermark(watermark_us)
        return ()

    def output_watermark(self, watermark_us: int) -> int:
        """Return what is certain of the time column."""
        return watermark_us - self._spec.time_lag_us

    def _combine(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Reduce one batch.

        Raises:
            DataError: a row has no usable event time, or an integer sum leaves 64 bits.
        """
        spec, rows = self._spec, pa.Table.from_batches([batch])
        times = event_times_us(batch, spec.time_column)
        codes = key_codes([rows.column(key) for key in spec.keys], rows.num_rows)
        order = by_key_and_time(codes, times)
        firsts = np.flatnonzero(self._begins(codes[order], times[order]))
        lasts = np.append(firsts[1:], len(order)) - 1
        numbers = np.empty(len(order), np.int32)
        numbers[order] = np.repeat(np.arange(len(firsts), dtype=np.int32), lasts - firsts + 1)
        partial = _accumulated(rows, numbers, len(firsts), spec.accumulators)
        of = plain_column(partial.column(_NUMBER)).to_numpy()
        first_rows = pa.array(order[firsts][of])
        columns = [plain_column(rows.column(key).take(first_rows)) for key in spec.keys]
        bounds = (times[order[firsts]], times[order[lasts]] + spec.gap_us)
        columns += [pa.chunked_array([pa.array(bound[of]).cast(TIME_TYPE)]) for bound in bounds]
        columns += [partial.column(needs.name) for needs in spec.accumulators]
        table = pa.Table.from_arrays(columns, self._schema.names).cast(self._schema)
        return table.combine_chunks().to_batches()[0]

    def _begins(self, codes: Integers, times: Integers) -> np.ndarray:
        """Return, per sorted row, whether it begins a partial session."""
        later = times[1:] > times[:-1]
        apart = times[1:] > times[:-1] + self._spec.gap_us
        if self._watermark_us is None:
            apart = later
        elif len(times) and times.min() < self._watermark_us:
            apart |= later & (times[:-1] < self._watermark_us)
        return np.append(True, (codes[1:] != codes[:-1]) | apart)


def _accumulated(
    rows: pa.Table, numbers: np.ndarray, count: int, accumulators: Sequence[Accumulator]
) -> pa.Table:
    encoded = pa.DictionaryArray.from_arrays(pa.array(numbers), pa.array(np.arange(count)))
    return accumulate({_NUMBER: pa.chunked_array([encoded])}, rows, accumulators)


@dataclass(frozen=True, slots=True)
class Sessions:
    """Merge partial sessions by key; emit each session once, when event time has passed its end.

    Input: the output of a ``PartialSessions`` with the same keys, gap and aggregates, exchanged by
    key. Output: the keys, ``window_start``, ``window_end``, the aggregates.

    Sessions that touch are one. So a session ends only when the watermark is past its end, not when
    it reaches it: a row with that time may still come. ``allowed_lateness_us`` delays the emission,
    and rows count for so much longer.

    With ``early_us``, whenever the watermark passes a multiple of it, the results so far of open
    sessions are emitted, where they are others than before. Rows have weights then: an earlier
    result goes when another one of its session comes. It is part of the description, because the
    state has the results that were emitted.
    """

    redistribution: ClassVar[Redistribution] = "keyed"
    needs_event_time: ClassVar[bool] = True
    operator_id: str
    keys: tuple[str, ...]
    gap_us: int
    aggregates: tuple[Aggregate, ...]
    allowed_lateness_us: int = 0
    early_us: int | None = None

    @property
    def output_mode(self) -> OutputMode:
        """Whether rows come and go."""
        return "append" if self.early_us is None else "retract"

    @property
    def updates_by(self) -> tuple[str, ...]:
        """The columns that have one row of equal values at a time, if rows come and go."""
        return () if self.early_us is None else (*self.keys, WINDOW_START)

    def describe(self) -> JsonObject:
        """Return keys, gap, lateness, aggregates and the table: the meaning of the state."""
        early: JsonObject = {} if self.early_us is None else {"early_us": self.early_us}
        return {
            **early,
            "kind": "session-aggregate",
            "keys": list(self.keys),
            "gap_us": self.gap_us,
            "allowed_lateness_us": self.allowed_lateness_us,
            "aggregates": [dict(aggregate.describe()) for aggregate in self.aggregates],
            TABLES: described([TableLayout(SESSIONS, pa.schema([]), self.keys, "sessions")]),
        }

    def output_schema(self, input_schema: pa.Schema) -> pa.Schema:
        """Return keys, ``window_start``, ``window_end`` (timestamp[us, UTC]), results.

        With early results ``_weight`` is the last one.

        Raises:
            ConfigurationError: the input does not come from the matching ``PartialSessions``
                (WRONG_SCHEMA), two output columns have one name (INVALID_PIPELINE), or early
                results cannot be compared (UNSUPPORTED_TYPE).
        """
        window = (pa.field(WINDOW_START, TIME_TYPE), pa.field(WINDOW_END, TIME_TYPE))
        results = result_schema(self._partial(input_schema), self.keys, self.aggregates, window)
        return results if self.early_us is None else weighted_schema(results)

    def layout(self, input_schema: pa.Schema) -> SessionLayout:
        """Return the columns and times of the state."""
        schema = self._partial(input_schema)
        if self.early_us is not None:
            schema = schema.append(self.emitted(input_schema).field)
        return SessionLayout(
            keys=self.keys,
            accumulators=accumulators_of(self.aggregates),
            schema=schema,
            gap_us=self.gap_us,
            lateness_us=self.allowed_lateness_us,
        )

    def emitted(self, input_schema: pa.Schema) -> EmittedResults:
        """Return the comparison of results with those that were emitted early."""
        return EmittedResults(self.keys, self.output_schema(input_schema))

    def state_tables(self, input_schema: pa.Schema) -> Mapping[str, pa.Schema]:
        """Return key group, keys, ``window_start``, ``_expires``, accumulators.

        With early results, those that were emitted of a session are the last column.
        """
        return {SESSIONS: self.layout(input_schema).stored_schema}

    def open(self, context: SubtaskContext, input_schema: pa.Schema) -> "SessionAggregator":
        """Create the running instance."""
        return SessionAggregator(self, context, input_schema)

    def _partial(self, input_schema: pa.Schema) -> pa.Schema:
        """Return the columns of partial sessions."""
        return partial_schema(input_schema, (*self.keys, WINDOW_START, EXPIRES), self.aggregates)


class SessionAggregator:
    """One subtask: the sessions of the keys in its range of key groups."""

    def __init__(self, spec: Sessions, context: SubtaskContext, input_schema: pa.Schema) -> None:
        self._spec = spec
        self._context = context
        self._layout = spec.layout(input_schema)
        self._table = TableLayout(SESSIONS, self._layout.stored_schema, spec.keys, "sessions")
        schema = spec.output_schema(input_schema)
        is_early = spec.early_us is not None
        self._emitted = EmittedResults(spec.keys, schema) if is_early else None
        self._results_schema = unweighted_schema(schema) if is_early else schema
        shelf = context.backend.shelf(self._layout.schema)
        self._state = SessionState(
            self._layout, shelf, ChangedKeys(spec.keys) if is_early else None
        )
        self._ahead: Progress | None = None
        """After a restore with other workers, until the watermark has caught up."""
        self._late_here = 0

    @property
    def late_row_count(self) -> int:
        """The number of input rows dropped so far because they came too late."""
        return self._state.late_row_count + self._late_here

    @property
    def row_count(self) -> int:
        """The number of rows of state."""
        return self._state.row_count

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take partial sessions into the state; yields nothing.

        Raises:
            DataError: an integer sum leaves 64 bits (ARITHMETIC_OVERFLOW).
        """
        rows = pa.Table.from_batches([batch])
        if self._emitted is not None:
            rows = self._emitted.before_any(rows)
        rows = rows.select(self._layout.schema.names)
        if self._ahead is not None and rows.num_rows:
            last_us = times_of(rows, EXPIRES) - self._spec.gap_us
            lateness_us = self._spec.allowed_lateness_us
            late = self._ahead.is_late(rows, self._spec.keys, last_us + lateness_us)
            self._late_here += row_count_of(rows, late)
            rows = rows.filter(pa.array(~late))
        self._state.add(rows)
        return iter(())

    def count_late(self, rows: pa.Table, times_us: Integers) -> np.ndarray:
        """Return, per input row, whether the watermark has passed it, and count those it has.

        ``rows`` have the keys.
        """
        until_us = times_us + self._spec.allowed_lateness_us
        watermark_us = self._state.watermark_us
        late = (
            np.zeros(len(until_us), np.bool_) if watermark_us is None else until_us < watermark_us
        )
        if self._ahead is not None:
            late |= self._ahead.is_late(rows, self._spec.keys, until_us)
        self._late_here += int(np.count_nonzero(late))
        return late

    def on_watermark(self, watermark_us: int) -> Iterator[pa.RecordBatch]:
        """Yield the results of the sessions that have ended, in the order of their ends.

        With very many, the order is kept in each of several parts. Early results of sessions that
        stay open come after them.

        Raises:
            DataError: an integer sum leaves 64 bits (ARITHMETIC_OVERFLOW).
        """
        before_us = self._state.watermark_us
        for fired in self._state.advance(watermark_us):
            if self._emitted is None:
                yield from self._results(fired).to_batches(max_chunksize=OUTPUT_ROWS_MAX)
            else:
                yield from self._emitted.change(fired.column(EMITTED), self._results(fired)).rows
        if self._emitted and are_due(self._spec.early_us, before_us, self._state.watermark_us):
            yield from self._early_results(self._emitted)
        if self._ahead is not None and not self._ahead.is_ahead_of(self._state.watermark_us):
            self._ahead = None

    def output_watermark(self, watermark_us: int) -> int:
        """Return the watermark of ``window_end``: no later result ends before it.

        A session that was open when early results were due ended later than that, so no result
        that is taken back is older.
        """
        held_us = self._state.output_watermark(watermark_us)
        if (early_us := self._spec.early_us) is None:
            return held_us
        due_us = watermark_us - watermark_us % early_us
        return min(held_us, due_us - self._spec.allowed_lateness_us)

    def snapshot(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        """Pin the sessions; merging and sorting them is left to the asynchronous phase."""
        del checkpoint_id
        return self._pending(self._state.pin())

    def snapshot_changes(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        """Pin the sessions that changed since the last call; they replace earlier versions."""
        del checkpoint_id
        return self._pending(self._state.take_changes())

    def merge_tables(
        self, name: str, tables: Iterable[pa.Table], expired_us: int | None
    ) -> Iterable[pa.Table]:
        """Keep the newest version of each session that is open."""
        del name  # There is one table.
        yield with_versions(self._table.merge(tables, expired_us), self._layout.accumulators)

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        """Restore from the snapshots of all subtasks whose key groups overlap this one's.

        The number of subtasks may have changed. The watermark is the minimum over the snapshots;
        rows that were late for the subtask that their key comes from stay late, see
        ``operators.progress``. A count of late rows goes to the subtask that owns the first key
        group of the old one.

        Raises:
            IncompatibleStateError: the state belongs to another aggregation, or to another version
                of one of its functions (OPERATORS_CHANGED).
        """
        ranges = restored_key_groups(snapshots, self._context)
        owned = owned_key_groups(self._context)
        late_row_count = sum(
            number(snapshot.properties["late_row_count"])
            for snapshot, of in zip(snapshots, ranges, strict=True)
            if of.start in owned
        )
        tables = (rows_of_key_groups(self._open_sessions(of), owned) for of in snapshots)
        self._state.restore(tables, least_watermark_us(snapshots), late_row_count)
        key_groups = self._context.max_parallelism
        self._ahead = Progress.restored(snapshots, ranges, owned, key_groups)

    def _open_sessions(self, snapshot: Snapshot) -> pa.Table:
        """Return the sessions that were open in the subtask that wrote the snapshot."""
        expired_us = self._layout.expired_us(least_watermark_us([snapshot]))
        tables = (self._compatible(table.rows) for table in snapshot.tables)
        return self._table.merge(tables, expired_us)

    def _pending(self, pinned: PinnedSessions) -> PendingSnapshot:
        expired_us, max_parallelism = self._state.expired_us, self._context.max_parallelism
        properties: JsonObject = {
            **progress_properties(self._state.watermark_us, self._ahead),
            "late_row_count": self.late_row_count,
            **key_group_properties(self._context),
        }

        def tables() -> Iterator[StateTable]:
            for rows in pinned.stored_tables(max_parallelism):
                yield StateTable(SESSIONS, with_versions(rows, self._layout.accumulators))

        expired = {} if expired_us is None else {SESSIONS: expired_us}
        return lambda: Snapshot(tables(), properties, expired_us=expired)

    def _compatible(self, table: pa.Table) -> pa.Table:
        require_known_versions(table.schema.metadata, self._layout.accumulators)
        if not table.schema.equals(self._layout.stored_schema):
            raise IncompatibleStateError(
                ErrorCode.OPERATORS_CHANGED,
                f"operator {self._spec.operator_id!r} does not fit the checkpoint: the columns of"
                f" its state have changed from {', '.join(table.schema.names)};"
                f" {change_back_or_reset(self._spec.operator_id)}",
            )
        return table

    def _early_results(self, emitted: EmittedResults) -> Iterator[pa.RecordBatch]:
        for some in self._state.take_changed():
            change = emitted.change(some.table.column(EMITTED), self._results(some.table))
            self._state.put_back(some, change.emitted, change.differs)
            yield from change.rows

    def _results(self, sessions: pa.Table) -> pa.Table:
        names = [*self._spec.keys, WINDOW_START, EXPIRES]
        columns = [sessions.column(name) for name in names]
        columns += [finish(sessions, aggregate) for aggregate in self._spec.aggregates]
        return pa.Table.from_arrays(columns, schema=self._results_schema)
