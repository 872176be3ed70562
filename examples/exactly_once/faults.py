"""The processes that the demo kills, and when.

The driver's events decide, so that the plan is the same on a fast machine and a slow one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from laminar_core.resources import DriverEvent

Victim = Literal["worker", "driver"]

CHECKPOINTS_BETWEEN = 3
"""Completed since data flows, before the next kill: there is something to recover from."""


@dataclass(frozen=True, slots=True)
class PlannedKill:
    """To be done once ``after_fraction`` of the input has been read."""

    victim: Victim
    after_fraction: float


PLAN = (PlannedKill("worker", 0.2), PlannedKill("driver", 0.45), PlannedKill("worker", 0.7))


@dataclass(slots=True)
class Kill:
    """One that was done. Times are the wall clock in milliseconds since 1970."""

    victim: Victim
    pid: int
    at_ms: int
    rows_in: int
    data_flowed_ms: int | None = None

    @property
    def recovery_ms(self) -> int | None:
        """Time until data flowed again; None if it never did."""
        return None if self.data_flowed_ms is None else self.data_flowed_ms - self.at_ms


@dataclass(slots=True)
class FaultPlan:
    """Listens to the events of one job; ``kills`` is what became of the plan."""

    plan: Sequence[PlannedKill] = PLAN
    kills: list[Kill] = field(default_factory=list[Kill])
    _driver_pid: int = 0
    _worker_pids: Sequence[int] = ()
    _flowing: bool = False
    _checkpoints: int = 0

    @property
    def complete(self) -> bool:
        """Whether every kill was done and survived."""
        survived = [kill for kill in self.kills if kill.recovery_ms is not None]
        return len(survived) == len(self.plan)

    def hear(self, event: DriverEvent) -> Kill | None:
        """Take an event in; returns the kill that is due now, if one is."""
        match event["event"]:
            case "driver-started":
                self._driver_pid = event["pid"]
            case "workers-running":
                self._worker_pids = event["pids"]
            case "data-flowing":
                self._on_data_flowing(event["time_ms"])
            case "checkpoint-completed":
                self._checkpoints += self._flowing
            case "progress":
                return self._due(event)
            case _:
                pass
        return None

    def _on_data_flowing(self, time_ms: int) -> None:
        self._flowing = True
        self._checkpoints = 0
        if self.kills and self.kills[-1].data_flowed_ms is None:
            self.kills[-1].data_flowed_ms = time_ms

    def _due(self, event: DriverEvent) -> Kill | None:
        done, rows_total = len(self.kills), event["rows_total"]
        if done == len(self.plan) or not rows_total:
            return None
        planned = self.plan[done]
        is_early = event["rows_in"] < planned.after_fraction * rows_total
        if is_early or not self._flowing or self._checkpoints < CHECKPOINTS_BETWEEN:
            return None
        workers = self._worker_pids
        pid = self._driver_pid if planned.victim == "driver" else workers[done % len(workers)]
        self._flowing = False
        self.kills.append(Kill(planned.victim, pid, event["time_ms"], event["rows_in"]))
        return self.kills[-1]
