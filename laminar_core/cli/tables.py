"""Tables that fit the terminal, and are not cut off in a file."""

import sys
from collections.abc import Iterable, Sequence

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from laminar_core.cli.columns import Side, lines_of
from laminar_core.host.terminal import escaped

WIDTH_OF_A_FILE = 10_000
"""Width where output goes to a file, in which no line is broken."""

_STYLES = {
    **dict.fromkeys(("completed", "done", "passed", "running", "the same"), "green"),
    **dict.fromkeys(("aborted", "declined", "expired", "interrupted", "subsumed"), "yellow"),
    **dict.fromkeys(("begun", "delete", "intended", "unseen", "waiting"), "yellow"),
    **dict.fromkeys(("failed", "gone", "refused", "unreadable"), "red"),
}
"""Colours of words that fill a cell, on a terminal that has colours."""

_NUMBERS = {
    *("id", "ms", "size", "written", "in-flight", "in flight", "rows", "generation"),
    *("subtask", "files", "sync ms", "async ms", "events", "number"),
}


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table that fits; the last column is broken at the end of a terminal's line."""
    table = [tuple(headings), *(tuple(map(escaped, row)) for row in rows)]
    sides: list[Side] = ["right" if heading in _NUMBERS else "left" for heading in headings]
    console = Console(width=None if sys.stdout.isatty() else WIDTH_OF_A_FILE)
    has_colours = console.color_system is not None and not console.no_color
    lines = lines_of(table, sides, console, _coloured if has_colours else None)
    if lines is None:
        _print_squeezed(table, sides, console)
        return
    if has_colours:
        lines[0] = click.style(lines[0], bold=True)
    click.echo("\n".join(lines), color=True)


def _coloured(cell: str, text: str) -> str:
    style = _STYLES.get(cell)
    return text if style is None else click.style(text, fg=style)


def _print_squeezed(
    table: Sequence[Sequence[str]], sides: Sequence[Side], console: Console
) -> None:
    """Print a table of any cells on any terminal; a large one takes long."""
    headings, *rows = table
    squeezed = Table(box=None, pad_edge=False)
    for heading, side in zip(headings, sides, strict=True):
        squeezed.add_column(heading, justify=side, no_wrap=heading != headings[-1])
    for row in rows:
        # Brackets in a reason are no markup.
        squeezed.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in row))
    console.print(squeezed)
