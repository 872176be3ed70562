"""The only module that reads the time, but for ``objectstore.retries`` below it."""

import time
from typing import Protocol


class Clock(Protocol):
    """Time for whoever has to know it; injected, so that tests and simulations decide."""

    def now_ms(self) -> int:
        """Wall clock in milliseconds since 1970. May step; compare it with nothing."""
        ...

    def monotonic_ms(self) -> float:
        """Milliseconds since some start. Never goes back; for durations and deadlines."""
        ...

    def wait_ms(self, duration_ms: float) -> None:
        """Do nothing for this long."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        """Wall clock in milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        """Milliseconds of the monotonic clock."""
        return time.monotonic_ns() / 1e6

    def wait_ms(self, duration_ms: float) -> None:
        """Sleep."""
        time.sleep(max(duration_ms, 0) / 1000)  # noqa: TID251 - this is the clock


class ManualClock:
    """Stands still until somebody moves it; waiting moves it."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = float(now_ms)

    def now_ms(self) -> int:
        """The hand's position."""
        return int(self._now_ms)

    def monotonic_ms(self) -> float:
        """The hand's position."""
        return self._now_ms

    def wait_ms(self, duration_ms: float) -> None:
        """Move the hand forward."""
        self._now_ms += max(duration_ms, 0)
