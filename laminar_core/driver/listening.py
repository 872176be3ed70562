"""Whoever listens to a job cannot harm it.

A listener is foreign code in the driver's own threads: it prints to a disk that is full, to a pipe
that nobody reads any more, or it has a bug. None of that is a reason to end a job, so the runtime
takes only listeners that are isolated, and the types say so.
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
        """Events that the listener raised an exception for."""
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
                "the event %s could not be reported (%s): the job goes on, and further failures "
                "are only counted",
                event.event,
                said,
            )


def isolated(listener: JobListener) -> IsolatedListener:
    """Return ``listener`` as one that never raises; one that is isolated stays as it is."""
    return listener if isinstance(listener, IsolatedListener) else IsolatedListener(listener)


NOBODY = isolated(ignore)
"""For what runs unheard."""
