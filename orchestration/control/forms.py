"""Forms for commands to a stream, as Dagster's launchpad shows them.

No important field has a default. An error names the field.
"""

from typing import Annotated, Self

from pydantic import Field, model_validator

from laminar_core.driver.commands.texts import requested_mode
from laminar_core.orchestration.acts import ActForm, CheckpointNumber
from laminar_core.records.retention_paths import check_pin_name
from laminar_core.resources.values import Place
from laminar_core.units import DurationText, accepted_by, duration_ms

PinName = Annotated[str, accepted_by(check_pin_name)]
Mode = Annotated[str, accepted_by(requested_mode)]


class CommandForm(ActForm):
    """Config of a command to the running driver."""

    timeout: DurationText = Field(
        default="10 minutes",
        description="How long to wait; the driver does not begin the command later.",
    )

    @property
    def timeout_ms(self) -> int:
        """Return the timeout in milliseconds."""
        return duration_ms(self.timeout)


class SavepointForm(CommandForm):
    """A savepoint of the running job."""

    target: Place = Field(
        description="Target: a new directory or s3://bucket/prefix that the driver can reach; it "
        "must be empty."
    )


class StopForm(CommandForm):
    """How to end the job."""

    savepoint: Place | None = Field(
        default=None,
        description="Copy the last checkpoint to this new directory or s3://bucket/prefix; if that "
        "fails the job continues.",
    )
    cancel: bool = Field(
        default=False,
        description="End at once, without a last checkpoint; what came after the newest one is "
        "read again by the next start.",
    )

    @model_validator(mode="after")
    def _one_end(self) -> Self:
        if self.cancel and self.savepoint is not None:
            raise ValueError(
                "cancel ends the job without a checkpoint, so it cannot be combined with "
                "savepoint: give one of them"
            )
        return self


class ModeForm(CommandForm):
    """How checkpoints should behave under backpressure."""

    mode: Mode = Field(
        description="From the next checkpoint on: aligned, unaligned, default (as it was started), "
        "or the time until barriers overtake, as in '5 seconds'."
    )


class PinForm(ActForm):
    """The checkpoint to keep from retention."""

    checkpoint_id: CheckpointNumber = Field(description="Of a completed checkpoint, as in 42.")
    name: PinName = Field(default="pin", description="A checkpoint can have several pins.")
    hold_for: DurationText | None = Field(
        default=None, description="As in '2 days'; left out: until it is unpinned."
    )


class UnpinForm(ActForm):
    """The pin to remove."""

    checkpoint_id: CheckpointNumber = Field(description="Of the pinned checkpoint, as in 42.")
    name: PinName = Field(default="pin", description="Of the pin.")


class ExportForm(ActForm):
    """The checkpoint to export as a savepoint, and the target."""

    checkpoint_id: CheckpointNumber = Field(description="Of a completed checkpoint, as in 42.")
    target: Place = Field(
        description="Target: a new directory or s3://bucket/prefix that Dagster can reach; it must "
        "be empty."
    )
