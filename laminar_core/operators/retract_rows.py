"""Rows that replace each other become rows that come and go.

The last row of each key is kept. A row that replaces it takes it back with the weight -1, and comes
with 1 itself; a row that equals it says nothing. So what is behind can subtract the old row, as it
does with totals that retract.

Which row of a key is the last one is a matter of order: rows of a key have to come from one
subtask, as its operator emitted them.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from laminar_core.aggregates.grouping import plain_column, plain_type
from laminar_core.aggregates.row_groups import Integers, as_array
from laminar_core.codec.canonical import canonical
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators.base import JsonObject, OutputMode, SubtaskContext
from laminar_core.operators.kept_values import KeepsValues, Kept, KeptValues
from laminar_core.operators.process.keys import Keys
from laminar_core.operators.updating_totals import Totals, differences
from laminar_core.operators.weights import weighted_schema
from laminar_core.state.named_tables import TABLES, described
from laminar_core.state.rescaling import Redistribution

LAST = "last"
"""The table of state: the last row of each key, without the key."""


@dataclass(frozen=True, slots=True)
class RetractRows:
    """Take the earlier row of a key back when another one replaces it.

    ``time``: the column of event time, whose values may lag ``lag_us`` behind the watermark, if
    keys are forgotten: ``ttl_us`` after their newest row.
    """

    redistribution: ClassVar[Redistribution] = "keyed"
    output_mode: ClassVar[OutputMode] = "retract"
    accepts: ClassVar[frozenset[OutputMode]] = frozenset({"upsert"})
    operator_id: str
    keys: tuple[str, ...]
    time: str | None = None
    ttl_us: int | None = None
    lag_us: int = 0

    @property
    def needs_event_time(self) -> bool:
        """Whether keys are forgotten."""
        return self.ttl_us is not None

    @property
    def updates_by(self) -> tuple[str, ...]:
        """The columns that identify a row; none if old rows can stay when keys are forgotten."""
        return self.keys if self.ttl_us is None or self.time in self.keys else ()

    def describe(self) -> JsonObject:
        """Return the keys. How long a key is kept may change from now on."""
        layout = Kept(LAST, pa.null(), self.keys, ttl_us=self.ttl_us).layout(None)
        return {"kind": "retract-rows", "keys": list(self.keys), TABLES: described([layout])}

    def rows_schema(self, input_schema: pa.Schema) -> pa.Schema:
        """Return the columns besides the keys, without dictionaries."""
        return pa.schema(
            [(f.name, plain_type(f.type)) for f in input_schema if f.name not in self.keys]
        )

    def kept(self, input_schema: pa.Schema) -> Kept:
        """Return what is kept of each key."""
        row = pa.struct(list(self.rows_schema(input_schema)))
        return Kept(LAST, row, self.keys, self.time, self.ttl_us, self.lag_us)

    def output_schema(self, input_schema: pa.Schema) -> pa.Schema:
        """Return the input's columns without dictionaries, and the weight.

        Raises:
            ConfigurationError: a column is missing (WRONG_SCHEMA), cannot be compared or is no
                event time (UNSUPPORTED_TYPE), or there are only keys (INVALID_PIPELINE).
        """
        self.kept(input_schema).check(input_schema)
        if all(name in self.keys for name in input_schema.names):
            raise ConfigurationError(
                ErrorCode.INVALID_PIPELINE,
                f"{self.operator_id} has no column besides its keys, so no row differs from the"
                " one that it replaces: call .changes() and .distinct() instead",
            )
        plain = pa.schema([(f.name, plain_type(f.type)) for f in input_schema])
        return weighted_schema(plain)

    def state_tables(self, input_schema: pa.Schema) -> Mapping[str, pa.Schema]:
        """Return the keys, and a row for each."""
        return {LAST: self.kept(input_schema).layout(input_schema).schema}

    def open(self, context: SubtaskContext, input_schema: pa.Schema) -> "RowsRetractor":
        """Create the running instance."""
        return RowsRetractor(self, context, input_schema)


class RowsRetractor(KeepsValues):
    """One subtask: the last rows of the keys in its range of key groups."""

    def __init__(self, spec: RetractRows, context: SubtaskContext, input_schema: pa.Schema) -> None:
        kept = spec.kept(input_schema)
        self._keys = spec.keys
        self._schema = spec.output_schema(input_schema)
        self._rows_schema = spec.rows_schema(input_schema)
        self._state = KeptValues(kept, context, kept.layout(input_schema))

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the rows that are replaced and those that replace them, of each key at most one.

        Raises:
            DataError: keys are forgotten, and a row has no event time (NULL_EVENT_TIME).
        """
        batch, times_us = self._state.in_time(batch)
        if not batch.num_rows:
            return
        keys = Keys.of_rows(batch, self._keys, times_us)
        before = self._state.values.get(keys)
        after = self._last_rows(keys, batch)
        self._state.values.put(keys, after)
        was_there = before.is_valid().to_numpy(zero_copy_only=False)
        yield from differences(
            Totals(self._whole(keys, before), was_there),
            Totals.all_there(self._whole(keys, after)),
            self._schema,
        )

    def on_watermark(self, watermark_us: int) -> Iterable[pa.RecordBatch]:
        """Yield nothing: what expires is forgotten and not taken back."""
        self._state.advance(watermark_us)
        return ()

    def output_watermark(self, watermark_us: int) -> int:
        """Return the watermark as it is: only columns of the key keep their event time."""
        return watermark_us

    def _last_rows(self, keys: Keys, batch: pa.RecordBatch) -> pa.StructArray:
        """Return the last row of each key. Floats have one form of zero and NaN."""
        last: Integers = np.zeros(len(keys), np.int64)
        places: Integers = np.arange(batch.num_rows, dtype=np.int64)
        np.maximum.at(last, keys.of_row, places)
        rows = pa.Table.from_batches([batch.take(pa.array(last))])
        columns = [
            canonical(as_array(plain_column(rows.column(name)))) for name in self._rows_schema.names
        ]
        return pa.StructArray.from_arrays(columns, fields=list(self._rows_schema))

    def _whole(self, keys: Keys, rows: pa.StructArray) -> pa.Table:
        """Put keys and rows together, in the order of the output."""
        columns = dict(zip(self._rows_schema.names, rows.flatten(), strict=True))
        columns |= {name: keys.column(name) for name in self._keys}
        return pa.table({name: columns[name] for name in self._schema.names[:-1]})
