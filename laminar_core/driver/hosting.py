"""The services that the coordinator offers to its parts."""

from collections.abc import Callable
from typing import Protocol

from laminar_core.driver.events import JobEvent
from laminar_core.errors import ErrorCode, FencedError
from laminar_core.link.messages import ToWorker
from laminar_core.protocol.types import CheckpointKind


class CoordinatorHost(Protocol):
    """The coordinator, as its checkpoints, commits, cleanup, heartbeats and scrub see it.

    ``now_ms``, ``monotonic_ms``, ``post``, ``notify``, ``fail`` and ``fenced`` may be called from
    any thread, the others from the coordinator's thread only.
    """

    def now_ms(self) -> int:
        """Return milliseconds since 1970, for records."""
        ...

    def monotonic_ms(self) -> float:
        """Return monotonic milliseconds, for decisions."""
        ...

    def post(self, action: Callable[[], None]) -> None:
        """Run ``action`` in the coordinator's next turn."""
        ...

    def notify(self, event: JobEvent) -> None:
        """Publish an event to the listener of the job."""
        ...

    def fail(self, code: ErrorCode, reason: str, *, restart_helps: bool = True) -> None:
        """End the generation with a failure."""
        ...

    def fenced(self, error: FencedError) -> None:
        """End the generation because a newer one is claimed."""
        ...

    def broadcast(self, message: ToWorker) -> None:
        """Send a message to every worker."""
        ...

    def send(self, worker: int, message: ToWorker) -> None:
        """Send a message to one worker, in order with what is broadcast."""
        ...

    def when_confirmed(self, action: Callable[[], None]) -> None:
        """Run ``action`` once every worker has taken everything that was sent up to now."""
        ...

    def last_commit_done(self, kind: CheckpointKind) -> None:
        """Note that the stop or final checkpoint is committed."""
        ...

    def host_of(self, worker: int) -> str:
        """Return the host of this worker; empty if unknown."""
        ...
