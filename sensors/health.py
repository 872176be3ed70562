"""Verdicts on whether a stream runs, and whether its checkpoints complete: each one line.

The line of ``judge_running`` says in what state the stream is, and which job a person starts next.
It names no age, so it stays the same as long as the state does. Times are of wall clocks, in
milliseconds since 1970.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from laminar_core.records.manifest import GenerationEnd
from laminar_core.resources.names import GROUP, job_name, sensor_name
from laminar_core.sensors.judgements import Verdict, ended_on_purpose
from laminar_core.sensors.policy import AlertPolicy

DriverState = Literal["starting", "beating", "silent", "gone", "ended"]
"""``silent``: no sign of life for ``heartbeat_max``, or no first one for ``checkpoint_age_max``.
``gone``: it ran on this machine, where its process does not exist any more."""


@dataclass(frozen=True, slots=True)
class DriverLife:
    """The newest generation of a stream, and what is known of its driver."""

    generation: int
    state: DriverState
    started_by: str
    start_reason: str
    seen_at_ms: int | None
    """The last sign of life; of a generation that ended, its end; None: unknown."""
    end: GenerationEnd | None = None
    """None unless ``state`` is ended."""
    ended_by: str | None = None
    """The person or sensor whose command ended it; None: there was no command."""
    completed_id: int | None = None
    """The newest completed checkpoint on the timeline."""


def judge_running(life: DriverLife | None, policy: AlertPolicy, group: str = GROUP) -> Verdict:
    """Judge whether a driver runs the stream: passed only while it gives signs of life.

    A stream that was ended on purpose is a warning. One that died is a severe failure. ``group`` is
    the prefix of the jobs that the verdict names.
    """
    if life is None:
        said = f"never started: start it with {job_name('start', group)}, start_from: fresh"
        return Verdict(passed=False, description=said)
    name = f"generation {life.generation}"
    by = f"started by {life.started_by} ({life.start_reason})"
    match life.state:
        case "beating":
            said = f"running: {name}, {by}. {job_name('stop', group)} ends it with a checkpoint"
            return Verdict(passed=True, description=said)
        case "starting":
            said = f"starting: {name}, {by}, has not begun to read yet"
            return Verdict(passed=False, description=said)
        case "silent" | "gone":
            said = f"dead: {name}, {by}, {_how_dead(life, policy)}. {_remedy(policy, group)}"
            return Verdict(passed=False, description=said, is_severe=True)
        case "ended":
            assert life.end is not None
            said = _ended(life, life.end, policy, group)
            is_severe = not ended_on_purpose(life.end)
            return Verdict(passed=False, description=said, is_severe=is_severe)


def _ended(life: DriverLife, end: GenerationEnd, policy: AlertPolicy, group: str) -> str:
    start = job_name("start", group)
    cut = "" if life.completed_id is None else f" at checkpoint {life.completed_id}"
    by = "" if life.ended_by is None else f" by {life.ended_by}"
    why = f" ({end.reason})" if end.reason else ""
    said = f"{end.outcome}{cut}{by}, {_time(life.seen_at_ms)}{why}"
    start_from = "fresh" if life.completed_id is None else "newest"
    match end.outcome:
        case "finished":
            return f"{said}: its input has ended"
        case "stopped" | "cancelled":
            return f"{said}: start it with {start}, start_from: {start_from}"
        case "refused":
            return f"{said}: mend that, and start it with {start}, start_from: {start_from}"
        case _:
            return f"{said}. Its driver may start it again itself. {_remedy(policy, group)}"


def _how_dead(life: DriverLife, policy: AlertPolicy) -> str:
    if life.seen_at_ms is None:
        return f"has given no sign of life within {policy.checkpoint_age_max}"
    last = f"its last sign of life was {_time(life.seen_at_ms)}"
    return f"its process is gone, {last}" if life.state == "gone" else last


def _remedy(policy: AlertPolicy, group: str) -> str:
    by_hand = f"{job_name('recover', group)} with the newest checkpoint"
    if not policy.recover:
        return f"Start it again with {by_hand}"
    return f"The sensor {sensor_name('recovery', group)} starts it again; by hand: {by_hand}"


def _time(at_ms: int | None) -> str:
    if at_ms is None:
        return "at an unknown time"
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


# --- attempts at checkpoints ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FailingAttempts:
    """Attempts at checkpoints that were declined or expired since the last one completed."""

    count: int
    checkpoint_id: int
    """The newest of them."""
    outcome: str
    reason: str
    completed_id: int | None
    """The newest completed one that was found."""
    is_all: bool = field(kw_only=True)
    """Whether no more of them can be further back than was searched."""


def judge_attempts(failing: FailingAttempts | None) -> Verdict:
    """Judge whether checkpoints complete: a severe failure from the first one that does not."""
    if failing is None:
        said = "the newest checkpoint that ended has completed, or none has ended yet"
        return Verdict(passed=True, description=said, figures={"failed_in_a_row": 0})
    count = f"{failing.count}" if failing.is_all else f"{failing.count} or more"
    since = "ever" if failing.completed_id is None else f"since checkpoint {failing.completed_id}"
    attempts = "attempt" if failing.count == 1 else "attempts"
    said = f"{count} {attempts} at a checkpoint failed, and none completed {since}"
    said = f"{said}; the last, {failing.checkpoint_id}, {failing.outcome}: "
    said = f"{said}{failing.reason or 'no reason is recorded'}"
    figures = {"failed_in_a_row": failing.count}
    return Verdict(passed=False, description=said, is_severe=True, figures=figures)
