"""Where a job that has no listener tells what happens.

In a notebook it is a panel below the cell, on a terminal lines and a bar, and anywhere else a
program's own logging. The library prints nothing in a service, under Dagster or in a test.
"""

import logging
import sys
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from laminar_core.driver.events import (
    ApplicationLeft,
    CheckpointFailed,
    CleanUpFailed,
    CommitDelayed,
    FilesDamaged,
    GenerationFailed,
    JobEvent,
    NotEncrypted,
    OperatorAtWork,
    ProgressMade,
    RestoreProgressed,
    SinkWarning,
    SplitsNotFound,
    StoreLost,
    ThresholdTooLow,
)
from laminar_core.pipeline.event_lines import event_lines, restoring
from laminar_core.pipeline.html import lines_html
from laminar_core.pipeline.progress_bar import ProgressBar

LINES_SHOWN = 10
"""Lines of a panel; older ones make room."""

_WARNINGS = (
    ApplicationLeft,
    CheckpointFailed,
    CleanUpFailed,
    CommitDelayed,
    FilesDamaged,
    GenerationFailed,
    NotEncrypted,
    OperatorAtWork,
    SinkWarning,
    SplitsNotFound,
    StoreLost,
    ThresholdTooLow,
)

Show = Callable[[str], Callable[[str], object]]
"""Shows HTML, and returns a function that replaces it."""


class Display(Protocol):
    """Shows the events of one job."""

    def start(self) -> None:
        """Begin, in the thread that starts the job: a notebook shows it below the cell of that."""
        ...

    def on_event(self, event: JobEvent) -> None:
        """Show one event."""
        ...

    def close(self) -> None:
        """Leave what was shown as it is: the job has ended."""
        ...


def display_of(job: str, *, progress: bool | None) -> Display:
    """Return the display that fits this process.

    ``progress``: None decides by what the process is attached to; False only logs.
    """
    if progress is not False:
        if (show := notebook()) is not None:
            return NotebookPanel(show)
        if progress or sys.stderr.isatty():
            return TerminalDisplay(ProgressBar(show_bar=not hasattr(sys, "ps1")))
    return EventLog(job)


class EventLog:
    """Each event as a record of ``logging``; progress is not logged."""

    def __init__(self, job: str) -> None:
        self._job = job
        self._log = logging.getLogger("laminar_core.job")

    def start(self) -> None:
        """Do nothing."""

    def on_event(self, event: JobEvent) -> None:
        """Log what a person may have to act on as a warning, and the rest as information."""
        level = logging.WARNING if isinstance(event, _WARNINGS) else logging.INFO
        for line in event_lines(event):
            self._log.log(level, "job %s: %s", self._job, line)

    def close(self) -> None:
        """Do nothing."""


class TerminalDisplay:
    """Lines and a bar on standard error. Where a prompt waits below, there is no bar."""

    def __init__(self, bar: ProgressBar) -> None:
        self._bar = bar

    def start(self) -> None:
        """Draw the bar."""
        self._bar.__enter__()

    def on_event(self, event: JobEvent) -> None:
        """Show one event."""
        self._bar.on_event(event)

    def close(self) -> None:
        """Leave the bar as it is."""
        self._bar.__exit__(None, None, None)


class NotebookPanel:
    """The last lines and the progress below a cell, also when the cell has long returned."""

    def __init__(self, show: Show) -> None:
        self._lines: deque[str] = deque(["starting"], LINES_SHOWN)
        self._progress = ""
        self._show = show
        self._replace: Callable[[str], object] = show_nothing

    def start(self) -> None:
        """Show the panel."""
        self._replace = self._show(self._html())

    def on_event(self, event: JobEvent) -> None:
        """Show one event."""
        match event:
            case ProgressMade():
                total = "" if event.rows_total is None else f" of {event.rows_total:,}"
                self._progress = f"{event.rows_in:,}{total} rows, {event.rows_per_s:,.0f} rows/s"
            case RestoreProgressed():
                self._progress = restoring(event)
            case _:
                pass
        self._lines.extend(event_lines(event))
        self._replace(self._html())

    def close(self) -> None:
        """Remove the progress; the last line has the final numbers."""
        self._progress = ""
        self._replace(self._html())

    def _html(self) -> str:
        return lines_html([*self._lines, self._progress] if self._progress else [*self._lines])


def show_nothing(html: str) -> None:
    """Show nothing."""
    del html


def notebook() -> Show | None:
    """Return what shows HTML if this process is the kernel of a notebook; None: it is not."""
    ipython: Any = sys.modules.get("IPython")
    if ipython is None or not hasattr(ipython.get_ipython(), "kernel"):
        return None

    def show(html: str) -> Callable[[str], object]:
        handle = ipython.display.display(ipython.display.HTML(html), display_id=True)
        return lambda newer: handle.update(ipython.display.HTML(newer))

    return show
