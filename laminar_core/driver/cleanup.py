"""Delete files of checkpoints that never completed, without delaying the next one.

A worker may still be writing when a checkpoint is given up, and only the worker knows. So the files
are deleted when every worker has confirmed the abort, again when an acknowledgement arrives late,
and once more when a later checkpoint completes: a worker writes one part after the other, so by
then no write of the earlier one is under way. Files that a generation could not delete before it
ended are deleted by the next one when it starts. Files of a killed driver stay: it may only be
suspended in the middle of publishing, and no clock can tell the difference, because clocks step.

Savepoints that the job has claimed are deleted in the same way, once a checkpoint of this
generation builds on the imported state.

The cleanup never touches files of a checkpoint with a manifest, files that were offered for
publication without an answer (their manifest may still appear), or another store in the place of
this one. A deletion that fails is reported as an event and has no other effect.

Source: PROTOCOL sections 5 (late answers, pending deletions) and 12; ERRATA 3.9.
"""

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from concurrent.futures import Executor
from contextlib import suppress

from laminar_core.driver.events import CleanUpFailed
from laminar_core.driver.hosting import CoordinatorHost
from laminar_core.errors import LaminarError, ProtocolError
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.records.actor import LAMINAR
from laminar_core.store.audit_log import AuditLog
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.savepoint_import import claimed_savepoints

SWEEP_MAX = 64
"""Attempts of earlier generations to look at; older ones were seen by an earlier start."""


class Cleanup:
    """Deletes the files of failed attempts during one generation.

    The coordinator's thread calls it. It calls ``changed`` with the number of attempts that are
    still to be deleted.
    """

    def __init__(
        self,
        store: CheckpointStore,
        generation: Generation,
        executor: Executor,
        host: CoordinatorHost,
        changed: Callable[[int], None],
    ) -> None:
        self._store = store
        self._generation = generation
        self._executor = executor
        self._host = host
        self._changed = changed
        self._unconfirmed: set[CheckpointId] = set()
        self._again: set[CheckpointId] = set()
        self._pending = 0
        self._claims_looked_for = False

    def sweep(self, highest_id: CheckpointId) -> None:
        """Delete what earlier generations left, up to the highest id that they used."""
        if highest_id:  # It holds no checkpoint up, however much there is.
            self._executor.submit(self._attempt, highest_id, self._sweep)

    def given_up(self, checkpoint_id: CheckpointId) -> None:
        """Delete the checkpoint's files once every worker has confirmed the abort."""
        self._unconfirmed.add(checkpoint_id)
        self._host.when_confirmed(lambda: self._on_confirmed(checkpoint_id))

    def late(self, checkpoint_id: CheckpointId) -> None:
        """Delete again, because a worker acknowledged the checkpoint after it was given up."""
        if checkpoint_id not in self._unconfirmed:  # Else the order still comes.
            self._submit(checkpoint_id)

    def completed(self, checkpoint_id: CheckpointId) -> None:
        """Delete the files of earlier checkpoints again, because their writes have ended by now."""
        if not self._claims_looked_for:
            self._claims_looked_for = True
            self._executor.submit(self._attempt, checkpoint_id, self._delete_claimed)
        earlier = {n for n in self._again if n < checkpoint_id}
        self._again -= earlier
        for n in sorted(earlier):
            self._submit(n)

    def _on_confirmed(self, checkpoint_id: CheckpointId) -> None:
        self._unconfirmed.discard(checkpoint_id)
        self._again.add(checkpoint_id)
        self._submit(checkpoint_id)

    def _submit(self, checkpoint_id: CheckpointId) -> None:
        def run() -> None:
            self._attempt(checkpoint_id, self._discard)
            self._host.post(lambda: self._count(-1))

        self._count(1)
        self._executor.submit(run)

    def _count(self, change: int) -> None:
        self._pending += change
        self._changed(self._pending)

    def _notify(self, checkpoint_id: CheckpointId, problem: str) -> None:
        self._host.notify(
            CleanUpFailed(time_ms=self._host.now_ms(), checkpoint_id=checkpoint_id, reason=problem)
        )

    # --- in the background ----------------------------------------------------------------------

    def _attempt(self, checkpoint_id: CheckpointId, action: Callable[[CheckpointId], None]) -> None:
        try:
            self._store.claims.check_claim(
                self._generation
            )  # In another store these are other files.
            action(checkpoint_id)
        except LaminarError as error:
            problem = str(error)
        except Exception as error:  # noqa: BLE001 - a job does not fail for want of tidiness
            problem = repr(error)
        else:
            return
        self._host.post(lambda: self._notify(checkpoint_id, problem))

    def _delete_claimed(self, checkpoint_id: CheckpointId) -> None:
        """The job has a checkpoint of its own now, beside the copy that it started from."""
        audit = AuditLog(self._store.objects, self._store.paths, self._host.now_ms)
        for claimed in claimed_savepoints(self._store):
            intent = audit.append(
                action="delete-savepoint",
                actor=LAMINAR.because(
                    f"it was claimed, and checkpoint {checkpoint_id} builds on it"
                ),
                after={"savepoint": claimed.use.uri, "claimed_by": claimed.generation},
            )
            claimed.delete()
            audit.conclude(intent, "done", reason="")

    def _sweep(self, highest_id: CheckpointId) -> None:
        attempted = [n for n in self._store.attempts.ids() if n <= highest_id][-SWEEP_MAX:]
        ended = {g.generation for g in self._store.generations.summaries() if g.end is not None}
        for checkpoint_id in attempted:
            if self._is_settled(checkpoint_id, ended):
                self._discard(checkpoint_id)

    def _is_settled(self, checkpoint_id: CheckpointId, ended: AbstractSet[Generation]) -> bool:
        """Return whether no process can be about to publish the checkpoint.

        A suspended driver may be in the middle of that. Its checkpoint would not count any more,
        but a verification of the store should not find a manifest without its files.
        """
        if self._store.attempts.read_outcome(checkpoint_id) is not None:
            return True
        trigger = self._store.attempts.read_trigger(checkpoint_id)
        return trigger is not None and trigger.generation in ended

    def _discard(self, checkpoint_id: CheckpointId) -> None:
        with suppress(ProtocolError):  # It has a manifest: nothing of it is a left-over.
            self._store.parts.discard(checkpoint_id)
