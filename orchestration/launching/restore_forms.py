"""Forms for restarts: no important field has a default."""

from datetime import datetime
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from laminar_core.orchestration.acts import ActForm
from laminar_core.orchestration.launching.running_driver import RestartRequest, RunningDriver
from laminar_core.protocol.recovery_facts import RestoreRequest
from laminar_core.protocol.types import CheckpointId
from laminar_core.records.actor import Actor


def _instant(text: str) -> str:
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        instant = None
    if instant is None or instant.tzinfo is None:
        raise ValueError("write the time in ISO 8601 with a zone, as in 2026-03-01T12:00:00Z")
    return text


Instant = Annotated[str, AfterValidator(_instant)]


class ExpectingForm(ActForm):
    """Config of every start of a driver."""

    expected_generation: int | None = Field(
        default=None,
        ge=0,
        description="Start only if this is the newest generation (0: the job never ran). Empty: "
        "the newest one when this run begins.",
    )


class RestartForm(ExpectingForm):
    """Config of a start while a driver may be running."""

    running_driver: RunningDriver = Field(
        default="refuse",
        description="If a driver runs the job: refuse (change nothing), stop (with a last "
        "checkpoint), cancel (at once), take_over (continue as if it were dead).",
    )

    def request(self, actor: Actor) -> RestartRequest:
        """Return what ``actor`` asks for with this form."""
        return RestartRequest(actor.because(self.reason), self.running_driver)


class RecoveryForm(RestartForm):
    """Config of the recovery asset.

    Dagster drops the config of an op that it does not know, for example one with a mistyped name.
    So a field is required: its absence reveals the mistake.
    """

    reason: str = Field(
        min_length=1,
        description="Why: recorded in the job's audit log, with your name and this run.",
    )


class RecoverForm(RestartForm):
    """The checkpoint to restore: exactly one of checkpoint, before and newest."""

    checkpoint: int | None = Field(default=None, ge=1, description="This one, as in 42.")
    before: Instant | None = Field(
        default=None,
        description="The newest that was completed before this time: ISO 8601 with a zone.",
    )
    newest: bool = Field(default=False, description="Restore the newest intact checkpoint.")
    dry_run: bool = Field(
        default=False, description="Only report what would be done; the job may be running."
    )

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        given = (self.checkpoint is not None, self.before is not None, self.newest)
        if sum(given) != 1:
            raise ValueError("give exactly one of checkpoint, before and newest: true")
        return self

    @property
    def restore_request(self) -> RestoreRequest:
        """Return the choice for the store."""
        checkpoint_id = None if self.checkpoint is None else CheckpointId(self.checkpoint)
        before_ms = None
        if self.before is not None:
            before_ms = int(datetime.fromisoformat(self.before).timestamp() * 1000)
        return RestoreRequest(checkpoint_id=checkpoint_id, before_ms=before_ms)

    @property
    def words(self) -> list[str]:
        """Return the choice as arguments of ``laminar recover``."""
        if self.checkpoint is not None:
            return ["--restore", str(self.checkpoint)]
        return [] if self.before is None else ["--restore-before", self.before]


class RollbackForm(RestartForm):
    """How far to go back."""

    by: int = Field(
        ge=1,
        description="How many completed checkpoints to go back from the newest.",
    )


class RescaleForm(ExpectingForm):
    """The new number of workers. A running driver is stopped with a checkpoint."""

    workers: int = Field(
        ge=1,
        description="Workers of the next driver, and of those that recover it; a plain start uses "
        "the number in the stream's definition.",
    )

    def request(self, actor: Actor) -> RestartRequest:
        """Return what ``actor`` asks for with this form."""
        return RestartRequest(actor.because(self.reason), "stop", self.workers)
