"""A wait ends when the condition holds, or fails with the last state that was seen."""

import pytest

from laminar_core.host.clock import ManualClock
from verification.hosts.waiting import HostsError, wait_until


def test_the_time_until_it_is_so_is_returned() -> None:
    clock = ManualClock()
    until_ms = clock.monotonic_ms() + 120
    assert wait_until("it", lambda: clock.monotonic_ms() >= until_ms, clock=clock) == 150


def test_what_does_not_come_is_named_with_the_last_words() -> None:
    with pytest.raises(HostsError, match=r"^it: not within 3 s; last words$"):
        wait_until("it", lambda: False, lambda: "last words", seconds_max=3, clock=ManualClock())
