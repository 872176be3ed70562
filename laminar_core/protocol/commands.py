"""Decide what a driver does with the commands that were left for it in the store.

A command is *taken up* by creating a record that names the generation, then carried out or refused,
then answered by creating the result. Both records are create-only, so the following holds with any
number of drivers, running or suspended:

C1  A command is carried out by at most one generation, and once: the one whose record it is.
C2  A command that was taken up by a generation that is over is answered ``interrupted``: its
    outcome is unknown, and trying again could repeat it.
C3  A command is carried out only by the generation that it is addressed to, and before it expires;
    a command that was refused or has expired is never carried out, not even by a generation that
    was asleep. It expires when its client's time limit has passed since the driver found it, by
    the driver's monotonic clock: the wall clocks of two machines are not compared.
C4  Commands are taken up in the order of their numbers.

Checked by ``tests/protocol/test_commands.py``.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from laminar_core.protocol.types import Generation

Verdict = Literal["refused", "expired", "interrupted"]
"""How a command ends that is not carried out: its addressee refused it, it expired, or its
generation died.
"""


@dataclass(frozen=True, slots=True)
class CommandFacts:
    """One command without a result, as it lies in the store.

    ``expires_ms``: by the driver's own monotonic clock, see C3.
    ``problem``: why it cannot be read; then nothing else is known of it but ``begun_by``.
    ``started``: this very driver has begun to carry it out, and has not answered yet.
    """

    number: int
    addressed_to: Generation | None = None
    expires_ms: float = 0.0
    begun_by: Generation | None = None
    started: bool = False
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Begin:
    """Take it up; if the record is ours, carry the command out."""

    number: int


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer a command without carrying it out.

    Take it up; if the record is ours, create the result. An ``interrupted`` command was taken up by
    another generation and needs only the result.
    """

    number: int
    verdict: Verdict
    reason: str


def decide_commands(
    commands: Iterable[CommandFacts], generation: Generation, now_ms: float
) -> tuple[Begin | Answer, ...]:
    """Return the decisions for the driver of ``generation``, in the order of command numbers.

    Commands under way, and commands for a later generation, need no decision. ``now_ms`` is
    monotonic.
    """
    ordered = sorted(commands, key=lambda command: command.number)
    decided = (_decide(command, generation, now_ms) for command in ordered)
    return tuple(decision for decision in decided if decision is not None)


def _decide(command: CommandFacts, generation: Generation, now_ms: float) -> Begin | Answer | None:
    number, begun_by, addressed_to = command.number, command.begun_by, command.addressed_to
    if command.started or max(begun_by or 0, addressed_to or 0) > generation:
        return None  # Under way; or this driver's time is over, and another one answers.
    if begun_by is not None and begun_by < generation:
        reason = f"generation {begun_by} ended while it carried this out: check its effect"
        return Answer(number, "interrupted", reason)
    if command.problem is not None:
        return Answer(number, "refused", command.problem)
    if addressed_to is None or addressed_to < generation:
        reason = f"it is for generation {addressed_to}, and {generation} runs now: ask again"
        return Answer(number, "refused", reason)
    if now_ms >= command.expires_ms and begun_by is None:
        late_ms = now_ms - command.expires_ms
        return Answer(number, "expired", f"it came {late_ms / 1000:.1f} s too late: ask again")
    return Begin(number)


@dataclass(frozen=True, slots=True)
class ModeChange:
    """The new ``alignment_timeout_ms``, from the next checkpoint on. None: always aligned."""

    alignment_timeout_ms: int | None


@dataclass(frozen=True, slots=True)
class ModeRefused:
    """The job cannot switch to the requested mode."""

    reason: str


RequestedMode = Literal["aligned", "unaligned", "default"]


def decide_mode(
    requested: RequestedMode | int, configured_ms: int | None, max_concurrent: int
) -> ModeChange | ModeRefused:
    """Translate a requested mode; a number is an alignment timeout in milliseconds.

    Edges that always align keep doing so (PROTOCOL 7.1): they are few, and every unaligned
    checkpoint includes them. Overlapping checkpoints cannot be unaligned (PROTOCOL 6).
    """
    match requested:
        case "aligned":
            return ModeChange(None)
        case "default":
            return ModeChange(configured_ms)
        case "unaligned":
            timeout_ms = 0
        case int():
            timeout_ms = requested
    if max_concurrent > 1:
        return ModeRefused(
            f"the job takes up to {max_concurrent} checkpoints at once, and those that may turn "
            "unaligned cannot overlap: run it with max_concurrent 1"
        )
    return ModeChange(timeout_ms)
