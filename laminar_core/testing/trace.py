"""The trace of a simulation for display: who did what, when, in order.

Notes are the important entries (events, faults, writes, births and deaths); turns are kept apart,
because there are many of them and only the last ones are informative.
"""

from collections import deque
from dataclasses import dataclass
from zlib import crc32

NOTES_MAX = 5_000
TURNS_MAX = 60


@dataclass(frozen=True, slots=True)
class Entry:
    """One line. ``time_ms`` counts from the start of the simulation."""

    time_ms: float
    turn: int
    process: str
    what: str

    def __str__(self) -> str:
        return f"{self.time_ms:12.3f} ms  turn {self.turn:>6}  {self.process:<24}  {self.what}"


class Trace:
    """The newest notes and the newest turns."""

    def __init__(self, start_ms: float) -> None:
        self.start_ms = start_ms
        self._notes: deque[Entry] = deque(maxlen=NOTES_MAX)
        self._turns: deque[tuple[float, int, str]] = deque(maxlen=TURNS_MAX)
        self._forgotten = 0

    def note(self, now_ms: float, turn: int, process: str, what: str) -> None:
        """Append one line."""
        self._forgotten += len(self._notes) == self._notes.maxlen
        self._notes.append(Entry(now_ms - self.start_ms, turn, process, what))

    def turn(self, now_ms: float, turn: int, process: str) -> None:
        """Keep a turn, cheaply: this is called for every one."""
        self._turns.append((now_ms, turn, process))

    def recent(self, turns: int) -> list[str]:
        """Return the processes of the last turns."""
        return [process for _, _, process in self._turns][-turns:]

    def lines(self) -> list[str]:
        """Return the notes, then the last turns."""
        turns = [Entry(t - self.start_ms, n, process, "turn") for t, n, process in self._turns]
        forgotten = [f"… {self._forgotten:,} earlier lines"] if self._forgotten else []
        headed = [f"the last {len(turns)} turns:", *map(str, turns)] if turns else []
        return [*forgotten, *map(str, self._notes), *headed]

    def digest(self) -> int:
        """Return a digest of all lines: equal digests are equal traces."""
        return crc32("\n".join(self.lines()).encode())
