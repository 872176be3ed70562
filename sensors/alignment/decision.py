"""Decide when a running job should overtake with its barriers, and when align again. Pure.

For aligned checkpoints the alignment time shows the pressure. Unaligned ones always align quickly,
so the overtaken rows are used instead: the time in which the job processes them, at its current
rate, is about the time that alignment would have taken. ``alignment_calm`` is less than
``alignment_act``, and between the two the mode stays. So a constant load changes the mode at most
once.

A mode that a person set stays until a person sets it to ``default``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from laminar_core.records.actor import ActorKind
from laminar_core.sensors.alerting.alerts import Incident
from laminar_core.sensors.judgements import alignment_p99
from laminar_core.sensors.policy import AlertPolicy
from laminar_core.units import duration_ms


@dataclass(frozen=True, slots=True)
class Sample:
    """A periodic checkpoint that ended while the present mode was in force.

    ``alignment_ms``: None if that is not known; of one that expired, how long it waited at least.
    ``inflight_rows``: those that its barriers overtook; None if that is not known.
    """

    checkpoint_id: int
    alignment_ms: float | None
    inflight_rows: int | None = None
    completed: bool = True


@dataclass(frozen=True, slots=True)
class UnderWay:
    """A checkpoint that has neither completed nor failed."""

    checkpoint_id: int
    age_ms: float


@dataclass(frozen=True, slots=True)
class ModeInForce:
    """The mode set by the newest completed command, or at the start (``number`` 0).

    ``age_ms`` is the time since the driver changed it. ``refused``: why the driver cannot change
    it.
    """

    mode: str = "default"
    number: int = 0
    actor: str = ""
    age_ms: float | None = None
    refused: str | None = None
    actor_kind: ActorKind = ActorKind.PERSON

    @property
    def is_a_persons(self) -> bool:
        """Whether a person set the mode, not a sensor."""
        return self.mode != "default" and self.actor_kind is not ActorKind.SENSOR


@dataclass(frozen=True, slots=True)
class ModeRun:
    """The newest run that changes the mode."""

    run_id: str
    in_progress: bool
    age_ms: float


@dataclass(frozen=True, slots=True)
class AlignmentFacts:
    """The alignment of one job, by the store and Dagster. ``samples`` are oldest first."""

    generation: int = 0
    claimed_at_ms: int = 0
    not_running: str | None = None
    """Why no driver would carry out a command; None: one is running."""
    mode: ModeInForce = ModeInForce()
    samples: tuple[Sample, ...] = ()
    under_way: UnderWay | None = None
    rows_per_s: float | None = None
    """Current throughput of the job; None if unknown yet."""
    may_overtake: bool = True
    """There is an edge on which barriers can overtake rows."""
    request: ModeRun | None = None

    @property
    def newest_id(self) -> int:
        """The number of the newest checkpoint with any information."""
        newest = self.samples[-1].checkpoint_id if self.samples else 0
        return max(newest, self.under_way.checkpoint_id if self.under_way else 0)


@dataclass(frozen=True, slots=True)
class Change:
    """Request this mode of the job."""

    mode: Literal["unaligned", "default"]
    reason: str


@dataclass(frozen=True, slots=True)
class Stay:
    """Leave the mode as it is."""

    reason: str


def decide_alignment(facts: AlignmentFacts, policy: AlertPolicy) -> Change | Stay:
    """Return whether to change the mode of the running job, and why."""
    if facts.not_running is not None:
        return Stay(f"the job is not running: {facts.not_running}")
    if facts.mode.is_a_persons:
        return Stay(
            f"{facts.mode.actor} set the mode to {facts.mode.mode}, which stays until a person "
            f"sets it to default ({_seen(facts, policy)})"
        )
    wanted = _wanted(facts, policy)
    if isinstance(wanted, Change) and (obstacle := _obstacle(facts, policy, wanted)):
        return Stay(f"{wanted.reason}; the mode stays {facts.mode.mode}: {obstacle}")
    return wanted


def find_emergency(facts: AlignmentFacts, policy: AlertPolicy) -> list[Incident]:
    """Return the problem that people must know even if the sensor acts.

    ``alignment_hard`` exceeded.
    """
    worst = None if facts.not_running else _beyond(facts, duration_ms(policy.alignment_hard))
    if worst is None:
        return []
    checkpoint_id, took_ms, said = worst
    return [
        Incident(
            cause=f"alignment:{facts.generation}:{facts.mode.number}",
            anchor="alignment",
            severity="warning",
            title=f"checkpoint {checkpoint_id} waits too long for its barriers",
            text=f"{said}, more than {policy.alignment_hard}; the mode is {facts.mode.mode}. "
            "Find the operator that is too slow for its input.",
            facts={"checkpoint_id": checkpoint_id, "alignment_ms": round(took_ms)},
        )
    ]


def _wanted(facts: AlignmentFacts, policy: AlertPolicy) -> Change | Stay:
    if facts.mode.mode == "unaligned":
        return _calm(facts, policy)
    hard = _beyond(facts, duration_ms(policy.alignment_hard))
    if hard is not None:
        return Change("unaligned", f"{hard[2]}, more than {policy.alignment_hard}")
    times_ms = _alignment_times_ms(facts.samples)
    p99_ms = alignment_p99(times_ms, policy)
    if p99_ms is None or p99_ms <= duration_ms(policy.alignment_act):
        return Stay(_seen(facts, policy))
    return Change("unaligned", f"{_seen(facts, policy)}, more than {policy.alignment_act}")


def _calm(facts: AlignmentFacts, policy: AlertPolicy) -> Change | Stay:
    """Forced unaligned by a sensor: is it over?"""
    calm_ms = duration_ms(policy.alignment_calm)
    streak = _calm_streak(facts, calm_ms)
    if streak >= policy.calm_checkpoints:
        said = f"what {streak} checkpoints in a row overtook is worked off in {calm_ms} ms each"
        return Change("default", f"{said}, at {facts.rows_per_s or 0:.0f} rows/s")
    return Stay(
        f"unaligned since command {facts.mode.number}: {streak} of {policy.calm_checkpoints} "
        f"checkpoints in a row are calm ({_newest_inflight(facts)})"
    )


def _calm_streak(facts: AlignmentFacts, calm_ms: float) -> int:
    """How many of the newest checkpoints overtook next to nothing; unknown ones do not count."""
    streak = 0
    for sample in reversed(facts.samples):
        if not sample.completed:
            break
        if sample.inflight_rows is None:
            continue
        work_ms = _work_ms(sample.inflight_rows, facts.rows_per_s)
        if work_ms is None or work_ms > calm_ms:
            break
        streak += 1
    return streak


def _work_ms(rows: int, rows_per_s: float | None) -> float | None:
    """Time to work so many rows off; None: it is not known, or takes for ever."""
    if rows == 0:
        return 0.0
    return 1000 * rows / rows_per_s if rows_per_s else None


def _beyond(facts: AlignmentFacts, limit_ms: float) -> tuple[int, float, str] | None:
    """Return a checkpoint above the limit: its number, its time, and a description."""
    if (under_way := facts.under_way) is not None and under_way.age_ms > limit_ms:
        said = f"checkpoint {under_way.checkpoint_id} has been under way for "
        return under_way.checkpoint_id, under_way.age_ms, f"{said}{under_way.age_ms / 1000:.1f} s"
    for sample in reversed(facts.samples):
        if sample.alignment_ms is not None and sample.alignment_ms > limit_ms:
            said = f"checkpoint {sample.checkpoint_id} aligned for {sample.alignment_ms:.0f} ms"
            return sample.checkpoint_id, sample.alignment_ms, said
    return None


def _obstacle(facts: AlignmentFacts, policy: AlertPolicy, wanted: Change) -> str | None:
    """Return what prevents a change of the mode that would otherwise be made; None: nothing."""
    request, cooldown_ms = facts.request, duration_ms(policy.cooldown)
    if request is not None and request.in_progress:
        return f"run {request.run_id} is changing it"
    if wanted.mode == "unaligned" and not facts.may_overtake:
        return "every edge of this pipeline must stay aligned"
    if facts.mode.refused is not None:
        return f"the driver refused: {facts.mode.refused}"
    changed_ms = [age for age in (facts.mode.age_ms, request and request.age_ms) if age is not None]
    if changed_ms and min(changed_ms) < cooldown_ms:
        since_s = min(changed_ms) / 1000
        return f"the last change was {since_s:.0f} s ago, and the cooldown is {policy.cooldown}"
    return None if policy.flip else "flip is off for this stream"


def _alignment_times_ms(samples: Sequence[Sample]) -> list[float]:
    return [s.alignment_ms for s in samples if s.alignment_ms is not None]


def _seen(facts: AlignmentFacts, policy: AlertPolicy) -> str:
    times_ms = _alignment_times_ms(facts.samples)[-policy.alignment_window :]
    p99_ms = alignment_p99(times_ms, policy)
    if p99_ms is None:
        needed = policy.alignment_samples_min
        return f"{len(times_ms)} of {needed} checkpoints since the mode was set"
    return f"p99 of the last {len(times_ms)} alignment times is {p99_ms:.0f} ms"


def _newest_inflight(facts: AlignmentFacts) -> str:
    known = [s for s in facts.samples if s.inflight_rows is not None]
    rate = "unknown" if facts.rows_per_s is None else f"{facts.rows_per_s:.0f}"
    if not known:
        return f"none has completed since, {rate} rows/s"
    return f"checkpoint {known[-1].checkpoint_id} overtook {known[-1].inflight_rows} rows, {rate}/s"
