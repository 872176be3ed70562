"""The first rows of each key in some order: the largest ten, or the last one.

Rows are only added, so a row that has fallen out never comes back, and the state is at most
``count`` rows per key. They are one value per key: a list of rows, in their order. For each batch,
the rows that fall out and those that come in are emitted, with weights; or, if ``replaces`` is set,
the row that replaces the earlier one.

Rows that are equal in the columns of the order are compared by all columns, because the order in
which they come does not survive a restart.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from laminar_core.aggregates.grouping import plain_column, plain_type
from laminar_core.aggregates.row_groups import Integers, as_array, listed, unlisted
from laminar_core.aggregates.row_order import places, total_order
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators.base import (
    JsonObject,
    OutputMode,
    SubtaskContext,
)
from laminar_core.operators.columns import require_columns, require_distinct
from laminar_core.operators.joins.output import in_pieces
from laminar_core.operators.kept_values import KeepsValues, Kept, KeptValues
from laminar_core.operators.process.keys import Keys
from laminar_core.operators.sort_keys import SortKey
from laminar_core.operators.weights import as_batch, consolidate, weighted, weighted_schema
from laminar_core.state.named_tables import TABLES, described
from laminar_core.state.rescaling import Redistribution
from laminar_core.units import is_whole

TOP = "top"
"""The table of state: a list of rows per key."""
COUNT_MAX = 10_000
"""More rows per key would be written again for each change of the key."""


@dataclass(frozen=True, slots=True)
class TopRows:
    """Keep the first ``count`` rows of each key in the order ``by``.

    ``rank``: the name of a column with the place of a row, from 1. ``replaces``: instead of
    weights, emit the row that replaces the earlier one; then ``count`` is 1, and of tied rows the
    greatest is first. ``time``: the column
    of event time, which may lag ``lag_us`` behind the watermark, if keys expire: ``ttl_us`` after
    the newest row that has come into their rows.
    """

    redistribution: ClassVar[Redistribution] = "keyed"
    accepts: ClassVar[frozenset[OutputMode]] = frozenset({"append"})
    operator_id: str
    keys: tuple[str, ...]
    count: int
    by: tuple[SortKey, ...]
    rank: str | None = None
    replaces: bool = False
    time: str | None = None
    ttl_us: int | None = None
    lag_us: int = 0

    def __post_init__(self) -> None:
        require_count(self.operator_id, self.count, self.by)

    @property
    def needs_event_time(self) -> bool:
        """Whether keys expire."""
        return self.ttl_us is not None

    @property
    def output_mode(self) -> OutputMode:
        """Rows that replace earlier ones, or rows with weights."""
        return "upsert" if self.replaces else "retract"

    @property
    def updates_by(self) -> tuple[str, ...]:
        """The columns that identify a row; none if old rows stay when keys expire."""
        if self.ttl_us is not None and not self.replaces:
            return ()
        if self.count == 1:
            return self.keys
        return () if self.rank is None else (*self.keys, self.rank)

    def describe(self) -> JsonObject:
        """Return keys, number and order: the meaning of the state.

        How long a key is kept may change from now on.
        """
        kept = Kept(TOP, pa.null(), self.keys, ttl_us=self.ttl_us)
        return {
            "kind": "top-rows",
            "keys": list(self.keys),
            "count": self.count,
            "by": [str(key) for key in self.by],
            "rank": self.rank,
            "replaces": self.replaces,
            TABLES: described([kept.layout(None)]),
        }

    def kept(self, input_schema: pa.Schema) -> Kept:
        """Return what is kept of each key.

        Of a last row, all rows that are newer than it are in time, however late: what a key has
        forgotten is older.
        """
        rows = pa.list_(pa.struct(list(self.rows_schema(input_schema))))
        time = self.time if self.needs_event_time else None
        late_after_us = (self.ttl_us or 0) if self.replaces else 0
        return Kept(TOP, rows, self.keys, time, self.ttl_us, self.lag_us, late_after_us)

    def rows_schema(self, input_schema: pa.Schema) -> pa.Schema:
        """Return the columns besides the keys, without dictionaries."""
        return pa.schema(
            [(f.name, plain_type(f.type)) for f in input_schema if f.name not in self.keys]
        )

    def output_schema(self, input_schema: pa.Schema) -> pa.Schema:
        """Return the input's columns without dictionaries, the rank, and the weight.

        Raises:
            ConfigurationError: a column is missing (WRONG_SCHEMA), cannot be a key or an event time
                (UNSUPPORTED_TYPE), or two would have one name (INVALID_PIPELINE).
        """
        self.kept(input_schema).check(input_schema)
        for key in self.by:
            require_columns(input_schema, [key.column])
        if all(name in self.keys for name in input_schema.names):
            raise ConfigurationError(
                ErrorCode.INVALID_PIPELINE,
                f"{self.operator_id} has no column besides its keys, so there is nothing to order",
            )
        ranked = [] if self.rank is None else [pa.field(self.rank, pa.int32())]
        plain = [pa.field(f.name, plain_type(f.type)) for f in input_schema]
        schema = pa.schema([*plain, *ranked])
        require_distinct(schema.names, "give the rank another name")
        return schema if self.replaces else weighted_schema(schema)

    def state_tables(self, input_schema: pa.Schema) -> Mapping[str, pa.Schema]:
        """Return a list of rows for each key."""
        return {TOP: self.kept(input_schema).layout(input_schema).schema}

    def open(self, context: SubtaskContext, input_schema: pa.Schema) -> "TopRowsKeeper":
        """Create the running instance."""
        return TopRowsKeeper(self, context, input_schema)


def require_count(operator_id: str, count: int, by: Sequence[SortKey]) -> None:
    """Accept a number of rows per key, and an order.

    Raises:
        ConfigurationError: the number is out of range, or there is no order (INVALID_OPTION).
    """
    problem = ""
    if not is_whole(count) or not 1 <= count <= COUNT_MAX:
        problem = f"keeps 1 to {COUNT_MAX:,} rows per key, not {count!r}"
    elif not by:
        problem = "needs a column to order by"
    if problem:
        raise ConfigurationError(ErrorCode.INVALID_OPTION, f"{operator_id} {problem}")


class _Candidates(NamedTuple):
    """Rows of some keys, those that are kept so far first.

    Shapes: ``numbers`` has the number of each row's key. ``kept``: the positions of the rows that
    are kept from now on, by key and then in their order; ``places`` has the place of each, from 0.
    """

    rows: pa.Table
    numbers: Integers
    old_count: int
    kept: Integers
    places: Integers


class TopRowsKeeper(KeepsValues):
    """One subtask: the first rows of the keys in its range of key groups."""

    def __init__(self, spec: TopRows, context: SubtaskContext, input_schema: pa.Schema) -> None:
        kept = spec.kept(input_schema)
        self._spec = spec
        self._names = spec.output_schema(input_schema).names
        self._rows_schema = spec.rows_schema(input_schema)
        self._state = KeptValues(kept, context, kept.layout(input_schema))

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield what changes in the rows of the batch's keys.

        Raises:
            DataError: keys expire, and a row has no event time (NULL_EVENT_TIME).
        """
        batch, times_us = self._state.in_time(batch)
        if not batch.num_rows:
            return
        keys = Keys.of_rows(batch, self._spec.keys, times_us)
        found = self._candidates(keys, batch)
        came = found.kept[found.kept >= found.old_count]
        if not len(came):
            return
        is_changed = np.zeros(len(keys), np.bool_)
        is_changed[found.numbers[came]] = True
        self._keep(keys, found, is_changed, times_us)
        yield from in_pieces([self._changes(keys, found, is_changed)])

    def _candidates(self, keys: Keys, batch: pa.RecordBatch) -> _Candidates:
        spec = self._spec
        held = self._state.values.get(keys)
        known = np.flatnonzero(held.is_valid().to_numpy(zero_copy_only=False))
        numbers, old = unlisted(held.drop_null(), known)
        table = pa.Table.from_batches([batch])
        fresh = [plain_column(table.column(name)) for name in self._rows_schema.names]
        rows = pa.concat_tables(
            [
                pa.Table.from_arrays(old.flatten(), schema=self._rows_schema),
                pa.Table.from_arrays(fresh, schema=self._rows_schema),
            ]
        )
        numbers = np.append(numbers, keys.of_row)
        by = [key for key in spec.by if key.column not in spec.keys]
        ranks = [numbers, *(rank for key in by for rank in key.ranks(rows))]
        order = total_order(ranks, rows, descending=spec.replaces)
        place = places(numbers[order])
        is_kept = place < spec.count
        return _Candidates(rows, numbers, len(old), order[is_kept], place[is_kept])

    def _keep(
        self, keys: Keys, found: _Candidates, is_changed: np.ndarray, times_us: Integers
    ) -> None:
        """Note the rows of the keys that have changed."""
        chosen = found.kept[is_changed[found.numbers[found.kept]]]
        numbers = (np.cumsum(is_changed) - 1)[found.numbers[chosen]]
        rows = found.rows.take(pa.array(chosen)).combine_chunks()
        columns = [as_array(column) for column in rows.columns]
        structs = pa.StructArray.from_arrays(columns, fields=list(self._rows_schema))
        changed = keys.take(is_changed)
        newest_us = np.full(len(changed), np.iinfo(np.int64).min)
        is_fresh = chosen >= found.old_count
        at_us = times_us[chosen[is_fresh] - found.old_count]
        np.maximum.at(newest_us, numbers[is_fresh], at_us)
        lists = listed(numbers, structs, len(changed))
        self._state.values.put(Keys(changed.table, changed.of_row, newest_us), lists)

    def _changes(self, keys: Keys, found: _Candidates, is_changed: np.ndarray) -> pa.Table:
        """Return the rows that come in, and those that fall out."""
        before = np.arange(found.old_count)
        old_places = places(found.numbers[: found.old_count])
        new_places = np.full(found.rows.num_rows, _OUT)
        new_places[found.kept] = found.places
        kept_places = new_places[: found.old_count]
        is_same = kept_places == old_places if self._spec.rank else kept_places != _OUT
        came = np.ones(found.rows.num_rows, np.bool_)
        came[: found.old_count] = ~is_same
        came &= new_places != _OUT
        came &= is_changed[found.numbers]
        gone = before[~is_same & is_changed[found.numbers[: found.old_count]]]
        if self._spec.replaces:
            gone = gone[:0]
        come = np.flatnonzero(came)
        chosen = np.append(gone, come)
        place = np.append(old_places[gone], new_places[come])
        table = found.rows.take(pa.array(chosen))
        for key in self._spec.keys:
            table = table.append_column(key, keys.column(key).take(pa.array(found.numbers[chosen])))
        if self._spec.rank is not None:
            table = table.append_column(self._spec.rank, pa.array(place + 1, pa.int32()))
        if self._spec.replaces:
            return table.select(self._names)
        weights = np.repeat([-1, 1], [len(gone), len(come)])
        changes = weighted(as_batch(table.select(self._names[:-1])), weights)
        return pa.Table.from_batches([consolidate(pa.Table.from_batches([changes]))])

    def on_watermark(self, watermark_us: int) -> Iterable[pa.RecordBatch]:
        """Yield nothing: what expires is forgotten and not taken back."""
        self._state.advance(watermark_us)
        return ()

    def output_watermark(self, watermark_us: int) -> int:
        """Return the watermark as it is: the result has no event time, as old rows go any time."""
        return watermark_us


_OUT = -1
