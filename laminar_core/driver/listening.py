"""Isolate the job from its listener.

A listener is foreign code: it may print to a full disk or a closed pipe, or have a bug. None of
that may end a job, so the runtime accepts only isolated listeners, and the types enforce it. It may
also wait, for a terminal that Ctrl-S holds or a pipe without a reader. A driver that waited with
it would take no checkpoint and send no heartbeat, so it gets a thread of its own.
"""

import logging
import threading
from queue import SimpleQueue

from laminar_core.driver.events import JobEvent, JobListener, ProgressMade, ignore

WAITING_MAX = 1_000
"""Events that wait for a listener before further ones about progress are left out."""

_log = logging.getLogger(__name__)


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


class BackgroundListener:
    """A thread that passes events on to a listener, one at a time and in their order.

    If more than ``WAITING_MAX`` wait, events about progress are left out: the next one has newer
    numbers. All others are kept, however long the listener takes.
    """

    def __init__(self, listener: IsolatedListener) -> None:
        self._listener = listener
        self._events: SimpleQueue[JobEvent | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="laminar-listener", daemon=True)

    def start(self) -> None:
        """Begin to pass events on. A job that could not be started leaves no thread behind."""
        self._thread.start()

    @property
    def failures(self) -> int:
        """The number of events for which the listener raised an exception."""
        return self._listener.failures

    def __call__(self, event: JobEvent) -> None:
        """Pass the event on, and return at once. Called from any thread."""
        if isinstance(event, ProgressMade) and self._events.qsize() >= WAITING_MAX:
            return
        self._events.put(event)

    def close(self) -> None:
        """Wait until the listener has had all events."""
        self._events.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (event := self._events.get()) is not None:
            self._listener(event)


def isolated(listener: JobListener) -> IsolatedListener:
    """Return ``listener`` as one that never raises; one that is isolated stays as it is."""
    return listener if isinstance(listener, IsolatedListener) else IsolatedListener(listener)


NOBODY = isolated(ignore)
"""A listener that ignores all events."""
