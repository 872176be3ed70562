"""Lay out the lines of a table whose rows fit, also if there are ten thousand of them.

Rich measures and renders every cell by itself, 0.5 to 1 ms a row. Most rows need none of that: the
columns are as wide as their widest cells, and only the last one may have to be broken.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

_GAP = "  "
_LAST_COLUMN_MIN = 20
"""Narrower than this the last column could hardly be read."""

Side = Literal["left", "right"]

Painted = Callable[[str, str], str]
"""Returns a text in the colour of a cell; the cell is given without its padding."""


def lines_of(
    table: Sequence[Sequence[str]],
    sides: Sequence[Side],
    console: Console,
    painted: Painted | None = None,
) -> list[str] | None:
    """Return the lines of a table; None if it does not fit, or has cells of several lines.

    ``sides``: where the cells of each column are aligned.
    """
    columns = list(zip(*table, strict=True))
    if not all(cell.isprintable() for column in columns for cell in column):
        return None
    widths = [max(map(cell_len, column)) for column in columns]
    left = console.width - sum(widths[:-1]) - len(_GAP) * (len(widths) - 1)
    if left < min(_LAST_COLUMN_MIN, widths[-1]):
        return None
    widths[-1] = min(left, widths[-1])
    return [
        _line(cells, widths, sides, painted)
        for row in table
        for cells in _broken(row, widths[-1], console)
    ]


def _broken(row: Sequence[str], width: int, console: Console) -> Iterator[Sequence[str]]:
    """Yield the row, and more rows with what its last column has no space for."""
    if cell_len(row[-1]) <= width:
        yield row
        return
    first, *others = (line.plain.rstrip() for line in Text(row[-1]).wrap(console, width))
    yield (*row[:-1], first)
    yield from ((*("" for _ in row[1:]), other) for other in others)


def _line(
    cells: Sequence[str], widths: Sequence[int], sides: Sequence[Side], painted: Painted | None
) -> str:
    padded = map(_padded, cells, widths, sides)
    if painted is not None:
        padded = map(painted, cells, padded)
    return _GAP.join(padded).rstrip()


def _padded(cell: str, width: int, side: Side) -> str:
    space = " " * (width - cell_len(cell))
    return space + cell if side == "right" else cell + space
