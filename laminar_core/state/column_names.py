"""Columns of stored rows that have another name in the pipeline, as a person says.

A name is given for a column of the operator's input. An accumulator is named after the columns that
it is computed from, so it gets another name with them.
"""

import json
import re
from collections.abc import Iterator, Mapping

import pyarrow as pa

from laminar_core.aggregates.accumulators import VERSIONS_KEY

_ACCUMULATOR = re.compile(r"(?P<function>\w+)\((?P<columns>.+)\)", re.DOTALL)
_COMMA = ", "


def columns_in(schema: pa.Schema) -> set[str]:
    """Return the names of the columns, and of those that accumulators are computed from."""
    return {part for name in schema.names for part in (name, *_parts(name))}


def renamed_columns(
    before: pa.Schema, now: pa.Schema, names: Mapping[str, str]
) -> Mapping[str, str]:
    """Return the stored columns that the pipeline reads under another name, with that name.

    ``names``: old and new names. A column is meant if the pipeline has only the new name, and the
    rows have only the old one; so a rename that was done already does nothing.
    """
    pairs = ((name, _renamed(name, names)) for name in before.names)
    return {
        old: new
        for old, new in pairs
        if new in now.names and new not in before.names and old not in now.names
    }


def unclear_columns(
    before: pa.Schema, now: pa.Schema, names: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield stored columns whose new names other stored columns have, with these names.

    Two columns cannot change places, and none can take the place of another: rows that are written
    after such a change look like those before it, so it would be made again at each start. Where
    the pipeline keeps both columns, the rename was done already, and nothing is unclear.
    """
    for old in before.names:
        new = _renamed(old, names)
        is_moved_too = _renamed(new, names) != new
        if new != old and new in before.names and (is_moved_too or old not in now.names):
            yield old, new


def with_other_names(schema: pa.Schema, names: Mapping[str, str]) -> pa.Schema:
    """Return the schema with these names, which ``renamed_columns`` found."""
    if not names:
        return schema
    fields = [field.with_name(names.get(field.name, field.name)) for field in schema]
    return pa.schema(fields, _metadata(schema, names))


def with_names_of(now: pa.Schema, rows: pa.Table, names: Mapping[str, str]) -> pa.Table:
    """Return the rows with the names that the pipeline has."""
    if not names:
        return rows
    found = renamed_columns(rows.schema, now, names)
    return pa.Table.from_arrays(rows.columns, schema=with_other_names(rows.schema, found))


def _renamed(name: str, names: Mapping[str, str]) -> str:
    found = _ACCUMULATOR.fullmatch(name)
    if name in names or found is None:
        return names.get(name, name)
    columns = found["columns"].split(_COMMA)
    return f"{found['function']}({_COMMA.join(names.get(c, c) for c in columns)})"


def _parts(name: str) -> Iterator[str]:
    if found := _ACCUMULATOR.fullmatch(name):
        yield from found["columns"].split(_COMMA)


def _metadata(schema: pa.Schema, names: Mapping[str, str]) -> dict[bytes, bytes] | None:
    """Return the metadata; versions of accumulators are there by their names."""
    metadata = schema.metadata
    if metadata is None or VERSIONS_KEY not in metadata:
        return metadata
    versions = json.loads(metadata[VERSIONS_KEY])
    moved = {names.get(name, name): version for name, version in versions.items()}
    return {**metadata, VERSIONS_KEY: json.dumps(moved).encode()}
