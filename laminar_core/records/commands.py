"""Records of commands for a running job, and of their results.

control/{n}.json          the command, by any process with access       create-only
control/{n}.begun.json    a generation carries it out                   create-only
control/{n}.result.json   how that ended                                create-only
"""

from typing import Annotated, Literal

from pydantic import Field

from laminar_core.records.actor import Actor, ActorKind, Attributed, kind_by_name
from laminar_core.records.record import (
    CheckpointNumber,
    Count,
    JsonObject,
    Positive,
    Prose,
    Record,
    TimeMs,
)


class TakeCheckpoint(Record):
    """Trigger a checkpoint now."""

    kind: Literal["checkpoint"] = "checkpoint"


class TakeSavepoint(Record):
    """Take an aligned checkpoint and copy it, whole and by itself, to ``target``."""

    kind: Literal["savepoint"] = "savepoint"
    target: str = Field(description="URI of a store; nothing must be there yet.")


class StopJob(Record):
    """Take a last checkpoint, commit the output and end.

    With a ``target`` the last checkpoint becomes a savepoint there; if that fails the job
    continues.
    """

    kind: Literal["stop"] = "stop"
    target: str | None = None


class CancelJob(Record):
    """End at once, without a last checkpoint."""

    kind: Literal["cancel"] = "cancel"


class SetMode(Record):
    """Change how checkpoints behave under backpressure; a number is the timeout in milliseconds."""

    kind: Literal["mode"] = "mode"
    mode: Literal["aligned", "unaligned", "default"] | Count


Action = Annotated[
    TakeCheckpoint | TakeSavepoint | StopJob | CancelJob | SetMode, Field(discriminator="kind")
]


class ControlCommand(Attributed):
    """A command for the driver of ``generation``."""

    format_version: Literal[1, 2] = 2
    command_id: str = Field(
        description="Unlike any other: tells equal commands apart.", min_length=8
    )
    job: str
    generation: Positive = Field(description="Which is to do it; no other one does.")
    action: Action
    actor: str
    actor_kind: ActorKind = Field(default_factory=kind_by_name)
    reason: Prose
    run_id: str | None = Field(default=None, description="Of the orchestrator's run, if any.")
    requested_at_ms: TimeMs
    expires_at_ms: TimeMs = Field(
        description="By the clock of requested_at_ms. The driver counts the difference from when it"
        " finds the command; not begun by then: not done at all."
    )

    @property
    def by(self) -> Actor:
        """Return who sent the command, and why."""
        return Actor(self.actor, self.actor_kind, self.reason, self.run_id)


class ControlBegun(Record):
    """``generation`` has taken the command up; no other generation will."""

    format_version: Literal[1] = 1
    generation: Positive
    begun_at_ms: TimeMs


ControlOutcome = Literal["completed", "failed", "refused", "expired", "interrupted"]


class ControlResult(Record):
    """How a command ended. Only ``completed`` means that it was carried out."""

    format_version: Literal[1] = 1
    outcome: ControlOutcome
    reason: Prose = ""
    generation: Positive = Field(description="Who says so.")
    answered_at_ms: TimeMs
    checkpoint_id: CheckpointNumber | None = None
    savepoint: str | None = Field(default=None, description="URI of what was made.")
    details: JsonObject = Field(default_factory=dict)
