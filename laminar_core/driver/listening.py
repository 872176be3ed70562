"""Isolate the job from its listener.

A listener is foreign code in the driver's own threads: it may print to a full disk or a closed
pipe, or have a bug. None of that may end a job, so the runtime accepts only isolated listeners, and
the types enforce it.
"""

import logging
import threading

from laminar_core.driver.events import JobEvent, JobListener, ignore

_log = logging.getLogger("laminar")


class IsolatedListener:
    """A listener around another one, which takes every event and never raises."""

    def __init__(self, listener: JobListener) -> None:
        self._listener = listener
        self._lock = threading.Lock()
        self._failures = 0

    @property
    def failures(self) -> int:
        """The number of events for which the listener raised an exception."""
        return self._failures

    def __call__(self, event: JobEvent) -> None:
        """Pass the event on; log the first failure, count all of them."""
        try:
            self._listener(event)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it is, the job goes on
            self._note(event, error)

    def _note(self, event: JobEvent, error: BaseException) -> None:
        with self._lock:
            self._failures += 1
            is_first = self._failures == 1
        if is_first:  # Where one event fails the next ones mostly do, several in a second.
            said = f"{type(error).__name__}: {error}".splitlines()[0].removesuffix(": ")
            _log.warning(
                "the event %s could not be reported (%s): the job continues, and further failures "
                "are only counted",
                event.event,
                said,
            )


def isolated(listener: JobListener) -> IsolatedListener:
    """Return ``listener`` as one that never raises; one that is isolated stays as it is."""
    return listener if isinstance(listener, IsolatedListener) else IsolatedListener(listener)


NOBODY = isolated(ignore)
"""A listener that ignores all events."""
