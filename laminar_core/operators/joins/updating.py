"""The join without bounds of time: every change of a side changes the result.

For each batch the difference is emitted, as rows with weights: pairs of the rows that come with
those that are there, and rows that lose or get their first partner. Inputs may have weights, too,
so a row can go before it has come; what is there is the sum.

Rows are kept for a time to live after their own event time, or for ever if that is asked for. What
has expired meets nothing any more, and nothing is taken back: a row that has had a partner keeps
it. So rows that are emitted alone know how many partners they have, and this is part of the state.
A row behind the watermark by more than the time to live is dropped as late.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from laminar_core.aggregates.grouping import plain_column
from laminar_core.aggregates.row_groups import Integers
from laminar_core.codec.stable_hash import require_key_type
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators.base import JsonObject, OutputMode, SubtaskContext
from laminar_core.operators.columns import require_columns
from laminar_core.operators.joins.columns import JoinedColumns
from laminar_core.operators.joins.kinds import How, has_left_only, is_marked, require_how
from laminar_core.operators.joins.output import in_pieces
from laminar_core.operators.joins.progress import JoinProgress
from laminar_core.operators.joins.rows_of_keys import NUMBER, RowsOfKeys, rows_of_keys
from laminar_core.operators.joins.side import (
    LEFT,
    RESERVED,
    RIGHT,
    EventRows,
    TwoSided,
    require_keys,
)
from laminar_core.operators.joins.subtask import HeldRows, JoinSubtask
from laminar_core.operators.process.keys import Keys
from laminar_core.operators.weights import (
    WEIGHT,
    WEIGHT_FIELD,
    as_batch,
    unweighted_schema,
    weighted_schema,
    weights_of,
)
from laminar_core.operators.windows import event_times_us, require_time_column
from laminar_core.protocol.types import WATERMARK_END_US
from laminar_core.state.expiry import EXPIRES
from laminar_core.state.named_tables import TABLES, added_up, as_bits, described, narrow_weights
from laminar_core.state.rows_layout import RowsLayout
from laminar_core.state.runs import blocks
from laminar_core.state.window_layout import TIME_TYPE

PARTNERS = "_partners"
"""How many rows of the other side a row has met, less those that were taken back (int64)."""


@dataclass(frozen=True, slots=True)
class UpdatingJoin(TwoSided):
    """Pair all rows with equal keys, and emit what each batch changes.

    ``ttl_us``: how long after its time a row is kept; None: for ever, and the sides need no time.
    ``weighted``: which inputs have weights.
    """

    output_mode: ClassVar[OutputMode] = "retract"
    accepts: ClassVar[frozenset[OutputMode]] = frozenset({"append", "retract"})
    _: KW_ONLY
    how: How = "inner"
    ttl_us: int | None = None
    weighted: tuple[bool, bool] = (False, False)

    def __post_init__(self) -> None:
        require_how(self.how, self.operator_id)

    @property
    def needs_event_time(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether rows expire."""
        return self.ttl_us is not None

    def describe(self) -> JsonObject:
        """Return keys, times, kind and time to live: the meaning of the state."""
        layouts = [
            RowsLayout(side.keys, pa.schema([WEIGHT_FIELD])).table(side.name) for side in self.sides
        ]
        return {
            "kind": "updating-join",
            "left": self.left.describe(),
            "right": self.right.describe(),
            "how": self.how,
            "ttl_us": self.ttl_us,
            TABLES: described(layouts),
        }

    def plain_inputs(self, inputs: Sequence[pa.Schema]) -> tuple[pa.Schema, ...]:
        """Return the columns of both inputs without weights."""
        return tuple(
            unweighted_schema(schema) if is_weighted else schema
            for schema, is_weighted in zip(inputs, self.weighted, strict=True)
        )

    def require_inputs(self, inputs: Sequence[pa.Schema]) -> None:
        """Accept inputs that can be joined.

        Raises:
            ConfigurationError: a column is missing (WRONG_SCHEMA), of a type that cannot be used so
                (UNSUPPORTED_TYPE), or has a name that state needs (INVALID_PIPELINE).
        """
        plain = self.plain_inputs(inputs)
        for side, schema in zip(self.sides, plain, strict=True):
            require_columns(schema, side.keys if self.ttl_us is None else [*side.keys, side.time])
            for key in side.keys:
                require_key_type(schema.field(key).type)
            if self.ttl_us is not None:
                require_time_column(schema, side.time)
            for name in schema.names:
                if name in (*RESERVED, PARTNERS, NUMBER):
                    raise ConfigurationError(
                        ErrorCode.INVALID_PIPELINE,
                        f"a join keeps a column {name!r} of its own, and its {side.name} input has"
                        " one: give it another name with map",
                    )
            weighted_schema(schema)
        require_keys(*self.sides, plain)

    def columns(self, *inputs: pa.Schema) -> JoinedColumns:
        """Return the columns of the result, without the weight."""
        left_only = has_left_only(self.how)
        return JoinedColumns(
            self.sides, self.plain_inputs(inputs), self.suffix, left_only=left_only
        )

    def output_schema(self, *inputs: pa.Schema) -> pa.Schema:
        """Return the columns of the left side, then those of the right, then the weight.

        Raises:
            ConfigurationError: see ``require_inputs``; or two columns would have one name.
        """
        self.require_inputs(inputs)
        return weighted_schema(self.columns(*inputs).schema)

    def layouts(self, *inputs: pa.Schema) -> tuple[RowsLayout, RowsLayout]:
        """Return the columns of the state of each side; of some right sides only the keys."""
        left, right = self.plain_inputs(inputs)
        return self._layout(LEFT, left), self._layout(RIGHT, right)

    def _layout(self, index: int, schema: pa.Schema) -> RowsLayout:
        side = self.sides[index]
        kept = side.plain_schema(schema)
        if index == RIGHT and has_left_only(self.how):
            kept = pa.schema([kept.field(key) for key in side.keys])
        if is_marked(self.how, index):
            kept = kept.append(pa.field(PARTNERS, pa.int64()))
        if self.ttl_us is not None:
            kept = kept.append(pa.field(EXPIRES, TIME_TYPE))
        return RowsLayout(side.keys, kept.append(WEIGHT_FIELD))

    def state_tables(self, *inputs: pa.Schema) -> Mapping[str, pa.Schema]:
        """Return the columns of both tables."""
        layouts = zip(self.sides, self.layouts(*inputs), strict=True)
        return {side.name: layout.stored_schema for side, layout in layouts}

    def open(self, context: SubtaskContext, *inputs: pa.Schema) -> "UpdatingJoiner":
        """Create the running instance."""
        return UpdatingJoiner(self, context, inputs)


class UpdatingJoiner(JoinSubtask):
    """One subtask: the rows of both sides whose keys are in its range of key groups."""

    def __init__(
        self, spec: UpdatingJoin, context: SubtaskContext, inputs: Sequence[pa.Schema]
    ) -> None:
        self._spec = spec
        self._columns = spec.columns(*inputs)
        layouts = zip(spec.sides, spec.layouts(*inputs), strict=True)
        self._held = [
            HeldRows(side.name, layout, _found_by, context.backend) for side, layout in layouts
        ]
        lag_us = spec.lag_us + (spec.ttl_us or 0)
        super().__init__(context, JoinProgress(context, spec.lag_us), self._held)
        self._held_back_us = lag_us

    def rows_at_once(self, index: int, batch: pa.RecordBatch) -> int:
        """Return how many rows to take at once, so that a cut need not wait for a hot key."""
        return self._held[1 - index].rows.rows_at_once(batch, self._spec.sides[index].keys)

    def process_input(self, index: int, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Keep the rows, or take them away; yield what this changes.

        Raises:
            DataError: rows expire, and one has no event time (NULL_EVENT_TIME).
        """
        rows, keyless = self._read(index, batch)
        yield from in_pieces(self._alone(index, keyless, _zeros(keyless)))
        if not rows.num_rows:
            return
        side = self._spec.sides[index]
        keys = Keys.of_rows(as_batch(rows), side.keys, _zeros(rows))
        mine, theirs = RowsOfKeys(rows, keys.of_row), self._rows_of(1 - index, keys)
        partners = self._partners_of(index, keys, mine, theirs)
        self._add(index, rows, partners)
        change = mine.per_key(len(keys))[theirs.numbers]
        if is_marked(self._spec.how, 1 - index):
            self._change_partners(1 - index, theirs, change)
        yield from in_pieces(self._differences(index, mine, partners, theirs, change))

    def on_watermark(self, watermark_us: int) -> Iterator[pa.RecordBatch]:
        """Drop what has expired, and yield nothing."""
        passed_us = self._progress.advance(watermark_us)
        if passed_us is None or self._spec.ttl_us is None:
            return iter(())
        for held in self._held:
            gone = [weights_of(picked.table()).sum() for picked in held.rows.expiring(passed_us)]
            if watermark_us != WATERMARK_END_US:
                self._progress.expired_row_count += int(sum(gone))
            held.rows.expire(passed_us)
        return iter(())

    def output_watermark(self, watermark_us: int) -> int:
        """Return the watermark, held back to the oldest row that may be kept."""
        return self._progress.of_times(watermark_us) - (self._spec.ttl_us or 0)

    # --- rows that come -------------------------------------------------------------------------

    def _read(self, index: int, batch: pa.RecordBatch) -> tuple[pa.Table, pa.Table]:
        """Return the rows that are in time, each once with its weight; apart those of null keys."""
        spec, side = self._spec, self._spec.sides[index]
        layout = self._held[index].rows.layout
        weights = weights_of(batch) if spec.weighted[index] else np.ones(batch.num_rows, np.int32)
        columns = {
            name: plain_column(pa.chunked_array([batch.column(name)]))
            for name in batch.schema.names
            if name != WEIGHT
        }
        rows = pa.table(columns).append_column(WEIGHT_FIELD, pa.array(weights, WEIGHT_FIELD.type))
        if spec.ttl_us is not None:
            expires_us = event_times_us(batch, side.time) + spec.ttl_us
            events = self._progress.in_time(EventRows(rows, expires_us), side.keys)
            rows = events.expiring_after(0)
        keyless = np.zeros(rows.num_rows, np.bool_)
        for key in side.keys:
            keyless |= rows.column(key).is_null().to_numpy()
        alone = rows.filter(pa.array(keyless)) if keyless.any() else rows.slice(0, 0)
        names = [name for name in layout.schema.names if name != PARTNERS]
        return added_up(rows.filter(pa.array(~keyless)).select(names)), added_up(alone)

    def _rows_of(self, index: int, keys: Keys) -> RowsOfKeys:
        """Return the rows of one side that are there of these keys, by the number of the key."""
        return rows_of_keys(self._held[index].rows, keys, self._progress.passed_us)

    def _partners_of(
        self, index: int, keys: Keys, mine: RowsOfKeys, theirs: RowsOfKeys
    ) -> Integers:
        """Return how many partners the rows that come have: what is known of an equal row.

        Without a time to live that is the number of those that are there.
        """
        there = theirs.per_key(len(keys))[mine.numbers]
        if self._spec.ttl_us is None or not is_marked(self._spec.how, index):
            return there
        known = self._rows_of(index, keys)
        if not len(known.numbers):
            return there
        names = [name for name in mine.table.column_names if name != WEIGHT]
        both = pa.concat_tables([known.table.select(names), mine.table.select(names)])
        bits = pa.table({name: as_bits(both.column(name)) for name in names})
        same = Keys.of_rows(as_batch(bits), names, _zeros(bits)).of_row
        before, now = same[: len(known.numbers)], same[len(known.numbers) :]
        partners = np.zeros(int(same.max()) + 1, np.int64)
        is_known = np.zeros(len(partners), np.bool_)
        partners[before], is_known[before] = _partners(known), True
        return np.where(is_known[now], partners[now], there)

    # --- state ----------------------------------------------------------------------------------

    def _add(self, index: int, rows: pa.Table, partners: Integers) -> None:
        """Add rows, or take rows away that have these partners."""
        held = self._held[index].rows
        if is_marked(self._spec.how, index):
            if PARTNERS in rows.column_names:
                rows = rows.drop_columns([PARTNERS])
            rows = rows.append_column(PARTNERS, pa.array(partners))
        rows = rows.select(held.layout.schema.names).cast(held.layout.schema)
        held.add(held.arranged(rows, _found_by(rows)))

    def _change_partners(self, index: int, rows: RowsOfKeys, change: Integers) -> None:
        """Note that rows that are there have more partners, or fewer."""
        changed = np.flatnonzero(change)
        if not len(changed):
            return
        table, weights = rows.table.take(pa.array(changed)), rows.weights[changed]
        before = _partners(rows)[changed]
        after = before + change[changed]
        both = pa.concat_tables([_reweighted(table, -weights), _reweighted(table, weights)])
        self._add(index, both, np.append(before, after))

    # --- what changes ---------------------------------------------------------------------------

    def _differences(
        self, index: int, mine: RowsOfKeys, partners: Integers, theirs: RowsOfKeys, change: Integers
    ) -> Iterator[pa.Table]:
        """Yield pairs, and rows of either side that are alone, or no more."""
        if not has_left_only(self._spec.how):
            yield from self._pairs(index, mine, theirs)
        yield from self._alone(index, mine.table, partners)
        if is_marked(self._spec.how, 1 - index):
            before = _partners(theirs)
            was, is_now = (
                self._is_out(count).astype(np.int64) for count in (before, before + change)
            )
            weights = theirs.weights * (is_now - was)
            yield from self._unpaired(1 - index, theirs.table, weights)

    def _pairs(self, index: int, mine: RowsOfKeys, theirs: RowsOfKeys) -> Iterator[pa.Table]:
        first = np.searchsorted(theirs.numbers, mine.numbers, "left")
        count = np.searchsorted(theirs.numbers, mine.numbers, "right") - first
        weights, their_weights = mine.weights, theirs.weights
        for at, their_at in blocks(first, count):
            rows, partners = mine.table.take(pa.array(at)), theirs.table.take(pa.array(their_at))
            both = (rows, partners) if index == LEFT else (partners, rows)
            yield _weighted(self._columns.paired(*both), weights[at] * their_weights[their_at])

    def _alone(self, index: int, rows: pa.Table, partners: Integers) -> Iterator[pa.Table]:
        """Yield those of the rows that come that are in the result by themselves."""
        if is_marked(self._spec.how, index):
            weights = weights_of(rows).astype(np.int64) * self._is_out(partners)
            yield from self._unpaired(index, rows, weights)

    def _is_out(self, partners: Integers) -> np.ndarray:
        """Return which rows with so many partners are in the result by themselves."""
        return partners > 0 if self._spec.how == "semi" else partners <= 0

    def _unpaired(self, index: int, rows: pa.Table, weights: Integers) -> Iterator[pa.Table]:
        chosen = np.flatnonzero(weights)
        if len(chosen):
            some = rows.take(pa.array(chosen))
            yield _weighted(self._columns.unpaired(index, some), weights[chosen])


def _found_by(rows: pa.Table) -> Integers:
    """Return the time by which rows are found: they are not, so when they expire."""
    if EXPIRES not in rows.column_names:
        return _zeros(rows)
    return rows.column(EXPIRES).cast(pa.int64()).to_numpy()


def _partners(rows: RowsOfKeys) -> Integers:
    """Return how many partners each row has."""
    return rows.table.column(PARTNERS).to_numpy()


def _zeros(rows: pa.Table) -> Integers:
    return np.zeros(len(rows), np.int64)


def _reweighted(rows: pa.Table, weights: Integers) -> pa.Table:
    return _weighted(rows.drop_columns([WEIGHT]), weights)


def _weighted(rows: pa.Table, weights: Integers) -> pa.Table:
    wide = pa.chunked_array([weights.astype(np.int64)])
    return rows.append_column(WEIGHT_FIELD, narrow_weights(wide, WEIGHT_FIELD.type))
