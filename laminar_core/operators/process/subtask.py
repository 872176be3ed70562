"""The running instance of a process function: its state, its timers, and the order of calls."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from laminar_core.aggregates.row_groups import Integers
from laminar_core.errors import DataError, ErrorCode
from laminar_core.operators.base import (
    LATE,
    Emitted,
    JsonObject,
    PendingSnapshot,
    Side,
    Snapshot,
    StateTable,
    SubtaskContext,
)
from laminar_core.operators.emitted import one_or_several, require_emitted, require_side
from laminar_core.operators.keyed import (
    key_group_properties,
    number,
    owned_key_groups,
    restored_key_groups,
)
from laminar_core.operators.process.declared import KeptState, PinnedState, State
from laminar_core.operators.process.handles import Timers
from laminar_core.operators.process.keys import Keys
from laminar_core.operators.process.timers import TimerTable
from laminar_core.operators.progress import Progress, least_watermark_us, progress_properties
from laminar_core.operators.windows import event_times_us
from laminar_core.protocol.types import WATERMARK_END_US, CheckpointId
from laminar_core.state.expiry import EXPIRES
from laminar_core.state.named_tables import TableLayout
from laminar_core.state.window_state import rows_of_key_groups

TIMERS, CLOCK_TIMERS = "event-timers", "clock-timers"
"""Names of the tables of timers; a state cannot have such a name."""
DUE = "due"
"""The column of ``on_timer``'s rows with the time of the timer."""
CALLS_AFTER_END_MAX = 10_000
"""Calls at the end of the input that set timers: one may set the next, but not for ever."""

KeyedState = Mapping[str, Any]
"""The states of a process function by name, as it is given them.

Each is ``KeyedValues``, ``KeyedLists`` or ``KeyedMaps``, as it was declared.
"""

Call = Callable[[pa.RecordBatch, Keys, KeyedState, Timers], Any]
_NO_TIME_US = int(np.iinfo(np.int64).min)


@dataclass(frozen=True, slots=True)
class Calls:
    """The user's functions for timers."""

    on_timer: Call | None
    on_clock_timer: Call | None


@dataclass(frozen=True, slots=True)
class InputCalls:
    """The user's function for the rows of one input, and what these rows are like.

    ``keys``: their key columns, in the order of those of the state. ``time_column``: their event
    time, at most ``lag_us`` behind the watermark; None if the process does not act on event time.
    """

    call: Call
    keys: tuple[str, ...]
    time_column: str | None
    lag_us: int
    late: str = LATE
    """The side output of its late rows."""


@dataclass(frozen=True, slots=True)
class Setup:
    """The parts of a subtask; ``keys`` are the key columns of the state."""

    operator_id: str
    keys: tuple[str, ...]
    schema: pa.Schema
    layouts: Mapping[str, TableLayout]
    states: Mapping[str, State]
    sides: Mapping[str, pa.Schema]
    inputs: Sequence[InputCalls]
    calls: Calls

    @property
    def has_time(self) -> bool:
        """Return whether it acts on event time."""
        return self.inputs[0].time_column is not None


class ProcessState:
    """One subtask: state and timers of the keys in its range of key groups."""

    def __init__(self, setup: Setup, context: SubtaskContext) -> None:
        self.late_row_count = 0
        """Number of rows dropped so far because event time had passed them."""
        self._setup = setup
        self._context = context
        self._values: dict[str, KeptState] = {
            name: declared.opened(setup.operator_id, setup.layouts[name], context.backend)
            for name, declared in setup.states.items()
        }
        names = (TIMERS, CLOCK_TIMERS)
        self._tables = {n: TimerTable(setup.layouts[n]) for n in names if n in setup.layouts}
        self._event, self._clock = (self._tables.get(name) for name in names)
        what = f"process {setup.operator_id!r}"
        self._timers = Timers(what, self._event, self._clock, lambda: context.clock.now_ms() * 1000)
        self._watermark_us: int | None = None
        self._ahead: Progress | None = None
        """After a restore with other workers, until the watermark has caught up."""
        self._calls_after_end = 0

    @property
    def expired_row_count(self) -> int:
        """The number of values dropped so far because they were not changed in time."""
        return sum(values.expired_row_count for values in self._values.values())

    # --- rows and time --------------------------------------------------------------------------

    def taken(self, index: int, batch: pa.RecordBatch) -> Iterator[Emitted]:
        """Yield what the user's function emits for rows of this input that are in time.

        Raises:
            ConfigurationError: it emits rows of another schema (WRONG_SCHEMA).
            DataError: a row has no event time (NULL_EVENT_TIME).
        """
        come_from = self._setup.inputs[index]
        if come_from.time_column is None:
            times_us = np.full(batch.num_rows, _NO_TIME_US)
        else:
            times_us = event_times_us(batch, come_from.time_column)
            in_time = self._in_time(batch, times_us, come_from)
            if not in_time.all():
                late = batch.filter(pa.array(~in_time))
                self.late_row_count += late.num_rows
                yield Side(come_from.late, late)
                batch, times_us = batch.filter(pa.array(in_time)), times_us[in_time]
        if batch.num_rows:
            keys = Keys.of_rows(batch, come_from.keys, times_us).named(self._setup.keys)
            yield from self._called(come_from.call, batch, keys)
            yield from self._fire_passed()

    def on_watermark(self, watermark_us: int) -> Iterator[pa.RecordBatch | Side]:
        """Yield what the user's function emits for timers that are due, in their order."""
        if self._watermark_us is not None and watermark_us <= self._watermark_us:
            return
        self._watermark_us = watermark_us
        if self._ahead is not None and not self._ahead.is_ahead_of(watermark_us):
            self._ahead = None
        self._timers.input_ended = watermark_us == WATERMARK_END_US
        yield from self._fire(self._event, watermark_us)
        if self._timers.input_ended:
            while any(table.next_due_us is not None for table in self._tables.values()):
                yield from self._fire(self._clock, watermark_us)
                yield from self._fire(self._event, watermark_us)
            return
        passed_us = watermark_us - max(one.lag_us for one in self._setup.inputs)
        for values in self._values.values():
            values.purge(passed_us)

    def output_watermark(self, watermark_us: int) -> int:
        """Return the watermark: timers that are left are due after it, and rows are in time."""
        return watermark_us

    def next_due_ms(self) -> float | None:
        """Return when the next timer by the clock is due, in milliseconds since 1970."""
        due_us = None if self._clock is None else self._clock.next_due_us
        return None if due_us is None else due_us / 1000

    def on_time(self, now_ms: float) -> Iterator[Emitted]:
        """Yield what the user's function emits for timers that are due by the clock."""
        yield from self._fire(self._clock, int(now_ms * 1000))
        yield from self._fire_passed()

    def _in_time(
        self, batch: pa.RecordBatch, times_us: Integers, come_from: InputCalls
    ) -> np.ndarray[Any, Any]:
        times_us = times_us + come_from.lag_us
        late = np.zeros(len(times_us), np.bool_)
        if self._watermark_us is not None:
            late |= times_us < self._watermark_us
        if self._ahead is not None:
            rows = pa.Table.from_batches([batch])
            late |= self._ahead.is_late(rows, come_from.keys, times_us)
        return ~late

    def _fire_passed(self) -> Iterator[pa.RecordBatch | Side]:
        """Fire the timers in event time that a call has set, and that are due already."""
        if self._watermark_us is not None:
            yield from self._fire(self._event, self._watermark_us)

    def _fire(self, table: TimerTable | None, until_us: int) -> Iterator[pa.RecordBatch | Side]:
        if table is None:
            return
        calls = self._setup.calls
        call = calls.on_timer if table is self._event else calls.on_clock_timer
        assert call is not None, "a table of timers has its function"
        for fired in table.fire(until_us):
            dues_us = fired.column(EXPIRES).cast(pa.int64()).to_numpy()
            held = fired.select(list(self._setup.keys)).combine_chunks()
            times_us = dues_us if table is self._event else self._present(len(dues_us))
            keys = Keys(held, np.arange(len(dues_us)), times_us)
            (due,) = fired.rename_columns([*self._setup.keys, DUE]).combine_chunks().to_batches()
            set_before = self._timers.set_count
            yield from self._called(call, due, keys)
            if self._timers.input_ended and self._timers.set_count > set_before:
                self._calls_after_end += 1
            if self._calls_after_end > CALLS_AFTER_END_MAX:
                raise self._endless()

    def _present(self, count: int) -> Integers:
        """Event time of calls that no row and no timer in event time has caused."""
        known = self._watermark_us is not None and self._watermark_us != WATERMARK_END_US
        return np.full(count, self._watermark_us if known else _NO_TIME_US)

    # --- the user's function --------------------------------------------------------------------

    def _called(self, call: Call, rows: pa.RecordBatch, keys: Keys) -> Iterator[Any]:
        emitted = call(rows, keys, self._values, self._timers)
        if emitted is None:
            return
        for result in one_or_several(emitted):
            rows_out = self._rows_of(result)
            if rows_out.num_rows:
                yield result

    def _rows_of(self, result: object) -> pa.RecordBatch:
        """Return what was emitted, if it has the declared columns."""
        what = f"process {self._setup.operator_id!r} emitted"
        if not isinstance(result, Side):
            return require_emitted(result, self._setup.schema, what)
        return require_side(result, self._setup.sides, what)

    def _endless(self) -> DataError:
        return DataError(
            ErrorCode.TOO_MANY_ROWS,
            f"process {self._setup.operator_id!r} still sets timers after {CALLS_AFTER_END_MAX:,}"
            " calls at the end of its input, where each fires at once: set none for the next"
            " period if timers.input_ended",
        )

    # --- snapshots ------------------------------------------------------------------------------

    def snapshot(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        """Pin state and timers; their tables are built in the asynchronous phase."""
        del checkpoint_id
        return self._pending(
            {name: kept.pin() for name, kept in {**self._values, **self._tables}.items()}
        )

    def snapshot_changes(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        """Pin what changed since the last call; a later change replaces an earlier one."""
        del checkpoint_id
        return self._pending(
            {name: kept.take_changes() for name, kept in {**self._values, **self._tables}.items()}
        )

    def merge_tables(
        self, name: str, tables: Iterable[pa.Table], expired_us: int | None
    ) -> Iterable[pa.Table]:
        """Keep the newest row of each key or timer."""
        yield self._setup.layouts[name].merge(tables, expired_us)

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        """Restore from the snapshots of all subtasks whose key groups overlap this one's."""
        owned = owned_key_groups(self._context)
        ranges = restored_key_groups(snapshots, self._context)
        for snapshot, groups in zip(snapshots, ranges, strict=True):
            for table in snapshot.tables:
                rows = rows_of_key_groups(table.rows, owned)
                if table.name in self._tables:
                    self._tables[table.name].take(rows)
                else:
                    self._values[table.name].restore(rows)
            if groups.start in owned:
                self._restore_counts(snapshot.properties)
            self._restore_positions(snapshot.properties)
        for name, kept in {**self._values, **self._tables}.items():
            kept.restore_mark([snapshot.expired_us.get(name) for snapshot in snapshots])
        if self._setup.has_time:
            self._watermark_us = least_watermark_us(snapshots)
            self._ahead = Progress.restored(snapshots, ranges, owned, self._context.max_parallelism)

    def _restore_counts(self, properties: JsonObject) -> None:
        self.late_row_count += number(properties["late_row_count"])
        expired = properties["expired_row_counts"]
        assert isinstance(expired, dict), expired
        for name, count in expired.items():
            self._values[name].expired_row_count += number(count)

    def _restore_positions(self, properties: JsonObject) -> None:
        """Number later values above those of all subtasks whose lists are continued here."""
        positions = properties.get("next_positions", {})
        assert isinstance(positions, dict), positions
        for name, position in positions.items():
            kept = self._values[name]
            kept.next_position = max(kept.next_position, number(position))

    def _pending(self, pinned: Mapping[str, PinnedState]) -> PendingSnapshot:
        properties: JsonObject = {
            **progress_properties(self._watermark_us, self._ahead),
            **key_group_properties(self._context),
            "late_row_count": self.late_row_count,
            "expired_row_counts": {n: v.expired_row_count for n, v in self._values.items()},
        }
        positions = {n: v.next_position for n, v in self._values.items() if v.next_position}
        if positions:
            properties["next_positions"] = dict(positions)
        marks = {name: of.expired_us for name, of in self._values.items()}
        marks |= {name: of.reached_us for name, of in self._tables.items()}
        expired_us = {name: us for name, us in marks.items() if us is not None}
        groups = self._context.max_parallelism

        def tables() -> Iterator[StateTable]:
            for name, of in pinned.items():
                for rows in of.stored_tables(groups):
                    yield StateTable(name, rows)

        return lambda: Snapshot(tables(), properties, expired_us=expired_us)


class ProcessSubtask(ProcessState):
    """A subtask with one input."""

    def process(self, batch: pa.RecordBatch) -> Iterator[Emitted]:
        """Yield what the user's function emits for these rows."""
        return self.taken(0, batch)


class ConnectedSubtask(ProcessState):
    """A subtask with several inputs, which share state and timers."""

    def process_input(self, index: int, batch: pa.RecordBatch) -> Iterator[Emitted]:
        """Yield what the user's function for this input emits for these rows."""
        return self.taken(index, batch)
