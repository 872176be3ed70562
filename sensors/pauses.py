"""Pauses: a stream that some sensors leave alone for a while, because a person said so.

One sensor looks after many streams, so it cannot be switched off in Dagster's UI for one of them. A
pause is kept in the database of Dagster, with who asked for it, why, and until when.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated, Literal, get_args

import dagster as dg
from pydantic import BeforeValidator

from laminar_core.records.limits import TIME_MS_MAX
from laminar_core.resources.locked_database import until_unlocked
from laminar_core.sensors.cursor import ClockMs, Cursor

Pausable = Literal[
    "checkpoint_reporter",
    "alignment",
    "recovery",
    "standby",
    "source_retention",
    "sink_transactions",
    "check_failures",
]
PAUSABLE: tuple[Pausable, ...] = get_args(Pausable)

_KEY = "laminar/pause/"


def _within_calendar(value: object) -> object:
    """An earlier version recorded any time, and such a pause must not end because of that."""
    return min(value, TIME_MS_MAX) if isinstance(value, int) else value


class Pause(Cursor):
    """A pause of one stream; ``until_ms`` is None: it lasts until a user resumes it."""

    sensors: tuple[str, ...] = ()
    until_ms: Annotated[ClockMs | None, BeforeValidator(_within_calendar)] = None
    by: str = ""
    reason: str = ""

    def applies(self, sensor: str, now_ms: int) -> bool:
        """Return whether this sensor leaves the stream alone now."""
        is_over = self.until_ms is not None and now_ms >= self.until_ms
        return sensor in self.sensors and not is_over

    def __str__(self) -> str:
        """Return it as a tick says it."""
        until = "until somebody resumes it"
        if self.until_ms is not None:
            until = f"until {datetime.fromtimestamp(self.until_ms / 1000, UTC):%Y-%m-%d %H:%M} UTC"
        return f"paused by {self.by} {until}: {self.reason}"


def read_pauses(instance: dg.DagsterInstance, streams: Iterable[str]) -> dict[str, Pause]:
    """Return what is recorded for these streams, in one query."""
    keys = {f"{_KEY}{stream}" for stream in streams}
    found = instance.daemon_cursor_storage.get_cursor_values(keys)
    return {key.removeprefix(_KEY): Pause.read(text) for key, text in found.items()}


def record_pause(instance: dg.DagsterInstance, stream: str, pause: Pause) -> None:
    """Record a pause, in place of an earlier one; ``Pause()`` ends it."""
    pairs = {f"{_KEY}{stream}": pause.model_dump_json()}
    until_unlocked(lambda: instance.daemon_cursor_storage.set_cursor_values(pairs))
