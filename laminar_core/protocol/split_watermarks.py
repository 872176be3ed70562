"""Combine the event time of splits that one subtask reads side by side.

Event time is the least over the splits that are not idle. A split that cannot be read at the moment
is *blocked*, which is not idle: rows are there, and they would be late. A split that is added while
the job runs starts at the current event time, because earlier splits have not waited for it.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(slots=True)
class _Split:
    newest_us: int | None
    phase: Literal["active", "idle", "blocked"] = "active"


class SplitWatermarks:
    """Tracks the newest event time of each split, in microseconds."""

    def __init__(self) -> None:
        self._splits: dict[int, _Split] = {}
        self._least_us: int | None = None

    @property
    def least_us(self) -> int | None:
        """Event time of all splits together; None until it is known. It never goes back."""
        return self._least_us

    @property
    def is_held(self) -> bool:
        """Whether a split holds event time back: it has not been idle for long enough."""
        return any(split.phase != "idle" for split in self._splits.values())

    @property
    def idle_count(self) -> int:
        """The number of splits that do not hold event time back."""
        return sum(split.phase == "idle" for split in self._splits.values())

    @property
    def slowest_us(self) -> int | None:
        """The least event time of the splits that can be read now; None if none is known.

        Unlike ``least_us`` it leaves out blocked splits and those without a row, and may go back.
        """
        times = (s.newest_us for s in self._splits.values() if s.phase == "active")
        return min((time_us for time_us in times if time_us is not None), default=None)

    def newest_us(self) -> dict[int, int]:
        """Return the newest event time of each split that has any."""
        return {n: s.newest_us for n, s in self._splits.items() if s.newest_us is not None}

    def added(self, split_id: int, newest_us: int | None) -> None:
        """Count a split from now on. ``newest_us``: its newest row before a restart.

        Without any, it starts at the event time of the others, if that is known.
        """
        start_us = self._least_us if newest_us is None else newest_us
        self._splits.setdefault(split_id, _Split(start_us))

    def rows(self, split_id: int, newest_us: int) -> int | None:
        """Take rows of a split; return the event time of all if it rose."""
        split = self._splits.setdefault(split_id, _Split(None))
        split.phase = "active"
        if split.newest_us is None or newest_us > split.newest_us:
            split.newest_us = newest_us
        return self._risen()

    def idle(self, split_id: int) -> int | None:
        """Leave the split out until it has rows again; return the event time if it rose."""
        return self._turn(split_id, "idle")

    def blocked(self, split_id: int) -> int | None:
        """Count the split although it has no rows now: they are there and cannot be read yet."""
        return self._turn(split_id, "blocked")

    def active(self, split_id: int) -> int | None:
        """Count the split again."""
        return self._turn(split_id, "active")

    def done(self, split_id: int) -> int | None:
        """Forget a split that is read to its end; return the event time if it rose."""
        self._splits.pop(split_id, None)
        return self._risen()

    def _turn(self, split_id: int, phase: Literal["active", "idle", "blocked"]) -> int | None:
        if (split := self._splits.get(split_id)) is not None:
            split.phase = phase
        return self._risen()

    def _risen(self) -> int | None:
        counted = [s.newest_us for s in self._splits.values() if s.phase != "idle"]
        known = [time_us for time_us in counted if time_us is not None]
        if not known or len(known) < len(counted):
            return None  # Splits that are only idle may still come back with old rows.
        least_us = min(known)
        if self._least_us is not None and least_us <= self._least_us:
            return None
        self._least_us = least_us
        return least_us
