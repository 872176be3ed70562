"""End the driver of a supervised run: a stop through the control log, before any signal."""

import logging
from datetime import UTC, datetime

from laminar_core.driver.commands.client import Asked, ControlClient
from laminar_core.errors import LaminarError
from laminar_core.host.clock import Clock
from laminar_core.objectstore.opening import absolute_uri, place_below
from laminar_core.protocol.types import Generation
from laminar_core.records.actor import Actor
from laminar_core.records.commands import StopJob
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.command_log import ControlLog
from laminar_core.store.generation_summary import read_generation
from laminar_core.store.owner import is_visible

REASON = "the run in Dagster that supervises it was terminated"
TIMEOUT_MS = 60_000
"""A driver looks for commands with each heartbeat; after this it will not look any more."""

_LOOK_MS = 500


class StopThroughStore:
    """Asks one driver to take a last checkpoint, or a savepoint, and to end (``StopRequest``).

    A job that another driver has taken over meanwhile is left alone.
    """

    def __init__(
        self,
        store: CheckpointStore,
        actor: Actor,
        clock: Clock,
        log: logging.Logger,
        savepoints: str | None,
    ) -> None:
        """Prepare a stop.

        ``savepoints`` is a folder or URI, None: the last checkpoint is enough.
        """
        self._store = store
        self._actor = actor
        self._clock = clock
        self._log = log
        self._savepoints = savepoints
        self._asked: Asked | None = None
        self._look_again_ms = 0.0

    def ask(self, pid: int) -> bool:
        """Leave the command if the process ``pid`` of this machine owns the job."""
        try:
            generation = claimed_by(self._store, pid)
            if generation is None or self._store.generations.read_end(generation) is not None:
                return False
            target = self._target()
            self._asked = ControlClient(self._store, self._clock).ask(
                StopJob(target=target),
                actor=self._actor.because(REASON),
                timeout_ms=TIMEOUT_MS,
                generation=generation,
            )
        except LaminarError as error:
            self._log.warning("the driver cannot be stopped through its store: %s", error)
            return False
        wanted = "a last checkpoint" if target is None else f"a savepoint at {target}"
        self._log.info("command %s asks for %s and the end", self._asked.number, wanted)
        return True

    def is_refused(self) -> bool:
        """Return whether the stop was refused; reads the answer now and then."""
        now_ms = self._clock.monotonic_ms()
        if self._asked is None or now_ms < self._look_again_ms:
            return False
        self._look_again_ms = now_ms + _LOOK_MS
        try:
            log = ControlLog(self._store.objects, self._store.paths)
            result = log.result(self._asked.number)
        except LaminarError as error:
            self._log.warning("the answer cannot be read: %s", error)
            return False
        if result is None or result.outcome == "completed":
            return False
        self._log.warning("the stop was %s: %s", result.outcome, result.reason)
        return True

    def _target(self) -> str | None:
        """A new place for each stop."""
        if self._savepoints is None:
            return None
        time = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)
        folder = f"{self._store.job}-{time:%Y%m%dT%H%M%SZ}-{(self._actor.run_id or '')[:8]}"
        return place_below(absolute_uri(self._savepoints), folder)


def claimed_by(store: CheckpointStore, pid: int) -> Generation | None:
    """Return the newest generation, if the process ``pid`` of this machine has claimed it.

    Raises:
        StorageUnavailable: the store did not answer.
    """
    newest = store.claims.newest()
    claim = None if newest is None else read_generation(store.objects, store.paths, newest).claim
    if claim is None or claim.owner.pid != pid or not is_visible(claim.owner):
        return None
    return newest
