"""The table of splits: where a source stands, as every checkpoint keeps it.

A split is what one subtask reads alone; a row of the table describes it. Three things are kept
apart, because none of them follows from another: the *offset*, which only the source
understands and may have gaps (a topic's offsets, a log's bytes); *rows_read*, which is progress;
and *done*, the end. Laminar adds rows to no offset and compares none (ADR-0040).
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow.compute import call_function

SPLIT = pa.schema(
    [
        ("split_id", pa.int64()),
        ("split", pa.string()),
        ("offset", pa.string()),
        ("rows_read", pa.int64()),
        ("rows_total", pa.int64()),
        ("done", pa.bool_()),
        ("newest_us", pa.int64()),
    ]
)
"""The columns that every source's table has; further columns are the source's own.

``split_id``: the number of its discovery, never used again; splits are read in this order.
``split``: its name for people. ``offset``: where to go on; only the source interprets it.
``rows_read`` of ``rows_total`` rows were returned; the total is null if unknown or without
bound. ``done``: nothing is left and nothing will come. ``newest_us``: the newest event time seen in
it, null if unknown.
"""

_OLD = frozenset({"split_id", "next_row", "row_count"})
"""The columns that every table had before ADR-0040; checkpoints that have them stay readable."""


def split_columns(*own: tuple[str, pa.DataType]) -> pa.Schema:
    """Return the schema of a table of splits with a source's own columns behind the common ones.

    >>> split_columns(("path", pa.string())).names[-2:]
    ['newest_us', 'path']
    """
    return pa.schema([*SPLIT, *(pa.field(name, of) for name, of in own)])


def split_table(rows: Iterable[dict[str, Any]], schema: pa.Schema = SPLIT) -> pa.Table:
    """Return a table of splits; missing values are those of an unread split.

    >>> split_table([{"split_id": 0, "split": "a.log", "offset": "0"}]).to_pylist()[0]["rows_read"]
    0
    """
    fresh = {"rows_read": 0, "done": False}
    return pa.Table.from_pylist([fresh | row for row in rows], schema=schema)


# --- sources whose offset is the number of rows read ----------------------------------------------


def numbered_splits(
    names: Sequence[str] | pa.ChunkedArray,
    totals: Sequence[int | None] | pa.ChunkedArray,
    own: pa.Table | None = None,
) -> pa.Table:
    """Return splits at their first row, for a source whose offsets count rows.

    ``own`` has the source's own columns, one row per split.
    """
    count = len(names)
    columns: dict[str, Any] = {
        "split_id": range(count),
        "split": names,
        "offset": ["0"] * count,
        "rows_read": [0] * count,
        "rows_total": totals,
        "done": [False] * count,
        "newest_us": [None] * count,
    }
    splits = pa.table(columns, schema=SPLIT)
    if own is not None:
        for field in own.schema:
            splits = splits.append_column(field, own.column(field.name))
    return at_rows(splits, np.zeros(count, np.int64))


def at_rows(splits: pa.Table, rows: npt.NDArray[np.int64]) -> pa.Table:
    """Return the splits with this many rows read from each, which is also their offset."""
    read = pa.array(rows.copy(), pa.int64())
    done = call_function("greater_equal", [read, splits.column("rows_total")]).fill_null(False)  # noqa: FBT003
    changed = {"offset": read.cast(pa.string()), "rows_read": read, "done": done}
    for name, column in changed.items():
        splits = splits.set_column(splits.schema.get_field_index(name), name, column)
    return splits


def row_offsets(splits: pa.Table) -> npt.NDArray[np.int64]:
    """Return the offsets as numbers of rows, the inverse of ``at_rows``, in an array of its own."""
    return splits.column("offset").cast(pa.int64()).to_numpy().copy()


# --- what the runtime asks ------------------------------------------------------------------------


def rows_read(splits: pa.Table) -> int:
    """Return the number of rows read so far, over all splits."""
    return call_function("sum", [splits.column("rows_read")]).as_py() or 0


def rows_total(splits: pa.Table) -> int | None:
    """Return the rows of all splits together, or None if one split has an unknown number."""
    totals = splits.column("rows_total")
    return None if totals.null_count else call_function("sum", [totals]).as_py() or 0


def skipped(splits: pa.Table, column: str, value: str) -> pa.Table:
    """Return the splits, done where ``column`` has this value: the rest of them is not read."""
    chosen = call_function("equal", [splits.column(column), pa.scalar(value)])
    done = call_function("or", [splits.column("done"), chosen])
    return splits.set_column(splits.schema.get_field_index("done"), "done", done)


def rows_left(splits: pa.Table) -> list[int | None]:
    """Return for each split the rows that were not read yet; None if unknown."""
    columns = splits.column("rows_total"), splits.column("rows_read")
    left: list[int | None] = call_function("subtract", columns).to_pylist()
    return left


def unread(splits: pa.Table) -> list[bool]:
    """Return for each split whether it is to be read on."""
    return [not done for done in splits.column("done").to_pylist()]


def in_reading_order(splits: pa.Table) -> pa.Table:
    """Return the splits in the order of their discovery."""
    return splits.sort_by("split_id")


def missing_columns(splits: pa.Table) -> list[str]:
    """Return the columns that the table should have and does not have, with their types."""
    names = splits.column_names
    return [
        f"{field.name} ({field.type})"
        for field in SPLIT
        if field.name not in names or splits.schema.field(field.name).type != field.type
    ]


# --- tables of older checkpoints ------------------------------------------------------------------


def is_table_of_splits(columns: pa.Schema) -> bool:
    """Return whether a source wrote a table with these columns, today or before ADR-0040."""
    return _OLD.issubset(columns.names) or set(SPLIT.names).issubset(columns.names)


def current(table: pa.Table) -> pa.Table:
    """Return a stored table of splits with the columns of today; any other table as it is.

    Before ADR-0040 a position was ``next_row``, and the end was at ``row_count`` rows. Such offsets
    count rows, so they become the offset, the progress and the end at once.
    """
    names = table.column_names
    if not _OLD.issubset(names) or "rows_read" in names:
        return table
    ids = table.column("split_id")
    own = [name for name in names if name not in _OLD]
    fresh = numbered_splits(ids.cast(pa.string()), table.column("row_count"), table.select(own))
    numbered = fresh.set_column(0, "split_id", ids)
    return at_rows(numbered, table.column("next_row").to_numpy())
