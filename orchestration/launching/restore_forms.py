"""Forms for restarts: no important field has a default."""

from pydantic import Field

from laminar_core.orchestration.acts import ActForm
from laminar_core.orchestration.checkpoint_choices import Restore
from laminar_core.orchestration.launching.running_driver import RestartRequest, RunningDriver
from laminar_core.records.actor import Actor


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
    So without a reason nothing is started: its absence reveals the mistake.
    """

    reason: str = Field(
        default="",
        description="Why: recorded in the job's audit log, with your name and this run. Empty: no "
        "driver is started.",
    )


class RecoverForm(RestartForm):
    """The checkpoint to restore."""

    restore: Restore = Field(
        discriminator="kind",
        description="checkpoint: the one with a number. before: the newest one before a time. "
        "newest: the newest intact one.",
    )
    dry_run: bool = Field(
        default=False, description="Only report what would be done; the job may be running."
    )


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
