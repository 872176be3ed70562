"""Choices in forms of commands: how a job ends, and how its checkpoints behave.

As in ``laminar_core.orchestration.checkpoint_choices``, exactly one kind has to be chosen.
"""

from typing import Literal

import dagster as dg
from pydantic import Field

from laminar_core.resources.values import Place
from laminar_core.units import DurationText


class LastCheckpoint(dg.Config):
    """Take a last checkpoint, commit its output, and end."""

    kind: Literal["checkpoint"] = "checkpoint"


class LastSavepoint(dg.Config):
    """End with a last checkpoint that is copied to a place; if this fails, the job continues."""

    kind: Literal["savepoint"] = "savepoint"
    target: Place = Field(
        description="A new directory or s3://bucket/prefix that the driver can reach; it must be "
        "empty."
    )


class Cancel(dg.Config):
    """End at once, without a last checkpoint.

    What came after the newest one is read again by the next start.
    """

    kind: Literal["cancel"] = "cancel"


Ending = LastCheckpoint | LastSavepoint | Cancel
"""The end of a job."""


class Aligned(dg.Config):
    """Barriers wait until the rows before them are processed."""

    kind: Literal["aligned"] = "aligned"


class Unaligned(dg.Config):
    """Barriers overtake rows, which become part of the checkpoint."""

    kind: Literal["unaligned"] = "unaligned"


class AsStarted(dg.Config):
    """As the job was started."""

    kind: Literal["default"] = "default"


class Overtaking(dg.Config):
    """Barriers wait for some time, then overtake."""

    kind: Literal["overtake"] = "overtake"
    after: DurationText = Field(description="As in '5 seconds'.")


Alignment = Aligned | Unaligned | AsStarted | Overtaking
"""The behaviour of checkpoints under backpressure."""


def mode_text(mode: Alignment) -> str:
    """Return the mode as commands take it.

    >>> mode_text(Unaligned()), mode_text(Overtaking(after="5 seconds"))
    ('unaligned', '5 seconds')
    """
    return mode.after if isinstance(mode, Overtaking) else mode.kind
