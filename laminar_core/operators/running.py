"""Aggregation without windows: running totals per key, emitted whenever they change.

``CombineRows`` reduces each batch to one row of accumulators per key before the keyed exchange.
``RunningAggregate`` owns the keys. For each batch it emits the new totals of the keys in it: an
*upsert stream*, in which a row replaces the earlier row of its key. On request it is a *retract
stream*: the old total goes, the new one comes. No total is final, and no key is removed: state
grows with the number of keys.

Over rows that come and go the aggregates are weighted, totals are always retracted, and a key whose
rows have all gone is removed: see ``updating_totals``.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa

from laminar_core.aggregates.accumulators import (
    Accumulator,
    Aggregate,
    accumulate,
    accumulators_of,
    finish,
    with_versions,
)
from laminar_core.aggregates.grouping import plain_column
from laminar_core.aggregates.weighted_rows import accumulate_weighted
from laminar_core.operators.base import (
    ANY_MODE,
    JsonObject,
    OutputMode,
    PendingSnapshot,
    Snapshot,
    SubtaskContext,
)
from laminar_core.operators.keyed import (
    key_group_properties,
    owned_key_groups,
    restored_key_groups,
)
from laminar_core.operators.partial_results import (
    combined_schema,
    first_values,
    kept_together,
    partial_schema,
    result_schema,
)
from laminar_core.operators.stateless import StatelessSubtask
from laminar_core.operators.updating_totals import (
    OUTPUT_ROWS_MAX,
    TOTALS,
    Totals,
    UpdatingTotals,
    described_totals,
    differences,
    is_over_weights,
    require_totals,
)
from laminar_core.operators.weights import (
    as_batch,
    unweighted_schema,
    weighted_schema,
    weights_of,
)
from laminar_core.protocol.types import CheckpointId
from laminar_core.state.keyed_rows import KeyedRows, PinnedRows, RowLayout, newest_rows
from laminar_core.state.rescaling import Redistribution
from laminar_core.state.window_state import rows_of_key_groups


@dataclass(frozen=True, slots=True)
class CombineRows:
    """Reduce every batch to one row per key; stateless.

    Output: the keys (plain values), then the accumulators, ``count(*)`` among them.
    """

    accepts: ClassVar[frozenset[OutputMode]] = ANY_MODE
    output_mode: ClassVar[OutputMode] = "append"
    operator_id: str
    keys: tuple[str, ...]
    aggregates: tuple[Aggregate, ...]

    def describe(self) -> JsonObject:
        """Return keys and aggregates: the meaning of rows in flight to the merging side."""
        return {
            "kind": "combine-rows",
            "keys": list(self.keys),
            "aggregates": [dict(aggregate.describe()) for aggregate in self.aggregates],
        }

    @property
    def accumulators(self) -> tuple[Accumulator, ...]:
        """The columns of state."""
        return accumulators_of(self.aggregates)

    def output_schema(self, input_schema: pa.Schema) -> pa.Schema:
        """Return keys, accumulators.

        Raises:
            ConfigurationError: a column is missing (WRONG_SCHEMA) or of a type that cannot be a
                key or aggregated so (UNSUPPORTED_TYPE).
        """
        if is_over_weights(self.aggregates):
            input_schema = unweighted_schema(input_schema)
        return combined_schema(input_schema, self.keys, self.accumulators)

    def open(self, context: SubtaskContext, input_schema: pa.Schema) -> StatelessSubtask:
        """Create the running instance."""
        del context
        self.output_schema(input_schema)
        return StatelessSubtask(self._combine)

    def _combine(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Reduce one batch.

        Raises:
            DataError: a sum leaves its type (ARITHMETIC_OVERFLOW).
        """
        rows = pa.Table.from_batches([batch])
        keys = {key: rows.column(key) for key in self.keys}
        if is_over_weights(self.aggregates):
            weights = weights_of(batch).astype(np.int64)
            partial = accumulate_weighted(keys, rows, weights, self.accumulators)
        else:
            partial = accumulate(keys, rows, self.accumulators)
        columns = {name: plain_column(partial.column(name)) for name in partial.column_names}
        return as_batch(pa.table(columns))


@dataclass(frozen=True, slots=True)
class RunningAggregate:
    """Merge partial results into totals; emit the totals that a batch has changed.

    Input: the output of a ``CombineRows`` with the same keys and aggregates, exchanged by key.
    Output: the keys, then the aggregates; with ``retract`` their weight.
    """

    redistribution: ClassVar[Redistribution] = "keyed"
    operator_id: str
    keys: tuple[str, ...]
    aggregates: tuple[Aggregate, ...]
    emits: Literal["upsert", "retract"] = "upsert"

    @property
    def output_mode(self) -> OutputMode:
        """Whether a new total replaces the old one, or the old one is taken back."""
        return self.emits

    @property
    def updates_by(self) -> tuple[str, ...]:
        """The key by which a row replaces an earlier one."""
        return self.keys

    def describe(self) -> JsonObject:
        """Return keys and aggregates: the meaning of the state."""
        described: JsonObject = {
            "kind": "running-aggregate",
            "keys": list(self.keys),
            "aggregates": [dict(aggregate.describe()) for aggregate in self.aggregates],
        }
        if self.emits != "upsert":
            described["emits"] = self.emits
        if is_over_weights(self.aggregates):
            described |= described_totals(self.keys)
        return described

    def output_schema(self, input_schema: pa.Schema) -> pa.Schema:
        """Return keys, results, and with ``retract`` the weight.

        Raises:
            ConfigurationError: the input does not come from the matching ``CombineRows``
                (WRONG_SCHEMA), or two output columns have one name (INVALID_PIPELINE).
        """
        partial = self.layout(input_schema).schema
        results = result_schema(partial, self.keys, self.aggregates)
        return weighted_schema(results) if self.emits == "retract" else results

    def layout(self, input_schema: pa.Schema) -> RowLayout:
        """Return the columns of the state."""
        schema = partial_schema(input_schema, self.keys, self.aggregates)
        return RowLayout(self.keys, accumulators_of(self.aggregates), schema)

    def state_tables(self, input_schema: pa.Schema) -> Mapping[str, pa.Schema]:
        """Return key group, keys, accumulators."""
        name = TOTALS if is_over_weights(self.aggregates) else ""
        return {name: self.layout(input_schema).stored_schema}

    def first_values(self, input_schema: pa.Schema) -> Mapping[str, pa.Scalar]:
        """Return, by accumulator that can be added, its value before the first row.

        None can over rows that come and go: what came before would be taken back from it.
        """
        if is_over_weights(self.aggregates):
            return {}
        return first_values(self.layout(input_schema).schema, self.aggregates)

    def kept_together(self) -> Iterable[tuple[str, ...]]:
        """Return the accumulators of each aggregate that is computed from several."""
        return kept_together(self.aggregates)

    def open(
        self, context: SubtaskContext, input_schema: pa.Schema
    ) -> "RunningAggregator | UpdatingTotals":
        """Create the running instance."""
        if is_over_weights(self.aggregates):
            schema = self.output_schema(input_schema)

            def emit(before: Totals, after: Totals) -> Iterator[pa.RecordBatch]:
                yield from differences(
                    before.mapped(self.results), after.mapped(self.results), schema
                )

            return UpdatingTotals(self.layout(input_schema), emit, context)
        return RunningAggregator(self, context, input_schema)

    def results(self, totals: pa.Table) -> pa.Table:
        """Return the keys and results of rows of state."""
        columns = {key: totals.column(key) for key in self.keys}
        columns |= {a.name: finish(totals, a) for a in self.aggregates}
        return pa.table(columns)


class RunningAggregator:
    """One subtask: the totals of the keys in its range of key groups."""

    def __init__(
        self, spec: RunningAggregate, context: SubtaskContext, input_schema: pa.Schema
    ) -> None:
        self._spec = spec
        self._context = context
        self._layout = spec.layout(input_schema)
        self._schema = spec.output_schema(input_schema)
        self._rows = KeyedRows(self._layout, context.backend.shelf(self._layout.schema))

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Merge partial results; yield the totals of their keys.

        Raises:
            DataError: a sum leaves its type (ARITHMETIC_OVERFLOW).
        """
        if not batch.num_rows:
            return iter(())
        partial = pa.Table.from_batches([batch]).select(self._layout.schema.names)
        if self._spec.emits == "retract":
            before, after = map(Totals.all_there, self._rows.change(partial))
            results = self._spec.results
            return differences(before.mapped(results), after.mapped(results), self._schema)
        totals = self._spec.results(self._rows.update(partial))
        table = pa.Table.from_arrays(totals.columns, schema=self._schema)
        return iter(table.to_batches(max_chunksize=OUTPUT_ROWS_MAX))

    def on_watermark(self, watermark_us: int) -> Iterable[pa.RecordBatch]:
        """Yield nothing: results do not depend on event time."""
        del watermark_us
        return ()

    def snapshot(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        """Pin the totals; their table is built in the asynchronous phase."""
        del checkpoint_id
        return self._pending(self._rows.pin())

    def snapshot_changes(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        """Pin the totals that changed since the last call; a later one replaces an earlier one."""
        del checkpoint_id
        return self._pending(self._rows.take_changes())

    def merge_tables(
        self, name: str, tables: Iterable[pa.Table], expired_us: int | None
    ) -> Iterable[pa.Table]:
        """Keep the newest total of each key."""
        del name, expired_us  # There is one table, and no row expires.
        newest = newest_rows(tables, self._layout.keys, self._layout.stored_schema)
        yield with_versions(newest, self._layout.accumulators)

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        """Restore from the snapshots of all subtasks whose key groups overlap this one's.

        Raises:
            IncompatibleStateError: the state belongs to another aggregation, or to another version
                of one of its functions (OPERATORS_CHANGED).
        """
        restored_key_groups(snapshots, self._context)
        owned = owned_key_groups(self._context)
        for snapshot in snapshots:
            for table in snapshot.rows():
                self._rows.replace(
                    rows_of_key_groups(
                        require_totals(table, self._layout, self._spec.operator_id), owned
                    )
                )

    def _pending(self, pinned: PinnedRows) -> PendingSnapshot:
        properties, max_parallelism = (
            key_group_properties(self._context),
            self._context.max_parallelism,
        )

        def finish_snapshot() -> Snapshot:
            tables = pinned.stored_tables(max_parallelism)
            needed = pinned.layout.accumulators
            return Snapshot.of((with_versions(table, needed) for table in tables), properties)

        return finish_snapshot
