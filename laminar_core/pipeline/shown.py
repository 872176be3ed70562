"""Rows of a table as text, for ``Stream.show``."""

from collections.abc import Iterator

import pyarrow as pa

ROWS_SHOWN = 20
"""Rows that are shown unless another number is given."""

VALUE_LENGTH_MAX = 40


def table_lines(rows: pa.Table) -> Iterator[str]:
    """Yield the rows as aligned columns of text, and say so if there are none."""
    cells = [rows.column_names, *([_cell(v) for v in row.values()] for row in rows.to_pylist())]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        yield "  ".join(padded).rstrip()
    if not rows.num_rows:
        yield "(no rows)"


def _cell(value: object) -> str:
    text = "" if value is None else repr(str(value))[1:-1]  # A line break stays in its cell.
    return text if len(text) <= VALUE_LENGTH_MAX else f"{text[: VALUE_LENGTH_MAX - 1]}…"
