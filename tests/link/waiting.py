"""Waiting for what other threads do: as short as it can be, with a bound for the test itself."""

from collections.abc import Callable

from laminar_core.host.clock import SystemClock

WITHIN_S = 20
CLOCK = SystemClock()


def until(what: Callable[[], bool]) -> bool:
    """Wait until it is so; False if it takes longer than anything should."""
    end_ms = CLOCK.monotonic_ms() + WITHIN_S * 1000
    while not what():
        if CLOCK.monotonic_ms() > end_ms:
            return False
        CLOCK.wait_ms(1)
    return True
