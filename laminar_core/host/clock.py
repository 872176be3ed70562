"""Clocks. No other module reads the time, except ``objectstore.retries`` below it."""

import time
from typing import Protocol


class Clock(Protocol):
    """The time as an injected dependency, so that tests and simulations control it."""

    def now_ms(self) -> int:
        """Return the wall clock in milliseconds since 1970.

        It may step, so do not compare its values.
        """
        ...

    def monotonic_ms(self) -> float:
        """Return monotonic milliseconds since an arbitrary start, for durations and deadlines."""
        ...

    def wait_ms(self, duration_ms: float) -> None:
        """Wait for this long."""
        ...


class SystemClock:
    """The clocks of the machine."""

    def now_ms(self) -> int:
        """Return the wall clock in milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        """Return the milliseconds of the monotonic clock."""
        return time.monotonic_ns() / 1e6

    def wait_ms(self, duration_ms: float) -> None:
        """Sleep for this long."""
        time.sleep(max(duration_ms, 0) / 1000)  # noqa: TID251 - this is the clock


class ManualClock:
    """A clock that only ``wait_ms`` advances."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = float(now_ms)

    def now_ms(self) -> int:
        """Return the current position."""
        return int(self._now_ms)

    def monotonic_ms(self) -> float:
        """Return the current position."""
        return self._now_ms

    def wait_ms(self, duration_ms: float) -> None:
        """Advance the clock."""
        self._now_ms += max(duration_ms, 0)
