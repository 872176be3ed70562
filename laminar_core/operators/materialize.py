"""One row per key out of rows that come and go, for a sink that replaces and deletes rows by key.

All rows of a key that are there are kept, with their weights. The row of the key is the greatest of
them, compared column by column; null is least and NaN greatest. So it does not depend on the order
in which they came. If the key of the sink is a key of the stream, there is one row of it at a time.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from laminar_core.aggregates.accumulators import Aggregate
from laminar_core.codec.arrow import empty_table
from laminar_core.operators.base import JsonObject, OutputMode, SubtaskContext
from laminar_core.operators.running import RunningAggregate
from laminar_core.operators.updating_totals import (
    Totals,
    UpdatingTotals,
    changed,
    described_totals,
    with_weight,
)
from laminar_core.operators.weights import weighted_schema
from laminar_core.state.rescaling import Redistribution

_ROW = "the row"


@dataclass(frozen=True, slots=True)
class Materialize:
    """Emit the row of each key that has changed with weight 1; with -1 the last one of its key.

    Input: the output of a ``CombineRows`` with the same keys and ``aggregates``. ``names``: the
    columns of the rows, in the order of the output.
    """

    redistribution: ClassVar[Redistribution] = "keyed"
    output_mode: ClassVar[OutputMode] = "upsert"
    operator_id: str
    keys: tuple[str, ...]
    names: tuple[str, ...]

    @property
    def updates_by(self) -> tuple[str, ...]:
        """The key by which a row replaces an earlier one."""
        return self.keys

    @property
    def aggregates(self) -> tuple[Aggregate, ...]:
        """The aggregate that keeps the rows of each key, without the key."""
        rest = tuple(name for name in self.names if name not in self.keys)
        kept = Aggregate("row", None, _ROW, rest) if rest else Aggregate("count", None, _ROW)
        return (kept.over_weights(),)

    def describe(self) -> JsonObject:
        """Return keys and columns: the meaning of the state."""
        return {
            "kind": "materialize",
            "keys": list(self.keys),
            "names": list(self.names),
            **described_totals(self.keys),
        }

    def output_schema(self, input_schema: pa.Schema) -> pa.Schema:
        """Return the columns of the rows, and a weight.

        Raises:
            ConfigurationError: the input does not come from the matching ``CombineRows``
                (WRONG_SCHEMA).
        """
        totals = self._totals
        layout = totals.layout(input_schema)
        nothing = self._rows(totals.results(empty_table(layout.schema)))
        return weighted_schema(nothing.schema)

    def state_tables(self, input_schema: pa.Schema) -> Mapping[str, pa.Schema]:
        """Return key group, keys, the rows with their weights."""
        return self._totals.state_tables(input_schema)

    def open(self, context: SubtaskContext, input_schema: pa.Schema) -> UpdatingTotals:
        """Create the running instance."""
        totals, schema = self._totals, self.output_schema(input_schema)

        def emit(before: Totals, after: Totals) -> Iterator[pa.RecordBatch]:
            before, after = (t.mapped(totals.results).mapped(self._rows) for t in (before, after))
            _, comes = changed(before, after)
            gone = before.are_there & ~after.are_there[: before.rows.num_rows]
            yield from with_weight(before.rows, gone, -1, schema)
            yield from with_weight(after.rows, comes & after.are_there, 1, schema)

        return UpdatingTotals(totals.layout(input_schema), emit, context)

    @property
    def _totals(self) -> RunningAggregate:
        return RunningAggregate(self.operator_id, self.keys, self.aggregates, "retract")

    def _rows(self, results: pa.Table) -> pa.Table:
        """Take the rows out of what is kept of their keys."""
        columns = {key: results.column(key) for key in self.keys}
        kept = results.column(_ROW).combine_chunks()
        if pa.types.is_struct(kept.type):
            columns |= dict(zip(kept.type.names, kept.flatten(), strict=True))
        return pa.table({name: columns[name] for name in self.names})
