"""The inputs of a join: their keys, their event time, and the rows that are kept of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from laminar_core.aggregates.grouping import has_nulls, plain_column, plain_type
from laminar_core.aggregates.row_groups import Integers, as_array
from laminar_core.codec.stable_hash import require_key_type
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators.base import LATE, JsonObject, Side
from laminar_core.operators.columns import require_columns
from laminar_core.operators.windows import known_times_us, require_time_column
from laminar_core.state.expiry import EXPIRES
from laminar_core.state.named_tables import WEIGHT
from laminar_core.state.rescaling import Redistribution
from laminar_core.state.rows_layout import MATCHED, RowsLayout
from laminar_core.state.window_layout import KEY_GROUP, TIME_TYPE

LEFT, RIGHT = 0, 1
"""The numbers of the inputs."""
SUFFIX = "_right"
"""By default, columns of the right side whose names are taken end with this."""

RESERVED = (KEY_GROUP, EXPIRES, MATCHED, WEIGHT)
"""Names of columns of state; no column of an input has one."""


class HasKeys(Protocol):
    """An input with key columns."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of its keys."""
        ...


@dataclass(frozen=True, slots=True)
class JoinSide:
    """The columns by which an input is joined. ``name`` names its table of state.

    ``until``: a column with the greatest time of a partner, for each row its own.
    """

    name: str
    keys: tuple[str, ...]
    time: str
    until: str | None = None

    def describe(self) -> JsonObject:
        """Return the columns."""
        said: JsonObject = {"keys": list(self.keys), "time": self.time}
        return said if self.until is None else {**said, "until": self.until}

    @property
    def late_output(self) -> str:
        """The side output of rows of this input that came too late, in ``plain_schema``."""
        return f"{LATE}_{self.name}"

    def given_back(self, late: pa.Table) -> Iterator[Side]:
        """Yield rows that came too late."""
        return (Side(self.late_output, rows) for rows in late.to_batches() if rows.num_rows)

    def check(self, schema: pa.Schema) -> None:
        """Accept an input with these columns.

        Raises:
            ConfigurationError: a column is missing (WRONG_SCHEMA), cannot be a key or an event time
                (UNSUPPORTED_TYPE), or has a name that state needs (INVALID_PIPELINE).
        """
        times = [self.time] if self.until is None else [self.time, self.until]
        require_columns(schema, [*self.keys, *times])
        for time in times:
            require_time_column(schema, time)
        for key in self.keys:
            require_key_type(schema.field(key).type)
        for name in schema.names:
            if name in RESERVED:
                raise ConfigurationError(
                    ErrorCode.INVALID_PIPELINE,
                    f"a join keeps a column {name!r} of its own, and its {self.name} input has one:"
                    " give it another name with map",
                )

    def plain_schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the columns of the input without dictionaries, keys first."""
        names = [*self.keys, *(name for name in schema.names if name not in self.keys)]
        return pa.schema([(name, plain_type(schema.field(name).type)) for name in names])

    def layout(
        self, schema: pa.Schema, *, is_marked: bool = False, only: Sequence[str] | None = None
    ) -> RowsLayout:
        """Return the columns of rows that are kept, and when they expire.

        ``only``: of the columns besides the keys, these; None: all.
        """
        kept = self.plain_schema(schema)
        if only is not None:
            kept = pa.schema([field for field in kept if field.name in (*self.keys, *only)])
        return RowsLayout(self.keys, kept.append(pa.field(EXPIRES, TIME_TYPE)), is_marked)


@dataclass(frozen=True, slots=True)
class TwoSided:
    """A join of two inputs. ``suffix``: it ends right columns whose names are taken.

    ``lag_us``: how far the time columns may lag behind the watermark.
    """

    redistribution: ClassVar[Redistribution] = "keyed"
    needs_event_time: ClassVar[bool] = True
    operator_id: str
    left: JoinSide
    right: JoinSide
    _: KW_ONLY
    suffix: str = SUFFIX
    lag_us: int = 0

    @property
    def input_names(self) -> Sequence[str]:
        """Return what each input is called in messages."""
        return ("left input", "right input")

    @property
    def sides(self) -> tuple[JoinSide, JoinSide]:
        """Return both sides."""
        return (self.left, self.right)

    def require_inputs(self, inputs: Sequence[pa.Schema]) -> None:
        """Accept inputs that can be joined.

        Raises:
            ConfigurationError: a column is missing (WRONG_SCHEMA), of a type that cannot be used so
                (UNSUPPORTED_TYPE), or has a name that state needs (INVALID_PIPELINE).
        """
        for side, schema in zip(self.sides, inputs, strict=True):
            side.check(schema)
        require_keys(*self.sides, inputs)


def late_outputs(sides: Sequence[JoinSide], inputs: Sequence[pa.Schema]) -> Mapping[str, pa.Schema]:
    """Return the columns of rows that come too late, by the name of their side output."""
    both = zip(sides, inputs, strict=True)
    return {side.late_output: side.plain_schema(schema) for side, schema in both}


class EventRows(NamedTuple):
    """Rows, and the event time of each in microseconds."""

    rows: pa.Table
    times_us: Integers

    def select(self, chosen: np.ndarray) -> "EventRows":
        """Return the rows for which a mask is true."""
        if chosen.all():
            return self
        return EventRows(self.rows.filter(pa.array(chosen)), self.times_us[chosen])

    def expiring_after(self, kept_us: int) -> pa.Table:
        """Return the rows with ``_expires``: they are kept so long."""
        return self.expiring_at(self.times_us + kept_us)

    def expiring_at(self, expires_us: Integers) -> pa.Table:
        """Return the rows with ``_expires``, a time for each row."""
        expires = pa.array(expires_us).cast(TIME_TYPE)
        return self.rows.append_column(pa.field(EXPIRES, TIME_TYPE), expires)


def read_rows(batch: pa.RecordBatch, side: JoinSide) -> tuple[EventRows, pa.Table]:
    """Return the rows without dictionaries, keys first; and apart those without event time.

    Raises:
        DataError: an event time is so far off that it cannot be right (ARITHMETIC_OVERFLOW).
    """
    table = pa.Table.from_batches([batch])
    names = side.plain_schema(batch.schema).names
    rows = pa.table({name: plain_column(table.column(name)) for name in names})
    known = _have_all(rows, [side.time])
    timeless = rows.slice(0, 0) if known.all() else rows.filter(pa.array(~known))
    rows = rows if known.all() else rows.filter(pa.array(known))
    return EventRows(rows, times_of(rows, side.time)), timeless


def split_keyless(events: EventRows, side: JoinSide) -> tuple[EventRows, EventRows]:
    """Return the rows that can have a partner, and those that cannot: null equals nothing."""
    needed = side.keys if side.until is None else (*side.keys, side.until)
    known = _have_all(events.rows, needed)
    if known.all():
        return events, EventRows(events.rows.slice(0, 0), events.times_us[:0])
    return events.select(known), events.select(~known)


def _have_all(rows: pa.Table, names: Sequence[str]) -> np.ndarray:
    """Return which rows have values in all of these columns."""
    known = np.ones(rows.num_rows, np.bool_)
    for column in map(rows.column, names):
        if has_nulls(column):
            known &= plain_column(column).is_valid().to_numpy()
    return known


def times_of(rows: pa.Table, column: str) -> Integers:
    """Return the event time of each row in microseconds; none is null.

    Raises:
        DataError: one is so far off that it cannot be right (ARITHMETIC_OVERFLOW).
    """
    return known_times_us(as_array(rows.column(column)), column)


def require_keys(left: HasKeys, right: HasKeys, schemas: Sequence[pa.Schema]) -> None:
    """Accept two sides whose keys can be equal, and are kept under their names.

    Raises:
        ConfigurationError: as ``require_alike``, or a column is two keys (INVALID_PIPELINE).
    """
    for keys in (left.keys, right.keys):
        for key in keys:
            if keys.count(key) > 1:
                raise ConfigurationError(
                    ErrorCode.INVALID_PIPELINE,
                    f"{key!r} is more than one of the keys {list(keys)}: name it once, or copy it"
                    " to another column with map",
                )
    require_alike(left, right, schemas)


def require_alike(left: HasKeys, right: HasKeys, schemas: Sequence[pa.Schema]) -> None:
    """Accept two sides whose keys can be equal.

    Raises:
        ConfigurationError: there are more keys on one side (INVALID_PIPELINE), or keys have
            different types (UNSUPPORTED_TYPE).
    """
    if len(left.keys) != len(right.keys) or not left.keys:
        raise ConfigurationError(
            ErrorCode.INVALID_PIPELINE,
            f"rows meet by one key or more, as many on both sides, and not by {list(left.keys)} and"
            f" {list(right.keys)}",
        )
    for mine, theirs in zip(left.keys, right.keys, strict=True):
        one, other = (
            plain_type(schema.field(key).type)
            for schema, key in zip(schemas, (mine, theirs), strict=True)
        )
        if one != other:
            raise ConfigurationError(
                ErrorCode.UNSUPPORTED_TYPE,
                f"key {mine!r} is {one} on the left and {theirs!r} is {other} on the right: cast "
                "one of them",
            )
