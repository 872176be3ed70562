"""Windowed aggregation in two operators: combine in every subtask, merge in the key's owner.

``PartialAggregate`` reduces each batch to one row of accumulators per key and window, before the
keyed exchange. Skewed keys shrink most, so a hot key costs the network no more than a cold one.
``WindowAggregate`` owns the keys, keeps the state and fires windows as event time passes them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow.compute import call_function

from laminar_core.aggregates.accumulators import (
    ROW_COUNT,
    Accumulator,
    Aggregate,
    accumulators_of,
    finish,
    require_known_versions,
    with_versions,
)
from laminar_core.errors import ErrorCode, IncompatibleStateError
from laminar_core.operators.base import (
    JsonObject,
    OutputMode,
    PendingSnapshot,
    Snapshot,
    SubtaskContext,
    one_table,
)
from laminar_core.operators.columns import require_columns
from laminar_core.operators.combiner import Combiner
from laminar_core.operators.early_results import are_due
from laminar_core.operators.keyed import (
    key_group_properties,
    number,
    owned_key_groups,
    restored_key_groups,
)
from laminar_core.operators.mapping import change_back_or_reset
from laminar_core.operators.partial_results import (
    combined_schema,
    first_values,
    kept_together,
    partial_schema,
    result_schema,
)
from laminar_core.operators.progress import Progress, least_watermark_us, progress_properties
from laminar_core.operators.windows import (
    TimesUs,
    Window,
    grows_from_us,
    pane_numbers,
    pane_starts,
    require_time_column,
)
from laminar_core.protocol.types import CheckpointId
from laminar_core.state.changed_keys import ChangedKeys
from laminar_core.state.expiry import unexpired
from laminar_core.state.panes import Ground, PinnedPane, stored_tables
from laminar_core.state.placed_rows import PlacedLayout
from laminar_core.state.rescaling import Redistribution
from laminar_core.state.window_layout import (
    TIME_TYPE,
    WINDOW_START,
    StateLayout,
    window_starts_of,
)
from laminar_core.state.window_state import (
    WindowState,
    merge_stored,
    owned_rows,
)

WINDOW_END = "window_end"
OUTPUT_ROWS_MAX = 65_536


@dataclass(frozen=True, slots=True)
class PartialAggregate:
    """Reduce every batch to one row per key and window; stateless.

    Output: the keys (plain values), ``window_start``, the accumulators, ``count(*)`` among them.
    """

    needs_event_time: ClassVar[bool] = True
    operator_id: str
    keys: tuple[str, ...]
    time_column: str
    window: Window
    aggregates: tuple[Aggregate, ...]
    time_lag_us: int = 0
    """How far ``time_column`` may lag behind the watermark; the merging side gets it that much
    later.
    """
    bundles: bool = False
    """Whether large batches are reduced together, see ``KeepsBundle``; else each is passed on at
    once. Not part of the description: results are the same.
    """

    def describe(self) -> JsonObject:
        """Return keys, time, window and aggregates.

        The meaning of rows in flight to the merging side.
        """
        return {
            "kind": "partial-aggregate",
            "keys": list(self.keys),
            "time_column": self.time_column,
            "window": self.window.describe(),
            "aggregates": [dict(aggregate.describe()) for aggregate in self.aggregates],
        }

    @property
    def accumulators(self) -> tuple[Accumulator, ...]:
        """The columns of state."""
        return accumulators_of(self.aggregates)

    def output_schema(self, input_schema: pa.Schema) -> pa.Schema:
        """Return keys, ``window_start``, accumulators.

        Raises:
            ConfigurationError: a column is missing (WRONG_SCHEMA) or of a type that cannot be a
                key, an event time or aggregated so (UNSUPPORTED_TYPE).
        """
        require_columns(input_schema, [self.time_column])
        require_time_column(input_schema, self.time_column)
        window = [pa.field(WINDOW_START, TIME_TYPE)]
        return combined_schema(input_schema, self.keys, self.accumulators, window)

    def open(self, context: SubtaskContext, input_schema: pa.Schema) -> Combiner:
        """Create the running instance."""
        del context
        self.output_schema(input_schema)
        return Combiner(self)


@dataclass(frozen=True, slots=True)
class WindowAggregate:
    """Merge partial results by key; fire each window once, when event time has passed it.

    Input: the output of a ``PartialAggregate`` with the same keys, window and aggregates,
    exchanged by key. Output: the keys, ``window_start``, ``window_end``, the aggregates.

    A window fires when the watermark reaches its end plus ``allowed_lateness_us``: the allowance
    delays it, and nothing is ever emitted twice. Rows that come after that are dropped and
    counted.

    With ``early_us``, whenever the watermark passes a multiple of it, the results so far of open
    windows are emitted, for the keys that got rows since the last time. A later row replaces an
    earlier one; the last one is the one that is emitted without ``early_us``.
    """

    redistribution: ClassVar[Redistribution] = "keyed"
    needs_event_time: ClassVar[bool] = True
    operator_id: str
    keys: tuple[str, ...]
    window: Window
    aggregates: tuple[Aggregate, ...]
    allowed_lateness_us: int = 0
    early_us: int | None = None
    """Not part of the description: the state is the same, so it can be changed at any start."""

    @property
    def output_mode(self) -> OutputMode:
        """Whether rows replace earlier ones of their key and window."""
        return "append" if self.early_us is None else "upsert"

    @property
    def updates_by(self) -> tuple[str, ...]:
        """The columns by which they do."""
        return () if self.early_us is None else (*self.keys, WINDOW_START, WINDOW_END)

    def describe(self) -> JsonObject:
        """Return keys, window, lateness and aggregates: the meaning of the state."""
        return {
            "kind": "window-aggregate",
            "keys": list(self.keys),
            "window": self.window.describe(),
            "allowed_lateness_us": self.allowed_lateness_us,
            "aggregates": [dict(aggregate.describe()) for aggregate in self.aggregates],
        }

    def output_schema(self, input_schema: pa.Schema) -> pa.Schema:
        """Return keys, ``window_start``, ``window_end`` (timestamp[us, UTC]), results.

        Raises:
            ConfigurationError: the input does not come from the matching ``PartialAggregate``
                (WRONG_SCHEMA), or two output columns have one name (INVALID_PIPELINE).
        """
        window = (pa.field(WINDOW_START, TIME_TYPE), pa.field(WINDOW_END, TIME_TYPE))
        partial = self.layout(input_schema).schema
        return result_schema(partial, self.keys, self.aggregates, window)

    def layout(self, input_schema: pa.Schema) -> StateLayout:
        """Return the columns and windows of the state."""
        return StateLayout(
            keys=self.keys,
            accumulators=accumulators_of(self.aggregates),
            schema=partial_schema(input_schema, (*self.keys, WINDOW_START), self.aggregates),
            size_us=self.window.size_us,
            slide_us=self.window.slide_us,
            lateness_us=self.allowed_lateness_us,
            grows_from_us=grows_from_us(self.window),
        )

    def state_tables(self, input_schema: pa.Schema) -> Mapping[str, pa.Schema]:
        """Return key group, keys, ``window_start``, accumulators."""
        return {"": self.layout(input_schema).stored_schema}

    def first_values(self, input_schema: pa.Schema) -> Mapping[str, pa.Scalar]:
        """Return, by accumulator that can be added, its value before the first row."""
        return first_values(self.layout(input_schema).schema, self.aggregates)

    def kept_together(self) -> Iterable[tuple[str, ...]]:
        """Return the accumulators of each aggregate that is computed from several."""
        return kept_together(self.aggregates)

    def open(self, context: SubtaskContext, input_schema: pa.Schema) -> "WindowAggregator":
        """Create the running instance."""
        return WindowAggregator(self, context, input_schema)


class WindowAggregator:
    """One subtask: the windows of the keys in its range of key groups."""

    def __init__(
        self, spec: WindowAggregate, context: SubtaskContext, input_schema: pa.Schema
    ) -> None:
        self._spec = spec
        self._context = context
        self._layout = spec.layout(input_schema)
        self._schema = spec.output_schema(input_schema)
        self._key_groups = owned_key_groups(context)
        shelf = context.backend.shelf(self._layout.pane_schema)
        self._ground = Ground(
            self._layout,
            shelf,
            context.max_parallelism,
            self._key_groups,
            PlacedLayout.of(self._layout) if shelf.in_memory else None,
        )
        changed = None if spec.early_us is None else ChangedKeys(spec.keys)
        self._state = WindowState(self._layout, self._ground, changed)
        self._ahead: Progress | None = None
        """After a restore with other workers, until the watermark has caught up."""
        self._late_here = 0

    @property
    def late_row_count(self) -> int:
        """The number of input rows dropped so far because their windows had fired."""
        return self._state.late_row_count + self._late_here

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take partial results into the state; yields nothing.

        Raises:
            DataError: an integer sum leaves 64 bits (ARITHMETIC_OVERFLOW).
        """
        rows = pa.Table.from_batches([batch]).select(self._layout.schema.names)
        if self._ahead is not None:
            last_windows = self._layout.last_label_us(window_starts_of(rows))
            in_time = self._unfired(self._ahead, rows, last_windows)
            late = rows.column(ROW_COUNT.name).filter(pa.array(~in_time))
            self._late_here += call_function("sum", [late]).as_py() or 0
            rows = rows.filter(pa.array(in_time))
        self._state.add(rows)
        return iter(())

    def count_late(self, rows: pa.Table, times_us: TimesUs) -> npt.NDArray[np.bool_]:
        """Return, per input row, whether it is late, and count those that are.

        ``rows`` have the keys; all windows of a late row have fired.
        """
        panes = pane_starts(self._spec.window, pane_numbers(self._spec.window, times_us))
        finished_us = self._state.finished_us
        late = np.zeros(len(panes), np.bool_) if finished_us is None else panes <= finished_us
        if self._ahead is not None:
            late |= ~self._unfired(self._ahead, rows, self._layout.last_label_us(panes))
        self._late_here += int(np.count_nonzero(late))
        return late

    def on_watermark(self, watermark_us: int) -> Iterator[pa.RecordBatch]:
        """Yield the results of the windows that fire, in the order of windows.

        Early results of windows that stay open come after them. The state advances at once; the
        results are computed as they are consumed.

        Raises:
            DataError: an integer sum leaves 64 bits (ARITHMETIC_OVERFLOW).
        """
        before_us = self._state.watermark_us
        fired = self._state.advance(watermark_us)
        if are_due(self._spec.early_us, before_us, self._state.watermark_us):
            fired = chain(fired, self._state.take_changed())
        if self._ahead is not None:
            fired = self._not_again(self._ahead, fired)
            if not self._ahead.is_ahead_of(self._state.watermark_us):
                self._ahead = None
        return (batch for merged in fired for batch in self._results(merged))

    def output_watermark(self, watermark_us: int) -> int:
        """Return the watermark of ``window_end``: all windows that end before it are emitted."""
        return watermark_us - self._spec.allowed_lateness_us

    def snapshot(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        """Pin the state; merging and sorting it is left to the asynchronous phase."""
        del checkpoint_id
        return self._pending(self._state.pin())

    def snapshot_changes(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        """Pin what came since the last call; the tables of several calls add up to the state."""
        del checkpoint_id
        return self._pending(self._state.take_changes())

    def merge_tables(
        self, name: str, tables: Iterable[pa.Table], expired_us: int | None
    ) -> Iterable[pa.Table]:
        """Reduce them to one row per key and window that is open."""
        del name  # There is one table.
        merged = merge_stored(tables, self._layout, expired_us)
        yield with_versions(merged, self._layout.accumulators)

    def _not_again(self, ahead: Progress, fired: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Yield the firing windows without the rows that were emitted before."""
        return (
            merged.filter(pa.array(self._unfired(ahead, merged, window_starts_of(merged))))
            for merged in fired
        )

    def _unfired(
        self, ahead: Progress, rows: pa.Table, labels_us: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_]:
        """Return, per row, whether the window with its label has not fired for the row's key."""
        return ~ahead.is_late(rows, self._spec.keys, self._layout.fires_us(labels_us) - 1)

    def _pending(self, pinned: Sequence[PinnedPane]) -> PendingSnapshot:
        finished_us = self._state.finished_us
        properties: JsonObject = {
            **progress_properties(self._state.watermark_us, self._ahead),
            "late_row_count": self.late_row_count,
            **key_group_properties(self._context),
            **self._properties(),
        }

        def finish_snapshot() -> Snapshot:
            stored = stored_tables(pinned, self._ground)
            tables = (with_versions(table, self._layout.accumulators) for table in stored)
            expired_us = {} if finished_us is None else {"": finished_us}
            return Snapshot(one_table(tables), properties, expired_us=expired_us)

        return finish_snapshot

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        """Restore from the snapshots of all subtasks whose key groups overlap this one's.

        The number of subtasks may have changed. The watermark is the minimum over the snapshots;
        results that a subtask ahead of it had emitted are not emitted again, see
        ``operators.progress``. A count of late rows goes to the subtask that owns the first key
        group of the old one.

        Raises:
            IncompatibleStateError: the state belongs to another aggregation (OPERATORS_CHANGED).
        """
        self._require_compatible(snapshots)
        ranges = restored_key_groups(snapshots, self._context)
        tables = (
            owned_rows(rows, self._key_groups)
            for snapshot in snapshots
            for rows in self._unfinished(snapshot)
        )
        self._state.restore(
            tables,
            least_watermark_us(snapshots),
            sum(
                number(snapshot.properties["late_row_count"])
                for snapshot, owned in zip(snapshots, ranges, strict=True)
                if owned.start in self._key_groups
            ),
        )
        key_groups = self._context.max_parallelism
        self._ahead = Progress.restored(snapshots, ranges, self._key_groups, key_groups)

    def _unfinished(self, snapshot: Snapshot) -> Iterator[pa.Table]:
        """Rows of the windows that had not fired in the subtask that wrote them."""
        finished_us = self._layout.finished_us(least_watermark_us([snapshot]))
        for table in snapshot.rows():
            yield unexpired("", self._compatible(table), finished_us)

    def _properties(self) -> JsonObject:
        """Return the properties that must be equal in a snapshot and the subtask restoring it."""
        return {
            "max_parallelism": self._context.max_parallelism,
            "allowed_lateness_us": self._spec.allowed_lateness_us,
            "window": self._spec.window.describe(),
        }

    def _require_compatible(self, snapshots: Sequence[Snapshot]) -> None:
        for snapshot in snapshots:
            for name, wanted in self._properties().items():
                if (found := snapshot.properties.get(name)) != wanted:
                    raise self._incompatible(f"its {name} was {found} and is now {wanted}")

    def _compatible(self, table: pa.Table) -> pa.Table:
        require_known_versions(table.schema.metadata, self._layout.accumulators)
        if not table.schema.equals(self._layout.stored_schema):
            names = ", ".join(table.schema.names)
            raise self._incompatible(f"the columns of its state have changed from {names}")
        return table

    def _incompatible(self, reason: str) -> IncompatibleStateError:
        return IncompatibleStateError(
            ErrorCode.OPERATORS_CHANGED,
            f"operator {self._spec.operator_id!r} does not fit the checkpoint: {reason};"
            f" {change_back_or_reset(self._spec.operator_id)}",
        )

    def _results(self, merged: pa.Table) -> Iterator[pa.RecordBatch]:
        labels = window_starts_of(merged)
        times = (self._layout.start_us(labels), self._layout.end_us(labels))
        columns = [merged.column(key) for key in self._spec.keys]
        columns += [pa.chunked_array([pa.array(of).cast(TIME_TYPE)]) for of in times]
        columns += [finish(merged, aggregate) for aggregate in self._spec.aggregates]
        table = pa.Table.from_arrays(columns, schema=self._schema)
        yield from table.to_batches(max_chunksize=OUTPUT_ROWS_MAX)
