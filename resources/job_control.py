"""Commands to one job for a Dagster run, as on the command line: same log, same audit."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import dagster as dg

from laminar_core.driver.commands.client import Asked, ControlClient
from laminar_core.driver.commands.texts import describe_result, requested_mode, require_done
from laminar_core.errors import StorageUnavailable
from laminar_core.host.clock import Clock
from laminar_core.objectstore.opening import absolute_uri
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.records.actor import Actor
from laminar_core.records.commands import (
    Action,
    CancelJob,
    ControlResult,
    SetMode,
    StopJob,
    TakeCheckpoint,
    TakeSavepoint,
)
from laminar_core.records.retention import PinRecord
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.pins import StoredPin, pin_checkpoint, unpin_checkpoint
from laminar_core.store.savepoint_export import export_as

TIMEOUT_MS = 600_000


@dataclass(frozen=True, slots=True)
class Done:
    """A command that its driver has carried out."""

    number: int
    generation: Generation
    result: ControlResult

    def __str__(self) -> str:
        """Return the result as one sentence."""
        return describe_result(self.result)


def _nobody(what: str) -> None:
    del what


class JobControl:
    """Sends commands to one job on behalf of an actor.

    Methods that need the driver wait for the result, and raise:

    ConfigurationError: the job is not running, its driver refuses, or the command expired.
    LaminarError: it failed, or there was no answer in time. StorageUnavailable: the store did not
    answer; the command may be there.
    """

    def __init__(
        self,
        store: CheckpointStore,
        actor: Actor,
        clock: Clock,
        *,
        timeout_ms: int = TIMEOUT_MS,
        progress: Callable[[str], None] = _nobody,
    ) -> None:
        """Commands not begun within ``timeout_ms`` are not carried out.

        ``progress`` receives messages while a command is carried out.
        """
        self.store = store
        self._actor = actor
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._progress = progress

    # --- asking the driver ----------------------------------------------------------------------

    def checkpoint(self, reason: str) -> Done:
        """Trigger a checkpoint and wait for it."""
        return self._ask(TakeCheckpoint(), reason)

    def savepoint(self, target: str, reason: str) -> Done:
        """Take a savepoint at ``target``, where nothing is yet."""
        return self._ask(TakeSavepoint(target=absolute_uri(target)), reason)

    def stop(
        self, reason: str, target: str | None = None, *, generation: Generation | None = None
    ) -> Done:
        """Stop after a last checkpoint; with a ``target`` it becomes a savepoint there.

        ``generation``: only this one, which the caller has seen alive.
        """
        return self._ask(StopJob(target=target and absolute_uri(target)), reason, generation)

    def cancel(self, reason: str, *, generation: Generation | None = None) -> Done:
        """End the job at once, without a last checkpoint; ``generation`` as for ``stop``."""
        return self._ask(CancelJob(), reason, generation)

    def set_mode(self, mode: str, reason: str) -> Done:
        """Change how checkpoints align: aligned, unaligned, default, or an alignment timeout.

        Raises:
            ConfigurationError: also if the mode is invalid.
        """
        return self._ask(SetMode(mode=requested_mode(mode)), reason)

    def _ask(self, action: Action, reason: str, generation: Generation | None = None) -> Done:
        client = ControlClient(self.store, self._clock)
        asked = client.ask(
            action,
            actor=self._actor.because(reason),
            timeout_ms=self._timeout_ms,
            generation=generation,
        )
        self._progress(
            f"command {asked.number} ({action.kind}) is left for generation {asked.generation} of "
            f"job {self.store.job}"
        )
        with self._left_behind(asked):
            result = client.wait_until_over(
                asked, action, self._timeout_ms, self._each_message_once()
            )
        require_done(self.store.job, asked.number, result)
        done = Done(asked.number, asked.generation, result)
        self._progress(f"command {asked.number}: {done}")
        return done

    @contextmanager
    def _left_behind(self, asked: Asked) -> Iterator[None]:
        """Report what happens to a command if its result is no longer waited for."""
        try:
            yield
        except (StorageUnavailable, KeyboardInterrupt, dg.DagsterExecutionInterruptedError):
            left_s = max(asked.expires_at_ms - self._clock.now_ms(), 0) // 1000
            self._progress(
                f"the wait is over for command {asked.number}, but it stays in the log: it "
                f"will be carried out if generation {asked.generation} begins it within {left_s} s"
                "; see `laminar control list`"
            )
            raise

    def _each_message_once(self) -> Callable[[str], None]:
        """Pass on messages that differ from the last one; the client repeats itself."""
        last = ""

        def progress(what: str) -> None:
            nonlocal last
            if what != last:
                last = what
                self._progress(what)

        return progress

    # --- what needs no driver -------------------------------------------------------------------

    def pin(
        self, checkpoint_id: int, name: str, reason: str, hold_ms: int | None = None
    ) -> PinRecord:
        """Keep a checkpoint from retention, for ``hold_ms`` or until it is unpinned.

        Raises:
            ConfigurationError: no such checkpoint, a bad name, or one that is taken.
            StorageUnavailable: the store did not answer.
        """
        actor, now_ms = self._actor.because(reason), self._clock.now_ms()
        return pin_checkpoint(self.store, CheckpointId(checkpoint_id), name, actor, now_ms, hold_ms)

    def unpin(self, checkpoint_id: int, name: str, reason: str) -> StoredPin:
        """Remove a pin, so that retention may delete the checkpoint; return the removed pin.

        Raises:
            ConfigurationError: there is no such pin.
            StorageUnavailable: the store did not answer.
        """
        actor, now_ms = self._actor.because(reason), self._clock.now_ms()
        return unpin_checkpoint(self.store, CheckpointId(checkpoint_id), name, actor, now_ms)

    def export(self, checkpoint_id: int, target: str, reason: str) -> str:
        """Copy a completed checkpoint to ``target`` as a savepoint; returns its URI.

        Raises:
            As ``export_as`` does.
        """
        uri, actor, now_ms = absolute_uri(target), self._actor.because(reason), self._clock.now_ms
        self._progress(f"checkpoint {checkpoint_id} of job {self.store.job} is copied to {uri}")
        return export_as(self.store, CheckpointId(checkpoint_id), uri, actor, now_ms)
