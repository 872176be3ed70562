"""Decide whether a standby waits, takes its job over, or ends. Pure.

The rules, for the newest generation of the job:

S1  A generation that ended for good ends the standby: it finished, was stopped or cancelled, was
    refused, or its driver gave up.
S2  A generation whose process is visible from here and gone is taken over at once.
S3  A generation that failed while its process lives is started again by that process.
S4  Nothing is known of a process on another host. It counts as lost once its heartbeat has not
    changed for a bound, as this standby has seen itself: clocks of two hosts are not compared. A
    generation that has not given a first sign of life may be reading its checkpoint, so it has as
    long as a start may take.
S5  A job that never ran is not started: an empty store may be another store than the job's.

A wrong decision costs a restart, never a second writer. The take-over names the generation that it
follows, and claims the next one by creating its record: of all who follow the same generation, one
gets the job, and a driver that only was slow is fenced (``protocol.recovery``).
"""

from dataclasses import dataclass, field
from typing import Literal

from laminar_core.protocol.silence import NO_SILENCE, Silence
from laminar_core.protocol.types import Generation

OwnerState = Literal["running", "gone", "unknown"]
"""``unknown``: the process is on another host, or its claim cannot be read."""


@dataclass(frozen=True, slots=True)
class StandbyBounds:
    """How long a driver on another host may be silent until it counts as lost."""

    silence_ms: float
    """While it runs."""
    start_ms: float
    """Before its first heartbeat, while it reads the checkpoint."""
    restart_ms: float
    """After a failure, while it waits until it starts the job again."""


@dataclass(frozen=True, slots=True)
class StandbyFacts:
    """The facts about the newest generation; None: the job never ran.

    ``owner`` is looked at before ``outcome``: what a process that is gone has recorded is final.
    """

    generation: Generation | None = None
    owner: OwnerState = "unknown"
    outcome: str | None = None
    """The end that its driver recorded; None: none."""
    outcome_reason: str = ""
    gave_up: bool = False
    """The driver recorded that it does not start the job again."""
    has_beaten: bool = False
    """A heartbeat of it was ever seen."""
    silence: Silence = NO_SILENCE


@dataclass(frozen=True, slots=True)
class Wait:
    """Look again later; ``reason`` says what for."""

    reason: str


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Claim the generation after ``expected``."""

    expected: Generation
    reason: str
    owner_may_live: bool = field(kw_only=True)
    """Its driver was not seen to be dead: the claim fences it."""


@dataclass(frozen=True, slots=True)
class End:
    """Nothing is left to wait for; ``failed``: the job did not end on purpose."""

    reason: str
    failed: bool = False


def decide_standby(facts: StandbyFacts, bounds: StandbyBounds) -> Wait | TakeOver | End:
    """Return what the standby does now."""
    generation = facts.generation
    if generation is None:
        return Wait("the job has never run")
    if facts.outcome is not None and (facts.outcome != "failed" or facts.gave_up):
        why = f": {facts.outcome_reason}" if facts.outcome_reason else ""
        failed = facts.outcome in ("failed", "refused")
        return End(f"generation {generation} {_ended(facts.outcome)}{why}", failed)
    if facts.owner == "running":
        return Wait(f"the driver of generation {generation} lives")
    if facts.owner == "gone":
        return TakeOver(
            generation, f"the driver of generation {generation} is gone", owner_may_live=False
        )
    return _from_afar(generation, facts, bounds)


def _from_afar(
    generation: Generation, facts: StandbyFacts, bounds: StandbyBounds
) -> Wait | TakeOver:
    limit_ms = bounds.silence_ms if facts.has_beaten else bounds.start_ms
    if facts.outcome is not None:
        limit_ms = bounds.restart_ms + bounds.silence_ms
    if not facts.silence.exceeds(limit_ms):
        return Wait(f"the driver of generation {generation} is on another host")
    silent_s = facts.silence.duration_ms / 1000
    reason = f"generation {generation} has given no sign of life for {silent_s:.0f} s"
    return TakeOver(generation, reason, owner_may_live=True)


def _ended(outcome: str) -> str:
    return outcome if outcome in ("finished", "failed") else f"was {outcome}"
