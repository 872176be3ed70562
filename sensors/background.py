"""Reads that may outlast a sensor's tick; a later tick takes the result."""

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from laminar_core.errors import LaminarError
from laminar_core.host.clock import Clock, SystemClock

WAIT_MS = 20_000
"""Time for each read of a tick, at most two: Dagster ends a tick after 60 s."""

_KEPT_MAX = 4
"""Number of unfinished or unclaimed reads that are kept."""

T = TypeVar("T")


class StillReadingError(Exception):
    """The store has not answered during this tick; the read continues."""


class Patience:
    """How long all reads of one tick together may be waited for.

    When it is used up, reads are started and not waited for: a later tick takes the results.
    """

    def __init__(self, wait_ms: float = WAIT_MS, clock: Clock | None = None) -> None:
        """Set the time for a tick."""
        self._wait_ms = self._left_ms = float(wait_ms)
        self._clock = clock or SystemClock()

    def renew(self) -> None:
        """Begin the next tick."""
        self._left_ms = self._wait_ms

    def wait(self, future: "Future[Any]", wait_s: float) -> bool:
        """Wait for a read, not longer than ``wait_s``; return whether it is done."""
        began_ms = self._clock.monotonic_ms()
        done = wait([future], min(wait_s, max(self._left_ms, 0) / 1000)).done
        self._left_ms -= self._clock.monotonic_ms() - began_ms
        return bool(done)


class BackgroundReads:
    """The reads of one sensor: one per key at a time; unclaimed results are kept for a later call.

    They are lost when the process ends, which only costs time: reads change nothing.
    """

    def __init__(self, wait_ms: float = WAIT_MS, patience: Patience | None = None) -> None:
        """Set how long ``read`` waits, and which time it shares with other reads of a tick."""
        self._wait_s, self._patience = wait_ms / 1000, patience
        self._running: dict[Hashable, Future[Any]] = {}

    @property
    def is_reading(self) -> bool:
        """Whether a read has not been answered yet."""
        return any(not future.done() for future in self._running.values())

    def read(self, key: Hashable, function: Callable[[], T]) -> T:
        """Return the result of ``function``, or of an earlier slow one with this key.

        Raises:
            StillReadingError: it takes too long; call again with the same key.
            LaminarError: an error of ``function``.
        """
        future: Future[T] = self._running.get(key) or self._start(key, function)
        patience = self._patience or Patience(1000 * self._wait_s)
        if not patience.wait(future, self._wait_s):
            raise StillReadingError(
                f"the store has not answered within {self._wait_s:g} s: the next tick asks again"
            )
        del self._running[key]
        return future.result()

    def _start(self, key: Hashable, function: Callable[[], T]) -> "Future[T]":
        future: Future[T] = Future()
        while len(self._running) >= _KEPT_MAX:  # Of generations that nobody asks for any more.
            del self._running[next(iter(self._running))]
        self._running[key] = future

        def run() -> None:
            try:
                future.set_result(function())
            except BaseException as error:  # noqa: BLE001 - raised again for whoever waits
                future.set_exception(error)

        # A pool would wait for its threads at the end of the process.
        threading.Thread(target=run, name=f"read {key}", daemon=True).start()
        return future


Unanswered = (LaminarError, StillReadingError)
"""Reasons to skip a tick: without facts there is no decision."""
