"""The running side of ``PartialAggregate``: it combines batches, large ones in bundles.

A bundle has its rows only for as long as more of them come, see ``KeepsBundle``. A pane leaves it
before event time passes the end of the pane, so no row becomes late by waiting in a bundle.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from laminar_core.aggregates.accumulators import accumulate
from laminar_core.aggregates.bundle import Addition, Bundle, Panes, PartialResults
from laminar_core.aggregates.grouping import plain_column
from laminar_core.aggregates.single_rows import Density, single_rows
from laminar_core.operators.base import PendingSnapshot, Snapshot
from laminar_core.operators.windows import event_times_us, pane_numbers, pane_starts
from laminar_core.protocol.types import CheckpointId
from laminar_core.state.window_layout import TIME_TYPE, WINDOW_START

if TYPE_CHECKING:
    from laminar_core.operators.aggregation import PartialAggregate

BUNDLED_ROWS_MIN = 4_096
"""Smaller batches are passed on by themselves: more of them come, or they are all there is."""

OUTPUT_ROWS_MAX = 65_536


class Combiner:
    """Reduces batches to one row of accumulators per key and pane."""

    def __init__(self, spec: "PartialAggregate") -> None:
        self._spec = spec
        self._accumulators = spec.accumulators
        self._densities = (Density(), Density())
        """The first judges batches with a few rows, the second larger ones."""
        self._bundle = Bundle(self._accumulators)
        self._bundles = spec.bundles and bool(spec.keys)
        self._closed: int | None = None
        """Panes before this one are over; None: all are open."""

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Combine one batch, or add it to the bundle.

        Raises:
            DataError: a row has no usable event time, or an integer sum leaves 64 bits.
        """
        if not batch.num_rows:
            return
        rows = pa.Table.from_batches([batch])
        panes = self._panes_of(batch)
        addition = self._addition(rows, panes)
        if addition is None:
            yield self._combined(rows, panes)
            return
        if not self._bundle.has_room(addition):
            yield from self.finish_bundle()
        self._bundle.add(addition)
        yield from self._finish_closed()

    def on_watermark(self, watermark_us: int) -> Iterator[pa.RecordBatch]:
        """Yield what the bundle has of panes that are over then."""
        self._closed = pane_numbers(self._spec.window, watermark_us - self._spec.time_lag_us)
        return self._finish_closed()

    def output_watermark(self, watermark_us: int) -> int:
        """Return what is certain of the time column.

        Panes begin before their rows, but the end of a pane decides whether its rows are late.
        """
        return watermark_us - self._spec.time_lag_us

    @property
    def has_bundle(self) -> bool:
        """See ``KeepsBundle``."""
        return self._bundle.first_pane is not None

    def finish_bundle(self) -> Iterator[pa.RecordBatch]:
        """See ``KeepsBundle``."""
        return self._finished(None)

    def snapshot(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        """Record that there is nothing to record: the bundle is finished."""
        del checkpoint_id
        assert not self.has_bundle, "a cut finishes bundles first"
        return Snapshot

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        """Do nothing: there is no state."""

    def _panes_of(self, batch: pa.RecordBatch) -> Panes:
        times = event_times_us(batch, self._spec.time_column)
        ends = np.array([times.min(), times.max()])
        first, last = pane_numbers(self._spec.window, ends).tolist()
        # A constant need not be computed row by row, let alone grouped by.
        return Panes(first, last, pane_numbers(self._spec.window, times) if first < last else None)

    def _addition(self, rows: pa.Table, panes: Panes) -> Addition | None:
        has_few_rows = rows.num_rows < BUNDLED_ROWS_MIN
        is_hopeless = not self.has_bundle if has_few_rows else self._density_of(rows).is_sparse
        if not self._bundles or is_hopeless:
            return None
        keys = [rows.column(key) for key in self._spec.keys]
        addition = self._bundle.addition(keys, panes, rows)
        if addition is not None and has_few_rows and not self._bundle.has_room(addition):
            return None
        return addition

    def _density_of(self, rows: pa.Table) -> Density:
        # Nearly every row of a few has a key of its own, which says nothing about many.
        of_few, of_many = self._densities
        return of_few if rows.num_rows < BUNDLED_ROWS_MIN else of_many

    def _finish_closed(self) -> Iterator[pa.RecordBatch]:
        first = self._bundle.first_pane
        if first is None or self._closed is None or first >= self._closed:
            return iter(())
        return self._finished(self._closed)

    def _finished(self, before: int | None) -> Iterator[pa.RecordBatch]:
        for results in self._bundle.take(before):
            yield from self._batches(results)

    def _batches(self, results: PartialResults) -> Iterator[pa.RecordBatch]:
        accumulators = zip(self._accumulators, results.values, strict=True)
        columns = {needs.name: values for needs, values in accumulators}
        columns |= zip(self._spec.keys, results.keys, strict=True)
        columns = {name: pa.chunked_array([column]) for name, column in columns.items()}
        yield from self._table(columns, results.pane).to_batches(OUTPUT_ROWS_MAX)

    def _combined(self, rows: pa.Table, panes: Panes) -> pa.RecordBatch:
        """Reduce one batch, unless nearly every row of earlier ones had a key of its own."""
        keys = {key: rows.column(key) for key in self._spec.keys}
        if panes.of_rows is not None:
            keys[WINDOW_START] = pa.chunked_array([_encoded(panes)])
        density = self._density_of(rows)
        found = single_rows(rows, self._accumulators) if density.is_sparse else None
        if found is not None:
            found |= keys
            density.left_alone()
        else:
            combined = accumulate(keys, rows, self._accumulators)
            density.combined(rows.num_rows, combined.num_rows)
            found = {name: combined.column(name) for name in combined.column_names}
        columns = {name: plain_column(column) for name, column in found.items()}
        return self._table(columns, panes.first).combine_chunks().to_batches()[0]

    def _table(self, columns: dict[str, pa.ChunkedArray], pane: int) -> pa.Table:
        """Put the columns in order; rows without a pane are of this one."""
        row_count = len(next(iter(columns.values())))
        if WINDOW_START in columns:
            starts = pane_starts(self._spec.window, columns[WINDOW_START].to_numpy())
            start_of_rows = pa.array(starts).cast(TIME_TYPE)
        else:
            start = pa.scalar(pane_starts(self._spec.window, pane), TIME_TYPE)
            start_of_rows = pa.repeat(start, row_count)
        columns[WINDOW_START] = pa.chunked_array([start_of_rows])
        names = [*self._spec.keys, WINDOW_START, *(needs.name for needs in self._accumulators)]
        return pa.table({name: columns[name] for name in names})


def _encoded(panes: Panes) -> pa.Array:
    """Encode pane numbers as a dictionary of all from the first to the last, if those are few."""
    assert panes.of_rows is not None
    if panes.last - panes.first >= len(panes.of_rows):
        return pa.array(panes.of_rows)
    indices = pa.array(panes.of_rows - panes.first).cast(pa.int32())
    return pa.DictionaryArray.from_arrays(indices, pa.array(range(panes.first, panes.last + 1)))
