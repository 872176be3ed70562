"""Lay out the lines of a table whose rows fit, also if there are ten thousand of them.

Rich measures and renders every cell by itself, 0.5 to 1 ms a row. Most rows need none of that: the
columns are as wide as their widest cells, and only the last one may have to be broken.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
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
    if not all(all(map(str.isprintable, column)) for column in columns):
        return None
    widths = [max(_widths(column)) for column in columns]
    left = console.width - sum(widths[:-1]) - len(_GAP) * (len(widths) - 1)
    if left < min(_LAST_COLUMN_MIN, widths[-1]):
        return None
    widths[-1] = min(left, widths[-1])
    broken = [
        cells
        for row, taken in zip(table, _widths(columns[-1]), strict=True)
        for cells in ([row] if taken <= left else _broken(row, left, console))
    ]
    columns = list(zip(*broken, strict=True))
    padded: Iterable[Iterable[str]] = map(_padded, columns, widths, sides)
    if painted is not None:
        padded = [map(painted, *both) for both in zip(columns, padded, strict=True)]
    return [_GAP.join(cells).rstrip() for cells in zip(*padded, strict=True)]


def _widths(column: Sequence[str]) -> list[int]:
    """Return how many columns of a terminal each cell takes; no cell has control characters."""
    return list(map(len if all(map(str.isascii, column)) else cell_len, column))


def _broken(row: Sequence[str], width: int, console: Console) -> Iterator[Sequence[str]]:
    """Yield the row, and more rows with what its last column has no space for."""
    first, *others = (line.plain.rstrip() for line in Text(row[-1]).wrap(console, width))
    yield (*row[:-1], first)
    yield from ((*("" for _ in row[1:]), other) for other in others)


def _padded(column: Sequence[str], width: int, side: Side) -> list[str]:
    place = str.rjust if side == "right" else str.ljust
    taken = _widths(column)
    return [place(cell, width - t + len(cell)) for cell, t in zip(column, taken, strict=True)]
