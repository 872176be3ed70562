"""Compare what an example job wrote with the answer of a batch computation."""

from collections.abc import Sequence

import click
import pyarrow as pa


def in_order(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Return these columns sorted by all of them, so that tables with equal rows are equal."""
    plain = pa.table({name: _decoded(table.column(name)) for name in columns})
    return plain.sort_by([(name, "ascending") for name in columns]).combine_chunks()


def report(found: pa.Table, expected: pa.Table, rows: str) -> None:
    """Say whether these tables, in order, are equal; leave the process with 1 if they are not.

    ``rows``: what the rows are called.
    """
    if not found.equals(expected):
        click.echo(f"{found.num_rows:,} {rows} differ from {expected.num_rows:,} expected")
        raise SystemExit(1)
    click.echo(f"{found.num_rows:,} {rows}, exactly as expected")


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_dictionary(column.type):
        return column.cast(column.type.value_type)
    return column
