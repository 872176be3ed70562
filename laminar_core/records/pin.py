"""What keeps a checkpoint from retention, as retention and the store of pins both know it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pin:
    """Somebody wants to keep a checkpoint; ``expires_at_ms`` is None for ever."""

    name: str
    actor: str
    reason: str
    expires_at_ms: int | None = None
