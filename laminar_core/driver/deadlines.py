"""How long the workers of a generation may take for their steps."""

from dataclasses import dataclass

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.protocol.links import LINK_DOWN_MAX_MS, SIGN_INTERVAL_MS

SILENCE_MIN_MS = 3 * SIGN_INTERVAL_MS
"""One sign that is late and one that is lost are no silence."""

LINK_DOWN_LEAST_MS = 3_000
"""Workers do not connect to each other at the same moment."""


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Deadlines for the workers of a generation, in milliseconds."""

    register_ms: float = 120_000
    """Time from the start of the stage until all workers have registered."""
    connect_ms: float = 20_000
    """From then until all workers are known to reach each other."""
    silence_ms: float = 30_000
    """Between two signs of life of a worker's process; they do not depend on its loop."""
    progress_ms: float = 1_800_000
    """One step of a worker's loop: one batch through the operators of one vertex."""
    link_ms: float = LINK_DOWN_MAX_MS
    """Time for which a connection between two workers may be away."""

    def __post_init__(self) -> None:
        """Refuse what would end every worker.

        Raises:
            ConfigurationError: a time is too short (INVALID_OPTION).
        """
        least = {
            "register_ms": 1,
            "connect_ms": 1,
            "silence_ms": SILENCE_MIN_MS,
            "progress_ms": 1,
            "link_ms": LINK_DOWN_LEAST_MS,
        }
        for name, least_ms in least.items():
            value = getattr(self, name)
            if not value >= least_ms:
                raise ConfigurationError(
                    ErrorCode.INVALID_OPTION, f"{name} must be at least {least_ms:g}, not {value:g}"
                )
