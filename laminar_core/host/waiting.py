"""Waits of the main thread that leave it open to signals."""

from collections.abc import Collection
from concurrent.futures import FIRST_COMPLETED, Future, wait
from math import inf
from typing import Any

SIGNAL_DELAY_MAX_S = 0.5
"""Longest delay of a signal handler during a wait.

The system delivers a signal to any thread of the process. Python then runs the handler in the main
thread, but does not wake it: in one endless wait a SIGTERM would be lost.
"""


def wait_for_first(futures: Collection[Future[Any]], timeout_ms: float | None = None) -> None:
    """Wait until one of the futures is done, or the time is over."""
    left_s = inf if timeout_ms is None else timeout_ms / 1000
    while not wait(futures, min(left_s, SIGNAL_DELAY_MAX_S), FIRST_COMPLETED).done:
        left_s -= SIGNAL_DELAY_MAX_S
        if left_s <= 0:
            return
