"""The progress of a deletion on a terminal.

A module of its own, because commands that delete nothing need not import Rich's bars.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


@contextmanager
def deletion_bar() -> Iterator[Callable[[int, int], None]]:
    """Yield a function to call with what is done and the total; a terminal shows them as a bar."""
    bar = Progress(
        TextColumn("deleting"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),  # Standard output may be a file, or JSON for a program.
        disable=not sys.stderr.isatty(),
        transient=True,
    )
    with nullcontext() if bar.disable else bar:  # Rich before 14.3 would print an empty line.
        task = bar.add_task("", total=None, start=False)
        yield lambda done, total: bar.update(task, completed=done, total=total)
