"""``laminar top``: a live screen of one job, read from its store beside the driver."""

import sys
from collections.abc import Callable
from typing import Protocol

import click
from rich.console import Console, RenderableType
from rich.live import Live

from laminar_core.cli.groups import examples
from laminar_core.cli.jobs import job_option, open_job
from laminar_core.cli.options import DURATION, store_option
from laminar_core.cli.recovery_view import age
from laminar_core.cli.tables import WIDTH_OF_A_FILE
from laminar_core.cli.top_view import frame
from laminar_core.errors import ConfigurationError, ErrorCode, StorageUnavailable
from laminar_core.host.clock import Clock, SystemClock
from laminar_core.host.terminal import say
from laminar_core.store.job_status import JobStatus, read_status
from laminar_core.units import duration_ms

SILENCE_MAX_MS = 60_000
"""A driver on another machine that has been silent for longer is not shown."""


def on_terminal() -> bool:
    """Return whether a person looks at the output."""
    return sys.stdout.isatty()


class Screen(Protocol):
    """Shows frames, as ``rich.live.Live`` does."""

    def update(self, renderable: RenderableType, *, refresh: bool = False) -> None:
        """Replace the frame."""
        ...


@click.command(
    epilog=examples(
        "laminar top --store build/store",
        "laminar top --store build/store --once",
    ),
)
@store_option
@job_option
@click.option("--once", is_flag=True, help="Print one frame and end.")
@click.option(
    "--interval", type=DURATION, default="1 second", show_default=True, help="Between two frames."
)
def top(*, store: str, job: str | None, once: bool, interval: str) -> None:
    """Show a running job live.

    The screen has operators, queues and rates, and the checkpoint under way. Only the store is
    read, where the driver's heartbeat is renewed every second. Ctrl-C ends the screen and not the
    job. Without a terminal, one frame is printed.
    """
    opened, clock = open_job(store, job), SystemClock()

    def read() -> JobStatus:
        return read_status(opened, clock.now_ms())

    found = read()
    if (problem := why_not(found)) is not None:
        raise ConfigurationError(ErrorCode.NO_LIVE_DRIVER, problem)
    if once or not on_terminal():
        width = None if on_terminal() else WIDTH_OF_A_FILE
        Console(width=width).print(frame(found))
        return
    try:
        with Live(screen=True, auto_refresh=False) as live:
            ended = watch(read, found, live, clock, duration_ms(interval))
    except KeyboardInterrupt:
        return
    say(ended)


def watch(
    read: Callable[[], JobStatus], found: JobStatus, screen: Screen, clock: Clock, pause_ms: float
) -> str:
    """Show frames until the job runs no more; return why it does not.

    A store that does not answer ends nothing: the last frame stays, and says since when.
    """
    problem = ""
    while (ended := why_not(found)) is None:
        screen.update(frame(found, problem), refresh=True)
        clock.wait_ms(pause_ms)
        try:
            found, problem = read(), ""
        except StorageUnavailable as error:
            problem = f"the store does not answer, and this frame is old: {error}"
    return ended


def why_not(found: JobStatus) -> str | None:
    """Return why there is nothing to show; None: the driver runs, as far as can be seen."""
    driver = found.driver
    if driver is None:
        return f"job {found.job} never ran: start it with `laminar run`"
    generation, beat_ms = driver.generation, driver.heartbeat_age_ms
    if driver.state == "ended":
        said = f": {driver.outcome_reason}" if driver.outcome_reason else ""
        why = f"generation {generation} {driver.outcome}{said}"
    elif driver.state == "gone":
        why = f"the driver of generation {generation} is gone"
    elif driver.state == "unseen" and beat_ms is not None and beat_ms > SILENCE_MAX_MS:
        why = f"the driver of generation {generation} gave its last sign of life {age(beat_ms)} ago"
    else:
        return None
    return f"job {found.job} is not running: {why}"
