"""Columns of stored rows that differ from the pipeline's: which differences fit, and the rows then.

A checkpoint keeps rows with the columns of its time. They can be read with other columns only where
each value is certain: a wider type has the same values, and a column that was not there is null, or
has the value that its operator gives to rows that it has not counted. Everything else is refused.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from laminar_core.aggregates.grouping import plain_type
from laminar_core.state.column_names import renamed_columns, with_names_of, with_other_names


@dataclass(frozen=True, slots=True)
class Allowed:
    """The differences that fit, in one kind of rows."""

    first: Mapping[str, pa.Scalar] = field(default_factory=dict[str, pa.Scalar])
    """By column that may be added: its value in rows from before."""
    together: tuple[tuple[str, ...], ...] = ()
    """Columns that make up one result: they are added all at once or not at all."""
    adds_nulls: bool = False
    """Whether other nullable columns may be added, with nulls."""
    drops: bool = False
    """Whether columns may be left out."""
    keys: frozenset[str] = frozenset()
    """Columns that identify a row: none of them is added or left out."""


NOTHING_BUT_WIDER = Allowed()


@dataclass(frozen=True, slots=True)
class ColumnChanges:
    """The differences between stored columns and the pipeline's."""

    widened: tuple[str, ...] = ()
    """Each a text such as ``v: int64 instead of int32``."""
    began: tuple[str, ...] = ()
    """Added columns with a first value: what they count begins after the checkpoint."""
    nulls: tuple[str, ...] = ()
    """Added columns with nulls."""
    dropped: tuple[str, ...] = ()
    renamed: tuple[str, ...] = ()
    """Each a text such as ``store: was called shop``."""
    problems: tuple[str, ...] = ()
    """Differences that do not fit."""

    def lines(self) -> Iterator[str]:
        """Yield one text per kind of change that fits."""
        if self.renamed:
            yield "other names: " + ", ".join(self.renamed)
        if self.widened:
            yield "wider: " + ", ".join(self.widened)
        if self.began:
            yield "counted from here on: " + ", ".join(self.began)
        if self.nulls:
            yield "null in these rows: " + ", ".join(self.nulls)
        if self.dropped:
            yield "left out: " + ", ".join(self.dropped)


def compare_columns(
    before: pa.Schema, now: pa.Schema, allowed: Allowed, names: Mapping[str, str] | None = None
) -> ColumnChanges:
    """Compare by name; another order of the same columns is no difference.

    ``names``: new names by old ones, as a person says.
    """
    moved = renamed_columns(before, now, names or {})
    before = with_other_names(before, moved)
    added = [f.name for f in now if f.name not in before.names]
    dropped = [f.name for f in before if f.name not in now.names]
    both = [f.name for f in now if f.name in before.names]
    differ = [n for n in both if not _is_same(before.field(n), now.field(n))]
    fits = {n: _widens_field(before.field(n), now.field(n)) for n in differ}
    began = [n for n in added if n in allowed.first]
    nulls = [n for n in added if n not in began and _may_be_null(now.field(n), allowed)]
    problems = [_said(n, before, now) for n in differ if not fits[n]]
    problems += [_said(n, before, now) for n in added if n not in (*began, *nulls)]
    kept_all = not allowed.drops or bool(allowed.keys & set(dropped))
    problems += [_said(n, before, now) for n in dropped if kept_all]
    problems += _halves(before, began, allowed.together)
    return ColumnChanges(
        tuple(
            f"{n}: {now.field(n).type} instead of {before.field(n).type}"
            for n in differ
            if fits[n] and before.field(n).type != now.field(n).type
        ),
        tuple(began),
        tuple(nulls),
        tuple(dropped),
        tuple(f"{new} was {old}" for old, new in moved.items()),
        tuple(problems),
    )


def evolved(
    rows: pa.Table,
    now: pa.Schema,
    first: Mapping[str, pa.Scalar],
    names: Mapping[str, str] | None = None,
) -> pa.Table:
    """Return the rows with the columns ``now``, which fit; their metadata stays.

    ``names``: new names by old ones, as ``compare_columns`` was given them.
    """
    rows = with_names_of(now, rows, names or {})
    columns = [_column(rows, wanted, first) for wanted in now]
    return pa.Table.from_arrays(columns, schema=now.with_metadata(rows.schema.metadata))


def evolved_batch(
    rows: pa.RecordBatch,
    now: pa.Schema,
    first: Mapping[str, pa.Scalar],
    names: Mapping[str, str] | None = None,
) -> pa.RecordBatch:
    """Return one batch with the columns ``now``, which fit."""
    table = evolved(pa.Table.from_batches([rows]), now, first, names).combine_chunks()
    arrays = [_one(column, wanted.type) for column, wanted in zip(table.columns, now, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=now)


def widens(before: pa.DataType, now: pa.DataType) -> bool:
    """Return whether each value of the type is a value of the other, and as a key the same key."""
    before, now = plain_type(before), plain_type(now)
    return before == now or any(rule(before, now) for rule in _RULES)


def _is_same(before: pa.Field, now: pa.Field) -> bool:
    return before.type == now.type and before.nullable == now.nullable


def _widens_field(before: pa.Field, now: pa.Field) -> bool:
    encoded_now = pa.types.is_dictionary(now.type) and before.type != now.type
    return widens(before.type, now.type) and now.nullable >= before.nullable and not encoded_now


def _may_be_null(column: pa.Field, allowed: Allowed) -> bool:
    return allowed.adds_nulls and column.nullable and column.name not in allowed.keys


def _halves(
    before: pa.Schema, began: Iterable[str], together: Iterable[tuple[str, ...]]
) -> Iterator[str]:
    """Yield results that would combine an old accumulator with one that begins only now."""
    new = set(began)
    for columns in together:
        if (missing := new & set(columns)) and (there := set(columns) & set(before.names)):
            yield (
                f"{', '.join(sorted(missing))} would begin now, and {', '.join(sorted(there))} "
                "began earlier, so what is computed from both would be wrong"
            )


def _said(name: str, before: pa.Schema, now: pa.Schema) -> str:
    was, now_is = (str(s.field(name).type) if name in s.names else "absent" for s in (before, now))
    if was == now_is:
        return f"{name} could be null, and now it cannot"
    return f"{name} was {was}, is {now_is}"


def _column(rows: pa.Table, wanted: pa.Field, first: Mapping[str, pa.Scalar]) -> pa.ChunkedArray:
    if wanted.name in rows.schema.names:
        return rows.column(wanted.name).cast(wanted.type)
    value = first.get(wanted.name, pa.scalar(None, wanted.type))
    return pa.chunked_array([pa.repeat(value, rows.num_rows)], wanted.type)


def _one(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    return column.chunk(0) if column.num_chunks else pa.nulls(0, kind)


# --- what is wider ------------------------------------------------------------------------------


def _integers(before: pa.DataType, now: pa.DataType) -> bool:
    if not (pa.types.is_integer(before) and pa.types.is_integer(now)):
        return False
    signed, is_signed = pa.types.is_signed_integer(before), pa.types.is_signed_integer(now)
    return before.bit_width < now.bit_width and (is_signed or not signed)


def _floating(before: pa.DataType, now: pa.DataType) -> bool:
    both = pa.types.is_floating(before) and pa.types.is_floating(now)
    return both and before.bit_width < now.bit_width


def _decimals(before: pa.DataType, now: pa.DataType) -> bool:
    if not (pa.types.is_decimal(before) and pa.types.is_decimal(now)):
        return False
    return before.id == now.id and before.scale == now.scale and before.precision < now.precision


def _large(before: pa.DataType, now: pa.DataType) -> bool:
    return (before, now) in (
        (pa.string(), pa.large_string()),
        (pa.binary(), pa.large_binary()),
    )


def _lists(before: pa.DataType, now: pa.DataType) -> bool:
    both = pa.types.is_list(before) and pa.types.is_list(now)
    return both and widens(before.value_type, now.value_type)


def _structs(before: pa.DataType, now: pa.DataType) -> bool:
    if not (pa.types.is_struct(before) and pa.types.is_struct(now)):
        return False
    old, new = list(before), list(now)
    names = [f.name for f in old] == [f.name for f in new]
    return names and all(widens(a.type, b.type) for a, b in zip(old, new, strict=True))


_RULES: tuple[Callable[[pa.DataType, pa.DataType], bool], ...] = (
    _integers,
    _floating,
    _decimals,
    _large,
    _lists,
    _structs,
)
