"""Whether a stream's housekeeping has anything to do at a tick; facts in, decision out."""

from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True, slots=True)
class Tick:
    """What a schedule saw when its time came."""

    schedule: str
    job: str
    """Of Dagster."""
    time: datetime
    """When it was due."""
    problem: str | None = None
    """Why the store could not be looked at."""
    generation: int | None = None
    """The newest of the stream; None: it never ran."""
    completed: int = 0
    """Checkpoints in the store."""

    @property
    def at(self) -> str:
        """The time as a key of runs: a tick that is repeated has the same.

        >>> Tick("s", "j", datetime(2026, 11, 21, 4, 43, tzinfo=UTC)).at
        '2026-11-21T04:43Z'
        """
        return f"{self.time.astimezone(UTC):%Y-%m-%dT%H:%M}Z"


@dataclass(frozen=True, slots=True)
class Due:
    """Run the job; ``reason`` says why, for its log and for the audit log."""

    reason: str


@dataclass(frozen=True, slots=True)
class NotDue:
    """Leave it; ``reason`` says why."""

    reason: str


def decide_tick(tick: Tick, completed_min: int = 0) -> Due | NotDue:
    """Whether to run; ``completed_min`` is how many checkpoints the job needs to make sense."""
    if tick.problem is not None:
        return NotDue(f"the store could not be looked at: {tick.problem}")
    if tick.generation is None:
        return NotDue("the stream never ran: there is nothing to look after")
    if tick.completed < completed_min:
        return NotDue(
            f"the store has {tick.completed} completed checkpoints: {tick.job} needs "
            f"{completed_min}"
        )
    return Due(f"{tick.schedule} of {tick.at}")
