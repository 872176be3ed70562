"""Forms for commands to a stream, as Dagster's launchpad shows them.

No important field has a default. An error names the field.
"""

from typing import Annotated, Self

from pydantic import Field, model_validator

from laminar_core.orchestration.acts import ActForm, CheckpointNumber
from laminar_core.orchestration.control.command_choices import Alignment, Ending
from laminar_core.records.retention_paths import check_pin_name
from laminar_core.resources.values import Place
from laminar_core.sensors.pauses import PAUSABLE
from laminar_core.units import DurationText, accepted_by, duration_ms

PinName = Annotated[str, accepted_by(check_pin_name)]


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

    how: Ending = Field(
        discriminator="kind",
        description="checkpoint: with a last one. savepoint: a copy of the last one stays. "
        "cancel: at once, without one.",
    )


class ModeForm(CommandForm):
    """How checkpoints should behave under backpressure."""

    mode: Alignment = Field(
        discriminator="kind",
        description="From the next checkpoint on: aligned, unaligned, default (as it was started), "
        "or overtake, with the time until barriers do that.",
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


class PauseForm(ActForm):
    """The sensors that leave the stream alone for a while."""

    sensors: list[str] = Field(
        default=["alignment", "recovery"],
        description="Which of the shared sensors leave this stream alone: " + ", ".join(PAUSABLE),
    )
    hold_for: DurationText | None = Field(
        default=None, description="As in '2 hours'; left out: until somebody resumes it."
    )

    @model_validator(mode="after")
    def _known(self) -> Self:
        unknown = sorted(set(self.sensors) - set(PAUSABLE))
        if unknown or not self.sensors:
            raise ValueError(f"sensors: give some of {', '.join(PAUSABLE)}")
        return self


class ExportForm(ActForm):
    """The checkpoint to export as a savepoint, and the target."""

    checkpoint_id: CheckpointNumber = Field(description="Of a completed checkpoint, as in 42.")
    target: Place = Field(
        description="Target: a new directory or s3://bucket/prefix that Dagster can reach; it must "
        "be empty."
    )
