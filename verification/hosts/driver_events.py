"""The events of drivers on hosts: when a fault was noticed, and how long no rows flowed."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

JsonEvent = dict[str, Any]


class EventLog:
    """Follows the file into which a driver prints its events, one per line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0
        self.events: list[JsonEvent] = []

    def read(self) -> list[JsonEvent]:
        """Take what was printed since the last call, and return all events so far."""
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._position)
                whole, newline, _ = file.read().rpartition(b"\n")
            self._position += len(whole) + len(newline)
            lines = [line for line in whole.splitlines() if line.startswith(b"{")]
            self.events += [json.loads(line) for line in lines]
        return self.events


@dataclass(frozen=True, slots=True)
class Reaction:
    """A job's reaction to a fault, in milliseconds from the fault; None: that did not happen."""

    noticed_ms: int | None
    """Until the generation was given up."""
    code: str | None
    """The code of that failure."""
    rows_ms: int | None
    """Until rows flowed after the last time at which they stood still."""
    standstill_ms: int
    """Longest time without rows."""
    generations: int
    """Number of generations that began after the fault."""

    def as_dict(self) -> dict[str, Any]:
        """Return the fields."""
        return asdict(self)


def reaction(events: Iterable[JsonEvent], since_ms: int, until_ms: int) -> Reaction:
    """Return what the events between two times of the wall clock say about a fault at the first.

    Events of several drivers may be mixed. Progress is published every half second, which is the
    resolution of the result.
    """
    told = sorted(events, key=lambda event: event["time_ms"])
    after = [event for event in told if since_ms < event["time_ms"] <= until_ms]
    failed = [event for event in after if event["event"] == "generation-failed"]
    flowing = [at for at in flow_times(told) if at > since_ms and at <= until_ms]
    gap_ms, rows_at = longest_gap([since_ms, *flowing, until_ms])
    return Reaction(
        noticed_ms=failed[0]["time_ms"] - since_ms if failed else None,
        code=failed[0]["code"] if failed else None,
        rows_ms=rows_at - since_ms if flowing and rows_at <= flowing[-1] else None,
        standstill_ms=gap_ms,
        generations=sum(event["event"] == "generation-started" for event in after),
    )


def flow_times(events: Sequence[JsonEvent]) -> list[int]:
    """Return the times at which rows were flowing; the events are in order.

    Totals go back when a generation restores, so a total is compared with the one before only
    within a generation.
    """
    times: list[int] = []
    before: int | None = None
    for event in events:
        match event["event"]:
            case "generation-started":
                before = None
            case "data-flowing":
                times.append(event["time_ms"])
            case "progress":
                if before is not None and event["rows_in"] > before:
                    times.append(event["time_ms"])
                before = event["rows_in"]
            case _:
                pass
    return times


def longest_gap(times: Sequence[int]) -> tuple[int, int]:
    """Return the longest time between two neighbours, and the later of them."""
    gaps = [(later - earlier, later) for earlier, later in pairwise(times)]
    return max(gaps, key=lambda gap: gap[0])
