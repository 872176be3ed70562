"""Reads that may take longer than a sensor's tick may: a later tick takes the result."""

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from laminar_core.errors import LaminarError

WAIT_MS = 20_000
"""For each of the reads of a tick, of which there are two at most: Dagster ends one after 60 s."""

_KEPT_MAX = 4
"""Reads under way, or done and not asked for."""

T = TypeVar("T")


class StillReadingError(Exception):
    """The store has not answered in the time of this tick; the read goes on."""


class BackgroundReads:
    """Of one sensor. One read per key at a time; what was not waited for is kept for a later call.

    It forgets everything when its process ends, which costs time and nothing else: reads change
    nothing.
    """

    def __init__(self, wait_ms: float = WAIT_MS) -> None:
        """``wait_ms``: how long ``read`` waits."""
        self._wait_s = wait_ms / 1000
        self._running: dict[Hashable, Future[Any]] = {}

    def read(self, key: Hashable, function: Callable[[], T]) -> T:
        """The result of ``function``, or of an earlier one with this key that was too slow.

        Raises:
            StillReadingError: it takes too long; call again with the same key.
            LaminarError: what ``function`` raises.
        """
        future: Future[T] = self._running.get(key) or self._start(key, function)
        if not wait([future], self._wait_s).done:
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
"""Why a tick is skipped: nothing is known, so nothing is decided."""
