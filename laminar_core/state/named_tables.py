"""Named tables of state: their columns, and how the rows of several segments become one table.

An operator that keeps tables of different columns describes each of them, and has the descriptions
in its own (``described``). So a program that has only the checkpoint merges the rows exactly as the
operator does.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from laminar_core.aggregates.grouping import Reduction, group
from laminar_core.aggregates.row_groups import as_array
from laminar_core.codec.arrow import empty_table
from laminar_core.codec.key_groups import key_group_order
from laminar_core.errors import DataError, ErrorCode
from laminar_core.records.record import JsonObject
from laminar_core.state.expiry import unexpired
from laminar_core.state.keyed_rows import newest_rows
from laminar_core.state.session_rows import newest_sessions
from laminar_core.state.window_layout import KEY_GROUP

WEIGHT = "_weight"
"""How often a row is there (int32); -1 takes one away."""

TABLES = "tables"
"""The member of an operator's description that describes its named tables."""

Merging = Literal["append", "newest", "weights", "sessions"]
"""``append``: all rows count. ``newest``: the last row of each key counts; an expiry of a key must
never go back, because a segment that has expired is dropped unread. ``weights``: equal rows add up
their ``_weight``, and those with 0 are gone. ``sessions``: of rows of a key that touch, from
``window_start`` to ``_expires``, the last one counts. It covers the earlier ones, because a session
only grows; so its expiry never goes back, either.
"""


_MERGING: Mapping[str, Merging] = {
    "append": "append",
    "newest": "newest",
    "weights": "weights",
    "sessions": "sessions",
}


@dataclass(frozen=True, slots=True)
class TableLayout:
    """One table of an operator's state.

    ``schema``: the columns in a checkpoint, none of them encoded as a dictionary; the first is
    ``key_group`` (int32). Rows expire by ``_expires``, if it is among them. ``keys`` identify a
    row, or several if all rows count.
    """

    name: str
    schema: pa.Schema
    keys: tuple[str, ...]
    merging: Merging
    present: str | None = None
    """A column: a newest row with a null there says that its key has nothing. Those who merge a
    part of the rows have to keep it, because it replaces an older one.
    """

    def describe(self) -> JsonObject:
        """Return what a reader has to know, as a part of the operator's description."""
        said: JsonObject = {"keys": list(self.keys), "merging": self.merging}
        return said if self.present is None else {**said, "present": self.present}

    def present_rows(self, merged: pa.Table) -> pa.Table:
        """Leave out the rows that say that their key has nothing; ``merged`` is of all rows."""
        if self.present is None or not merged.column(self.present).null_count:
            return merged
        return merged.filter(merged.column(self.present).is_valid())

    def merge(self, tables: Iterable[pa.Table], expired_us: int | None) -> pa.Table:
        """Put tables of consecutive snapshots together, without the rows that have expired.

        Shapes: all have ``schema``; the result, too, sorted by key group.
        """
        if self.merging == "newest":
            newest = newest_rows(tables, self.keys, self.schema)
            return unexpired(self.name, newest, expired_us)
        left = (unexpired(self.name, table, expired_us) for table in tables)
        if self.merging == "sessions":
            return newest_sessions(left, self.keys, self.schema)
        rows = pa.concat_tables([empty_table(self.schema), *left])
        rows = added_up(rows) if self.merging == "weights" else rows
        order = key_group_order(rows.column(KEY_GROUP).to_numpy())
        return rows.take(pa.array(order)).combine_chunks()


def described(layouts: Iterable[TableLayout]) -> JsonObject:
    """Return the description of all tables, for the operator's under ``TABLES``."""
    return {layout.name: layout.describe() for layout in layouts}


def layout_of(name: str, schema: pa.Schema, description: JsonObject) -> TableLayout:
    """Return the layout of a table as the operator has described it.

    Rows of a table without a description all count.
    """
    tables = description.get(TABLES)
    said = tables.get(name) if isinstance(tables, dict) else None
    if not isinstance(said, dict) or not isinstance(keys := said.get("keys"), list):
        return TableLayout(name, schema, (), "append")
    named = tuple(str(key) for key in keys)
    merging = _MERGING.get(str(said.get("merging")), "append")
    present = said.get("present")
    column = present if isinstance(present, str) and present in schema.names else None
    return TableLayout(name, schema, named, merging, column)


def added_up(rows: pa.Table) -> pa.Table:
    """Add up the weights of equal rows, and leave out those that add up to zero.

    Floats are equal if their bits are, so that a row always takes back itself. Other columns than
    ``_weight`` may have equal names.

    Raises:
        DataError: a weight leaves 32 bits (ARITHMETIC_OVERFLOW).
    """
    at = rows.schema.names.index(WEIGHT)
    keys = {str(n): as_bits(column) for n, column in enumerate(rows.columns) if n != at}
    summed = group(keys, rows, [Reduction(WEIGHT, "sum", WEIGHT)])
    summed = summed.filter(pa.array(summed.columns[-1].to_numpy() != 0))
    *others, weights = summed.columns
    weights = narrow_weights(weights, rows.schema.field(at).type)
    columns = [
        as_array(column).view(field.type)
        if pa.types.is_floating(field.type)
        else column.cast(field.type)
        for column, field in zip([*others[:at], weights, *others[at:]], rows.schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=rows.schema)


def narrow_weights(weights: pa.ChunkedArray, to: pa.DataType) -> pa.ChunkedArray:
    """Return weights that were computed with 64 bits as they are kept.

    Raises:
        DataError: one leaves 32 bits (ARITHMETIC_OVERFLOW).
    """
    try:
        return weights.cast(to)
    except pa.ArrowInvalid as error:
        raise DataError(
            ErrorCode.ARITHMETIC_OVERFLOW, "more equal rows come or go than 32 bits can count"
        ) from error


def as_bits(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return floats as integers of their width, by which rows with weights are equal."""
    if not pa.types.is_floating(column.type):
        return column
    integers = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[column.type.bit_width]
    return pa.chunked_array([as_array(column).view(integers)])
