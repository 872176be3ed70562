"""A run on a terminal: a line for each event, and a bar below them."""

import sys
from contextlib import suppress
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from laminar_core.driver.events import JobEvent, ProgressMade, RestoreProgressed
from laminar_core.host.terminal import escaped
from laminar_core.pipeline.event_lines import event_lines, restoring


class ProgressBar:
    """Lines on standard error, with a bar below them on a terminal."""

    def __init__(self, *, show_bar: bool | None) -> None:
        # Decided once: while Spark starts, standard error is a pipe in front of the terminal.
        on_terminal = sys.stderr.isatty() or None
        self._console = Console(stderr=True, highlight=False, force_terminal=on_terminal)
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.completed:,.0f} rows"),
            BarColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
            console=self._console,
            disable=not (self._console.is_terminal if show_bar is None else show_bar),
        )
        self._task: TaskID = self._bar.add_task("rows", total=None, rate="starting")

    def __enter__(self) -> Self:
        with suppress(OSError):  # Standard error may be a full disk, or closed.
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar.disable:  # Rich before 14.3 would print an empty line.
            return
        with suppress(OSError):
            self._bar.stop()

    def on_event(self, event: JobEvent) -> None:
        """Update the progress bar, or print a line."""
        if isinstance(event, RestoreProgressed):
            self._bar.update(self._task, rate=restoring(event))
        if isinstance(event, ProgressMade):
            self._bar.update(
                self._task,
                completed=event.rows_in,
                total=event.rows_total,
                rate=f"{event.rows_per_s:,.0f} rows/s",
            )
            return
        for line in event_lines(event):
            self._console.print(escaped(line), markup=False, soft_wrap=True)
