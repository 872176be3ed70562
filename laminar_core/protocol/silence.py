"""Silence of a driver: whether a heartbeat that does not change says that it is lost. Pure.

A watcher on another host knows nothing else of it. Clocks of two hosts are not compared, so the
duration is what the watcher has seen itself.
"""

from dataclasses import dataclass

LOOKS_MIN = 3
"""Number of consecutive looks with an unchanged heartbeat.

With one, a watcher that was suspended, or whose clock jumps, would count that as silence.
"""


@dataclass(frozen=True, slots=True)
class Silence:
    """How long the newest heartbeat has been unchanged, by the watcher's own clock."""

    duration_ms: float = 0
    looks: int = 0

    def exceeds(self, limit_ms: float) -> bool:
        """Return whether it was observed for longer than the limit."""
        return self.looks >= LOOKS_MIN and self.duration_ms > limit_ms


NO_SILENCE = Silence()
