"""Settings of the coordinator machine."""

from dataclasses import dataclass

from laminar_core.errors import ConfigurationError, ErrorCode

RESERVE_AHEAD_MS = 100
"""Longest time for which a number is reserved before its periodic checkpoint is due."""


@dataclass(frozen=True, slots=True)
class CoordinatorConfig:
    """When checkpoints are triggered and when they expire. All times in milliseconds."""

    interval_ms: int | None
    """None: only on request and at the end."""
    min_pause_ms: int = 0
    """Between the end of one checkpoint and the trigger of the next periodic one."""
    timeout_ms: int = 600_000
    """Longest time from trigger to durable manifest; after it the checkpoint expires."""
    max_concurrent: int = 1
    tolerable_failures: int | None = 3
    """Consecutive failures the job survives; one more fails it. None: any number."""
    max_uncommitted: int | None = 10
    """Completed checkpoints whose output may wait for its commit; then sources pause and no
    checkpoint is triggered, besides savepoints. One that is under way then still completes. None:
    any number."""
    alignment_timeout_ms: int | None = None
    """None: always aligned. 0: unaligned from the start."""

    @property
    def reserve_ahead_ms(self) -> int:
        """How long before a periodic checkpoint is due its number is reserved."""
        return 0 if self.interval_ms is None else min(RESERVE_AHEAD_MS, self.interval_ms // 4)

    def __post_init__(self) -> None:
        """Refuse what cannot work.

        Raises:
            ConfigurationError: a value is out of range, or unaligned checkpoints would overlap.
        """
        for name, low in (("interval_ms", 1), ("min_pause_ms", 0), ("timeout_ms", 1),
                          ("max_concurrent", 1), ("tolerable_failures", 0), ("max_uncommitted", 1),
                          ("alignment_timeout_ms", 0)):  # fmt: skip
            value = getattr(self, name)
            if value is not None and value < low:
                raise ConfigurationError(
                    ErrorCode.INVALID_OPTION, f"{name} must be at least {low}, not {value}"
                )
        if self.alignment_timeout_ms is not None and self.max_concurrent > 1:
            raise ConfigurationError(
                ErrorCode.INVALID_OPTION,
                "checkpoints that may turn unaligned cannot overlap: set max_concurrent to 1, "
                "or alignment_timeout_ms to None",
            )
