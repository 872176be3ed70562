"""The choice of a checkpoint in a form: exactly one kind of it.

Dagster shows a union of such kinds as a selector: the launchpad refuses none, two, or an unknown
one, so that nothing is launched.
"""

from typing import Literal

import dagster as dg
from pydantic import Field

from laminar_core.orchestration.acts import CheckpointNumber
from laminar_core.protocol.recovery_facts import RestoreRequest
from laminar_core.protocol.types import CheckpointId
from laminar_core.units import Instant, instant_ms


class Newest(dg.Config):
    """The newest intact checkpoint."""

    kind: Literal["newest"] = "newest"


class Numbered(dg.Config):
    """The checkpoint with this number."""

    kind: Literal["checkpoint"] = "checkpoint"
    number: CheckpointNumber = Field(description="Of a completed checkpoint, as in 42.")


class Before(dg.Config):
    """The newest intact checkpoint that was completed before a time."""

    kind: Literal["before"] = "before"
    time: Instant = Field(description="ISO 8601 with a zone, as in 2026-03-01T12:00:00Z.")


class AtRandom(dg.Config):
    """A checkpoint that is drawn from all."""

    kind: Literal["random"] = "random"
    seed: int | None = Field(
        default=None, description="Equal seeds draw the same  [default: of the run's id]."
    )


Restore = Numbered | Before | Newest
"""The checkpoint to restore."""

Drilled = Newest | AtRandom | Numbered
"""The checkpoint to drill."""


def restore_request(restore: Restore) -> RestoreRequest:
    """Return the choice for the store.

    >>> restore_request(Numbered(number=42)).checkpoint_id
    42
    """
    match restore:
        case Numbered():
            return RestoreRequest(checkpoint_id=CheckpointId(restore.number))
        case Before():
            return RestoreRequest(before_ms=instant_ms(restore.time))
        case Newest():
            return RestoreRequest()


def restore_words(restore: Restore) -> list[str]:
    """Return the choice as arguments of ``laminar recover``.

    >>> restore_words(Numbered(number=42))
    ['--restore', '42']
    """
    match restore:
        case Numbered():
            return ["--restore", str(restore.number)]
        case Before():
            return ["--restore-before", restore.time]
        case Newest():
            return []
