"""Pins: marks that keep retention from deleting a checkpoint."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pin:
    """A request to keep a checkpoint. ``expires_at_ms`` None: for ever."""

    name: str
    actor: str
    reason: str
    expires_at_ms: int | None = None
