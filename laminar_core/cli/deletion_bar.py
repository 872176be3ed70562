"""The progress of a deletion on a terminal.

A module of its own, because commands that delete nothing need not import Rich's bars.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


@contextmanager
def deletion_bar() -> Iterator[Callable[[int, int], None]]:
    """Yield what moves the bar, if standard error is a terminal: called with done and total."""
    bar = Progress(
        TextColumn("deleting"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        disable=not sys.stderr.isatty(),
        transient=True,
    )
    with nullcontext() if bar.disable else bar:  # Rich before 14.3 would print an empty line.
        task = bar.add_task("", total=None, start=False)
        yield lambda done, total: bar.update(task, completed=done, total=total)
