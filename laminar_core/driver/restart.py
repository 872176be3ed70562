"""Restart strategies: pure decisions over the times of failures.

Source: Flink's restart strategies (fixed delay, exponential delay, failure rate). Times in
milliseconds of a clock that never goes back.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, runtime_checkable

from laminar_core.arguments import require_number


@runtime_checkable
class RestartStrategy(Protocol):
    """Decides from all failures so far, the newest last."""

    def delay_ms(self, failures_ms: Sequence[float]) -> float | None:
        """Return the time to wait before the next attempt, or None to give up."""
        ...


@dataclass(frozen=True, slots=True)
class NoRestart:
    """The first failure is the last."""

    def delay_ms(self, failures_ms: Sequence[float]) -> float | None:
        """Return None: give up."""
        del failures_ms
        return None


@dataclass(frozen=True, slots=True)
class FixedDelay:
    """A constant pause, up to ``attempts`` restarts."""

    attempts: int
    pause_ms: float = 0

    def __post_init__(self) -> None:
        require_number(self.attempts, 0, "attempts")
        require_number(self.pause_ms, 0, "pause_ms")

    def delay_ms(self, failures_ms: Sequence[float]) -> float | None:
        """Return the pause, or None after ``attempts`` restarts."""
        return self.pause_ms if len(failures_ms) <= self.attempts else None


@dataclass(frozen=True, slots=True)
class ExponentialDelay:
    """A pause that grows with every failure and falls back once the job ran well for a while."""

    initial_ms: float = 50
    maximum_ms: float = 30_000
    multiplier: float = 2.0
    reset_after_ms: float = 60_000
    """A run that lasted so long starts the series anew."""
    attempts: int | None = 10
    """Restarts within one series; None for any number."""

    def __post_init__(self) -> None:
        require_number(self.initial_ms, 0, "initial_ms")
        require_number(self.maximum_ms, self.initial_ms, "maximum_ms")
        require_number(self.multiplier, 1, "multiplier")
        require_number(self.reset_after_ms, 0, "reset_after_ms")
        require_number(0 if self.attempts is None else self.attempts, 0, "attempts")

    def delay_ms(self, failures_ms: Sequence[float]) -> float | None:
        """Return ``initial * multiplier ** (failures in the series - 1)``.

        The pause is at most ``maximum_ms``. None after ``attempts`` restarts.
        """
        series, pause_ms = 1, self.initial_ms
        for earlier, later in pairwise(failures_ms):
            # The pause in between is not time that the job ran.
            if later - earlier >= pause_ms + self.reset_after_ms:
                series, pause_ms = 1, self.initial_ms
            else:
                series, pause_ms = series + 1, min(pause_ms * self.multiplier, self.maximum_ms)
        return None if self.attempts is not None and series > self.attempts else pause_ms


@dataclass(frozen=True, slots=True)
class FailureRate:
    """Restart as long as no more than ``failures_max`` happen within ``interval_ms``."""

    failures_max: int
    interval_ms: float
    pause_ms: float = 0

    def __post_init__(self) -> None:
        require_number(self.failures_max, 0, "failures_max")
        require_number(self.interval_ms, 1, "interval_ms")
        require_number(self.pause_ms, 0, "pause_ms")

    def delay_ms(self, failures_ms: Sequence[float]) -> float | None:
        """Return the pause, or None if the last interval had too many failures."""
        newest = failures_ms[-1]
        recent = sum(newest - at < self.interval_ms for at in failures_ms)
        return self.pause_ms if recent <= self.failures_max else None
