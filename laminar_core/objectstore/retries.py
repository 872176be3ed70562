"""Retries: how long to try, and how long to wait between attempts.

Exponential backoff with full jitter: the wait before attempt n+1 is drawn evenly from zero to a
bound that doubles with n, so that clients which failed together do not come back together.
Time and chance are arguments; the real ones are here because storage is below the runtime.
"""

import time
from dataclasses import dataclass
from random import Random
from typing import Protocol

_EXPONENT_MAX = 30


class RetryClock(Protocol):
    """The part of a clock that retries need; ``host.clock.ManualClock`` fits."""

    def monotonic_ms(self) -> float:
        """Return milliseconds since an arbitrary start; never decreases."""
        ...

    def wait_ms(self, duration_ms: float) -> None:
        """Wait for this long."""
        ...


class MachineClock:
    """The clock of the machine."""

    def monotonic_ms(self) -> float:
        """Return the milliseconds of the monotonic clock."""
        return time.monotonic_ns() / 1e6

    def wait_ms(self, duration_ms: float) -> None:
        """Sleep for this long."""
        time.sleep(duration_ms / 1000)  # noqa: TID251 - the wait of a client in its own thread


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long a client retries, and how long it waits in between."""

    budget_ms: float = 30_000
    """Time after the first attempt in which further ones may begin; the last may end later."""
    first_wait_ms: float = 100
    """Upper bound of the first wait."""
    wait_max_ms: float = 5_000
    """Upper bound of every wait."""

    def wait_bound_ms(self, failures: int) -> float:
        """Return the upper bound of the wait after this many failures.

        >>> [RetryPolicy().wait_bound_ms(n) for n in (1, 2, 3, 9)]
        [100.0, 200.0, 400.0, 5000.0]
        """
        doublings = min(failures - 1, _EXPONENT_MAX)
        return float(min(self.wait_max_ms, self.first_wait_ms * 2**doublings))


class Budget:
    """The attempts at one request: counts them and waits between them."""

    def __init__(self, policy: RetryPolicy, clock: RetryClock, random: Random) -> None:
        self._policy = policy
        self._clock = clock
        self._random = random
        self._started_ms = clock.monotonic_ms()
        self.failures = 0

    @property
    def spent_ms(self) -> float:
        """The time since the first attempt."""
        return self._clock.monotonic_ms() - self._started_ms

    def wait_for_another(self) -> bool:
        """Count a failure, then wait; False, and no wait, if the budget ends before it would."""
        self.failures += 1
        wait_ms = self._random.uniform(0, self._policy.wait_bound_ms(self.failures))
        if self.spent_ms + wait_ms >= self._policy.budget_ms:
            return False
        self._clock.wait_ms(wait_ms)
        return True
