"""Decide whether scheduled housekeeping has anything to do; facts in, decision out."""

from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True, slots=True)
class Tick:
    """The facts of a schedule's tick."""

    schedule: str
    job: str
    """Name of the job in Dagster."""
    time: datetime
    """When the tick was due."""
    problem: str | None = None
    """Why the store could not be read."""
    generation: int | None = None
    """The newest of the stream; None: it never ran."""
    completed: int = 0
    """Number of checkpoints in the store."""

    @property
    def at(self) -> str:
        """The time as a run key: a repeated tick has the same one.

        >>> Tick("s", "j", datetime(2026, 11, 21, 4, 43, tzinfo=UTC)).at
        '2026-11-21T04:43Z'
        """
        return f"{self.time.astimezone(UTC):%Y-%m-%dT%H:%M}Z"


@dataclass(frozen=True, slots=True)
class Due:
    """Run the job; ``reason`` goes to its log and to the audit log."""

    reason: str


@dataclass(frozen=True, slots=True)
class NotDue:
    """Do not run the job, for this ``reason``."""

    reason: str


def decide_tick(tick: Tick, completed_min: int = 0) -> Due | NotDue:
    """Decide whether to run; ``completed_min`` is the number of checkpoints that the job needs."""
    if tick.problem is not None:
        return NotDue(f"the store could not be read: {tick.problem}")
    if tick.generation is None:
        return NotDue("the stream never ran: there is nothing to do")
    if tick.completed < completed_min:
        return NotDue(
            f"the store has {tick.completed} completed checkpoints: {tick.job} needs "
            f"{completed_min}"
        )
    return Due(f"{tick.schedule} of {tick.at}")
