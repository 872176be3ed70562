"""Decide whether a job is dead, and whether the recovery sensor should restart it. Pure.

The rules:

* A generation that ended by itself (finished, stopped, cancelled) is not dead.
* One whose process is visible from here and gone is dead, at once.
* One that is invisible from here is dead when its heartbeat has not *changed* for
  ``heartbeat_max``, as this sensor has seen itself: clocks of two machines are not compared. Its
  process may be asleep, so the recovery takes the job over; the generation in the store fences it.
* One that beats without completing a checkpoint for ``checkpoint_age_max`` is stuck, if it has been
  seen to beat for as long: after an outage of the store, or of this sensor, it starts from zero.
* One that has not given a first sign of life is still reading its checkpoint; that may take as
  long, or as long as a start of the stream may.
* One that ended with a failure is started again by its own driver, unless that is gone, too.

What Dagster says of a run outlives the run's process. So a run that owns the driver is believed as
long as a live one would take to start it again, and one that acts on the job as long as a start may
take, and the reading before it.

One death is one run: attempts are counted in Dagster's records of runs, each has its own run key,
and the next one follows only a failed one, later each time, ``recoveries_max`` times at most.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from laminar_core.protocol.silence import NO_SILENCE, Silence
from laminar_core.records.actor import ActorKind
from laminar_core.sensors.alerting.alerts import Anchor, Incident
from laminar_core.sensors.policy import AlertPolicy
from laminar_core.sensors.run_records import KnownRun
from laminar_core.units import duration_ms

HOUR_MS = 3_600_000
_BACKOFF_MS = 15_000
_BACKOFF_MS_MAX = 600_000
_RESTART_PAUSES = 2
"""A driver that restarts its job itself takes less than so many times ``heartbeat_max``."""
_STORE_DOWN = 10
"""Multiple of ``heartbeat_max`` without an answer after which an alert is raised."""
_RESTART_MS_MIN = 60_000
"""A run that owns the driver takes no longer to start another one."""

RunningDriver = Literal["refuse", "take_over"]


@dataclass(frozen=True, slots=True)
class RecoveryFacts:
    """Facts about one job's life, by the store and Dagster.

    ``owner``: the state of the newest generation's process, as ``store.owner`` sees it from here.
    ``progress_age_ms``: time since its newest completed checkpoint, or its claim, by its own clock;
    None before its first heartbeat. ``beating_ms``: how long this sensor has seen regular
    heartbeats, also by the driver's clock. ``terminated_run`` owned the driver, and a user ended
    it. ``attempts`` are oldest first.
    """

    generation: int = 0
    claimed_at_ms: int = 0
    outcome: str | None = None
    on_purpose: bool = False
    outcome_reason: str = ""
    started_by: str = ""
    started_by_kind: ActorKind = ActorKind.PERSON
    owner: Literal["running", "gone", "unseen"] = "unseen"
    silence: Silence = NO_SILENCE
    progress_age_ms: float | None = None
    beating_ms: float = 0
    newest_checkpoint: int | None = None
    in_vain: int = 0
    """Number of consecutive earlier generations that completed no checkpoint."""
    in_vain_ms: float = 0
    """How long that has lasted, by this sensor's clock."""
    claimed_by_run: str | None = None
    supervising_run: str | None = None
    terminated_run: str | None = None
    acting_run: KnownRun | None = None
    attempts: tuple[KnownRun, ...] = ()
    start_timeout_ms: int = 0
    """How long a start may take, by the stream's definition."""
    recent: tuple[KnownRun, ...] = ()
    """Recovery runs of the last hour, for any generation."""


@dataclass(frozen=True, slots=True)
class Leave:
    """Do nothing; ``reason`` has the explanation."""

    reason: str


@dataclass(frozen=True, slots=True)
class Alarm:
    """Something is wrong that this sensor does not, or may not, put right."""

    incident: Incident


@dataclass(frozen=True, slots=True)
class Recover:
    """Start the job again; ``attempt`` counts from 1."""

    attempt: int
    running_driver: RunningDriver
    reason: str


@dataclass(frozen=True, slots=True)
class _Failure:
    what: str
    kind: Literal["dead", "silent", "stuck"] = "dead"


def decide_recovery(facts: RecoveryFacts, policy: AlertPolicy) -> Leave | Alarm | Recover:
    """Return whether the job is dead or stuck, and what to do about it now."""
    if facts.generation == 0:
        return Leave("the job has never run")
    failure = _find_failure(facts, policy)
    if isinstance(failure, Leave) and _restarts_in_vain(facts, policy):
        return Alarm(_restarting(facts, failure))
    if not isinstance(failure, _Failure):
        return failure
    if facts.terminated_run is not None:
        said = f"{failure.what}, and a person terminated run {facts.terminated_run}, which owned it"
        return _alarm(
            facts, "recovery-cancelled", "it is not recovered", f"{said}: start it again."
        )
    if facts.supervising_run is not None:
        said = f"{failure.what}; run {facts.supervising_run} owns the driver"
        if failure.kind == "stuck":
            return _alarm(facts, "job-stuck", "it is stuck", f"{said}: terminate that run.")
        if not facts.silence.exceeds(max(_restart_ms(policy), _RESTART_MS_MIN)):
            return Leave(f"{said} and starts it again by itself")
        failure = replace(failure, what=f"{said} and has not started it again")
    if (acting := facts.acting_run) is not None:
        return _wait_for(facts, failure, acting)
    return _next_attempt(facts, policy, failure)


def _restarts_in_vain(facts: RecoveryFacts, policy: AlertPolicy) -> bool:
    """The driver starts the job again and again by itself, and it completes nothing."""
    too_long = facts.in_vain_ms > duration_ms(policy.checkpoint_age_max)
    return not facts.on_purpose and too_long and facts.in_vain >= max(policy.recoveries_max, 1)


def _restarting(facts: RecoveryFacts, failure: Leave) -> Incident:
    minutes = facts.in_vain_ms / 60_000
    return Incident(
        cause="restarts-in-vain",  # Whatever generation it has come to.
        anchor="too-many-recoveries",
        severity="error",
        title="it restarts again and again",
        text=f"{facts.in_vain} generations in {minutes:.0f} min completed no checkpoint: look for "
        f"the cause in the driver's log. {failure.reason}",
        facts={"generation": facts.generation, "in_vain": facts.in_vain},
    )


def _wait_for(facts: RecoveryFacts, failure: _Failure, run: KnownRun) -> Leave | Alarm:
    said = f"{failure.what}; run {run.run_id} ({run.job}) is under way"
    if not run.hangs:
        return Leave(said)
    said = f"{said} for {run.created_ms_ago / 60_000:.0f} min"
    return _alarm(
        facts,
        "job-dead",
        f"it is {_word(failure)}, and a run hangs",
        f"{said}: terminate that run, with force if its process is gone, and recover it by hand.",
    )


def _find_failure(facts: RecoveryFacts, policy: AlertPolicy) -> _Failure | Leave | Alarm:
    if facts.outcome is not None:
        return _after_the_end(facts, policy)
    generation, age_max = facts.generation, duration_ms(policy.checkpoint_age_max)
    if facts.owner == "gone":
        return _Failure(f"the driver of generation {generation} is gone")
    if facts.progress_age_ms is None:
        start_max_ms = max(age_max, facts.start_timeout_ms)
        if facts.silence.exceeds(start_max_ms):
            what = f"generation {generation} has not begun within {start_max_ms / 60_000:g} min"
            return _Failure(what, "silent")
        return Leave(f"generation {generation} is starting")
    silent_s = facts.silence.duration_ms / 1000
    if facts.silence.exceeds(duration_ms(policy.heartbeat_max)):
        what = f"generation {generation} has given no sign of life for {silent_s:.0f} s"
        return _Failure(what, "silent")
    if min(facts.progress_age_ms, facts.beating_ms) > age_max:
        minutes = facts.progress_age_ms / 60_000
        what = f"generation {generation} lives, but no checkpoint completed for {minutes:.1f} min"
        return _Failure(what, "stuck")
    return Leave(
        f"generation {generation} is alive: {_checkpoint(facts)} "
        f"{facts.progress_age_ms / 1000:.0f} s ago, last sign of life seen {silent_s:.0f} s ago"
    )


def _after_the_end(facts: RecoveryFacts, policy: AlertPolicy) -> _Failure | Leave | Alarm:
    generation = facts.generation
    if facts.on_purpose:
        return Leave(f"generation {generation} {facts.outcome}: it is not meant to run")
    what = f"generation {generation} {facts.outcome}: {facts.outcome_reason}"
    if facts.outcome == "refused" and facts.started_by_kind is not ActorKind.SENSOR:
        said = f"{what}. {facts.started_by or 'Somebody'} started it and got the reason"
        return _alarm(facts, "start-refused", "its start was refused", f"{said}: start it again.")
    if facts.owner == "gone" or facts.silence.exceeds(_restart_ms(policy)):
        return _Failure(what)
    return Leave(f"{what}; its driver may start it again by itself")


def _next_attempt(
    facts: RecoveryFacts, policy: AlertPolicy, failure: _Failure
) -> Leave | Alarm | Recover:
    done = [run for run in facts.attempts if run.status != "created"]
    if running := [run for run in done if run.status == "in progress"]:
        return _wait_for(facts, failure, running[0])
    if cancelled := [run for run in done if run.status == "cancelled"]:
        said = f"{failure.what}, and a person cancelled run {cancelled[0].run_id}, its recovery"
        return _alarm(
            facts, "recovery-cancelled", "it is not recovered", f"{said}: recover it by hand."
        )
    if not policy.recover:
        said = f"{failure.what}, and recover is off in its AlertPolicy: recover it by hand."
        anchor: Anchor = "job-stuck" if failure.kind == "stuck" else "job-dead"
        return _alarm(facts, anchor, f"it is {_word(failure)}", said)
    most = policy.recoveries_max
    if len(done) >= most or len(facts.recent) >= most:
        return _alarm(
            facts,
            "too-many-recoveries",
            "it dies again and again",
            f"{failure.what}. {len(done)} recoveries of this generation and "
            f"{len(facts.recent)} within one hour are enough ({most}): look for the "
            "cause, then recover it by hand.",
        )
    in_vain = done if facts.newest_checkpoint is not None else facts.recent
    if (left_ms := _backoff_left_ms(in_vain)) > 0:
        said = f"{failure.what}; recovered {len(in_vain)}x in vain"
        return Leave(f"{said}, the next one starts in {left_ms / 1000:.0f} s")
    return Recover(
        attempt=len(done) + 1,
        running_driver="refuse" if failure.kind == "dead" else "take_over",
        reason=failure.what,
    )


def _backoff_left_ms(in_vain: Sequence[KnownRun]) -> float:
    """Return the rest of the pause: 15 s after the first failure, then doubled each time.

    Failures of earlier generations count as long as no checkpoint has completed: most failed
    recoveries have claimed a generation before, and their cause may last.
    """
    if not in_vain:
        return 0
    pause_ms = min(_BACKOFF_MS * 2 ** (len(in_vain) - 1), _BACKOFF_MS_MAX)
    ages_ms = (
        run.created_ms_ago if run.ended_ms_ago is None else run.ended_ms_ago for run in in_vain
    )
    return pause_ms - max(min(ages_ms), 0)


def incidents_of(facts: RecoveryFacts, decision: Leave | Alarm | Recover) -> list[Incident]:
    """Return the problems for alerts; a stuck job is one even if it is restarted at once."""
    if isinstance(decision, Recover) and decision.running_driver == "take_over":
        said = f"{decision.reason}: it is taken over. Look at its log for what held it up."
        return [_incident(facts, "job-stuck", "it was stuck or silent", said)]
    return [decision.incident] if isinstance(decision, Alarm) else []


def nothing_restorable(facts: RecoveryFacts, why: str) -> Alarm:
    """Return the alarm for a dead job without a restorable checkpoint."""
    said = f"Generation {facts.generation} is dead, and nothing can be restored: {why}"
    return _alarm(facts, "nothing-restorable", "it cannot be recovered", said)


def unreadable(problem: str) -> Alarm:
    """Return the alarm for damaged records, which make it unknown whether the job is dead."""
    said = f"It is unknown whether the job lives: {problem}"
    incident = Incident(
        "unreadable", "nothing-restorable", "error", "its records are damaged", said
    )
    return Alarm(incident)


def store_down(problem: str, down_ms: float, policy: AlertPolicy) -> list[Incident]:
    """Return the problem of a store that has not answered for long: the job is unobserved."""
    if down_ms < _STORE_DOWN * duration_ms(policy.heartbeat_max):
        return []
    said = f"No facts about the job for {down_ms / 60_000:.0f} min: {problem}"
    return [Incident("store-down", "store-down", "error", "its store does not answer", said)]


def _alarm(facts: RecoveryFacts, anchor: Anchor, title: str, text: str) -> Alarm:
    return Alarm(_incident(facts, anchor, title, text))


def _incident(facts: RecoveryFacts, anchor: Anchor, title: str, text: str) -> Incident:
    return Incident(
        cause=f"{anchor}:{facts.generation}:{facts.claimed_at_ms}",
        anchor=anchor,
        severity="error",
        title=title,
        text=text,
        facts={"generation": facts.generation, "attempts": len(facts.attempts)},
    )


def _restart_ms(policy: AlertPolicy) -> int:
    return _RESTART_PAUSES * duration_ms(policy.heartbeat_max)


def _word(failure: _Failure) -> str:
    return "stuck" if failure.kind == "stuck" else "dead"


def _checkpoint(facts: RecoveryFacts) -> str:
    known = facts.newest_checkpoint
    return "it began" if known is None else f"checkpoint {known} completed"
