"""Wait for what happens on hosts, up to a limit."""

from collections.abc import Callable

from laminar_core.host.clock import Clock, SystemClock

LOOK_EVERY_MS = 50
SECONDS_MAX = 120


class HostsError(AssertionError):
    """Something did not come that had to come, or is not as it must be."""


def wait_until(
    what: str,
    is_so: Callable[[], bool],
    said: Callable[[], str] = str,
    *,
    seconds_max: float = SECONDS_MAX,
    clock: Clock | None = None,
) -> float:
    """Wait until something is so, and return for how many milliseconds.

    Raises:
        HostsError: it did not come in time; the message ends with what ``said`` returns.
    """
    clock = clock or SystemClock()
    began_ms = clock.monotonic_ms()
    while not is_so():
        if clock.monotonic_ms() - began_ms > 1000 * seconds_max:
            raise HostsError(f"{what}: not within {seconds_max:g} s; {said()}")
        clock.wait_ms(LOOK_EVERY_MS)
    return clock.monotonic_ms() - began_ms
