"""The answers of a sink about output that is pre-committed: four, each of them a type."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from laminar_core.operators.base import JsonObject

Repeat = Literal["withdrawn", "harmless", "visible"]
"""The result if a job goes back behind output that readers see, and produces it again.

``withdrawn``: the sink takes the output back first. ``harmless``: the rows replace themselves, as
upserts by key do. ``visible``: readers see them twice, so the start is refused.
"""


@dataclass(frozen=True, slots=True)
class Committed:
    """The target shows all of it."""


@dataclass(frozen=True, slots=True)
class Committable:
    """A commit would succeed now."""

    expires_at_ms: int | None = None
    """Wall-clock time at which the target gives it up; None: never."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Some of it can never be committed: a file is gone, or a transaction expired."""

    rows: int
    """Rows that are lost."""
    why: str
    """One line with the remedy."""
    gone: Sequence[JsonObject] = ()
    """The committables that are lost. The others can be committed."""


@dataclass(frozen=True, slots=True)
class Doubtful:
    """The target does not tell whether it was committed."""

    why: str
    """One line that says how to find out."""


Outlook = Committed | Committable | Lost | Doubtful


@dataclass(frozen=True, slots=True)
class Promise:
    """The settings of a job that a sink depends on: it refuses a job that it could not serve."""

    interval_ms: int | None = None
    """Time between two checkpoints; None: only on request."""
    timeout_ms: int = 600_000
    """Longest time from the trigger of a checkpoint to its manifest."""
    longest_outage_ms: int | None = None
    """Longest time for which the job may be down without losing output; None: as long as the sinks
    allow."""
