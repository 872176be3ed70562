"""Read the state of an operator from its files, without the operator's code.

The checkpoint contains enough: the operator's description (kind, keys, window) and the names of the
accumulators, see ``aggregates.accumulators``. So it can be read, compared and queried where the
pipeline is not installed; only the state of users' own aggregates cannot be merged without their
code.

The operator decides how the tables of a subtask combine: partial results of a window aggregation
are merged, of running aggregates the newest row of a key counts, and other operators write all
their rows. An operator with named tables describes each of them (``named_tables``).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from laminar_core.aggregates.accumulators import (
    Accumulator,
    PlainFunction,
    merge,
    require_known_versions,
)
from laminar_core.aggregates.digests import Digests
from laminar_core.aggregates.distinct import DistinctValues, ValueCounts
from laminar_core.aggregates.hyperloglog import HyperLogLog
from laminar_core.aggregates.moments import Moments
from laminar_core.aggregates.ordered import Endmost
from laminar_core.aggregates.row_groups import RowGroups, StateFunction
from laminar_core.records.record import JsonObject
from laminar_core.state.expiry import unexpired
from laminar_core.state.keyed_rows import newest_rows
from laminar_core.state.named_tables import layout_of
from laminar_core.state.splits import current
from laminar_core.state.window_layout import KEY_GROUP, WINDOW_START, StateLayout

_KEYS_OF_KIND = {"deduplicate": ("producer", "generation", "first")}
_KEYS_OF_SPLITS = ("split_id",)
_NAME = re.compile(r"([a-z]\w*)\((.*)\)", re.DOTALL)
_NUMBERED = re.compile(r"(hyperloglog|t_digest)_([0-9]+)")


@dataclass(frozen=True, slots=True)
class Unmergeable:
    """State that only the user's code can merge: of several halves the result is null."""

    label: str
    kept_type: pa.DataType = field(compare=False)
    version: int = 1

    def state_type(self, columns: list[pa.DataType]) -> pa.DataType:
        """Return the type of the stored column."""
        del columns
        return self.kept_type

    def accumulate(self, columns: list[pa.Array], groups: RowGroups) -> pa.Array:
        """Raise: only an operator accumulates input rows."""
        raise NotImplementedError

    def merge(self, states: pa.Array, groups: RowGroups) -> pa.Array:
        """Return the state of each group with a single one; null for groups with several."""
        counts = groups.starts[1:] - groups.starts[:-1]
        first = pa.array(groups.order[groups.starts[:-1]], mask=counts > 1)
        return states.take(first)


def merged_rows(
    tables: Sequence[pa.Table], description: JsonObject, expired_us: int | None, name: str = ""
) -> pa.Table:
    """Put the pieces of one table of a subtask together, in their order: one row per key.

    ``description`` is the operator's, from the manifest. Rows that expire at ``expired_us`` or
    before are left out.

    Raises:
        DataError: a sum leaves its type.
        IncompatibleStateError: a newer Laminar wrote it, with state of another meaning.
    """
    schema = tables[0].schema.remove_metadata()
    if name:
        layout = layout_of(name, schema, description)
        return layout.present_rows(layout.merge(tables, expired_us))
    match description.get("kind"):
        case "window-aggregate":
            rows = pa.concat_tables([unexpired(name, table, expired_us) for table in tables])
            keys = [KEY_GROUP, *_named(description, schema), WINDOW_START]
            rest = [accumulator_of(column) for column in schema if column.name not in keys]
            for table in tables:
                require_known_versions(table.schema.metadata, rest)
            return merge(rows, keys, rest).select(schema.names)
        case _ if _named(description, schema) and KEY_GROUP in schema.names:
            return newest_rows(tables, _named(description, schema), schema)
        case _:
            return pa.concat_tables([current(table) for table in tables])


def key_columns(description: JsonObject, schema: pa.Schema, name: str = "") -> tuple[str, ...]:
    """Return the columns that identify a row of a table; empty if unknown, or if none do.

    >>> key_columns({"keys": ["merchant"]}, pa.schema([("merchant", pa.string())]))
    ('merchant',)
    """
    if name:
        layout = layout_of(name, schema, description)
        if layout.merging == "sessions":
            return (*layout.keys, WINDOW_START)
        return layout.keys if layout.merging == "newest" else ()
    known = _KEYS_OF_KIND.get(str(description.get("kind")), ())
    candidates = [
        (*_named(description, schema), *([WINDOW_START] if WINDOW_START in schema.names else [])),
        known,
        _KEYS_OF_SPLITS,
    ]
    return next(
        (keys for keys in candidates if keys and all(key in schema.names for key in keys)), ()
    )


def accumulator_of(column: pa.Field) -> Accumulator:
    """Return the accumulator of a state column, derived from its name.

    >>> accumulator_of(pa.field("sum(amount)", pa.int64())).function
    'sum'
    """
    found = _NAME.fullmatch(column.name)
    label, inner = (found[1], found[2]) if found else (column.name, "")
    function = _function(label, column.type)
    return _Named(function, None if inner == "*" else inner, name_in_table=column.name)


def unmergeable_columns(schema: pa.Schema, name: str = "") -> list[str]:
    """Return the columns whose state becomes null where several pieces would have to be merged.

    Rows of a table with a name are chosen or counted; nothing in them is merged.
    """
    if name:
        return []
    return [
        column.name
        for column in schema
        if _NAME.fullmatch(column.name) and isinstance(accumulator_of(column).function, Unmergeable)
    ]


@dataclass(frozen=True, slots=True)
class _Named(Accumulator):
    """An accumulator named by its column in the table, whatever its input columns were."""

    name_in_table: str = ""

    @property
    def name(self) -> str:
        return self.name_in_table


def _function(label: str, kept: pa.DataType) -> PlainFunction | StateFunction:
    simple: dict[str, PlainFunction | StateFunction] = {
        "count": "count",
        "sum": "sum",
        "min": "min",
        "max": "max",
        "moments": Moments(),
        "first": Endmost("first"),
        "last": Endmost("last"),
        "distinct": DistinctValues(),
        "value_counts": ValueCounts(),
    }
    numbered = _NUMBERED.fullmatch(label)
    if numbered is None:
        return simple.get(label) or Unmergeable(label, kept)
    number = int(numbered[2])
    return HyperLogLog(number) if numbered[1] == "hyperloglog" else Digests(number)


def _named(description: JsonObject, schema: pa.Schema) -> tuple[str, ...]:
    keys = description.get("keys")
    names = tuple(str(key) for key in keys) if isinstance(keys, list) else ()
    return names if all(name in schema.names for name in names) else ()


def finished_window_us(description: JsonObject, properties: JsonObject) -> int | None:
    """Start of the newest pane that is finished; see ``StateLayout.finished_us``."""
    given = description.get("window")
    window = given if isinstance(given, dict) else {}
    times = (
        properties.get("watermark_us"),
        window.get("size_us"),
        window.get("step_us"),
        window.get("offset_us"),
        description.get("allowed_lateness_us"),
    )
    watermark_us, size_us, step_us, offset_us, lateness_us = (
        time if isinstance(time, int) else None for time in times
    )
    if watermark_us is None or size_us is None:
        return None
    grows_from_us = None if step_us is None else offset_us
    layout = StateLayout(
        (), (), pa.schema([]), size_us, step_us or size_us, lateness_us or 0, grows_from_us
    )
    return layout.finished_us(watermark_us)
