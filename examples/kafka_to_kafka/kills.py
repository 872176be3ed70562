"""The kills of the demo, by the rows that the stream has read: the same on any machine."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Victim = Literal["worker", "driver", "broker"]

PLAN: tuple[tuple[Victim, float], ...] = (
    ("worker", 0.15),
    ("broker", 0.35),
    ("driver", 0.55),
    ("worker", 0.75),
)
"""Each victim, and the share of the input that has been read before."""


@dataclass(slots=True)
class KillPlan:
    """Takes the driver's events in, and says whom to kill."""

    rows: int
    plan: Sequence[tuple[Victim, float]] = PLAN
    done: list[Victim] = field(default_factory=list[Victim])
    worker_pids: Sequence[int] = ()
    _checkpoints: int = 0

    def hear(self, event: dict[str, Any]) -> Victim | None:
        """Return the victim that is due now; at least one checkpoint is between two kills."""
        match event["event"]:
            case "workers-running":
                self.worker_pids = event["pids"]
            case "data-flowing":
                self._checkpoints = 0
            case "checkpoint-completed":
                self._checkpoints += 1
            case "progress" if len(self.done) < len(self.plan) and self._checkpoints:
                victim, share = self.plan[len(self.done)]
                if event["rows_in"] >= share * self.rows:
                    self._checkpoints = 0
                    self.done.append(victim)
                    return victim
            case _:
                pass
        return None
