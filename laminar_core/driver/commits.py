"""The queue of decided commits: one after the other, each retried until it succeeds.

Source: PROTOCOL section 7. A decided commit is never rolled back, and the next one waits for it,
because output becomes visible in the order of checkpoints.
"""

from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Executor

from laminar_core.connectors.base import Committer
from laminar_core.driver.hosting import CoordinatorHost
from laminar_core.driver.publication import committables_of
from laminar_core.errors import ErrorCode, FencedError, LaminarError, StorageUnavailable
from laminar_core.protocol.types import Generation
from laminar_core.records.manifest import CheckpointManifest, CommitRecord
from laminar_core.store.checkpoint_store import CheckpointStore

RETRY_PAUSE_MS = (50, 5_000)
"""First and longest pause between attempts."""


class CommitQueue:
    """Called by the coordinator's thread; the attempts themselves run in ``executor``."""

    def __init__(
        self,
        attempt: Callable[[CheckpointManifest], None],
        on_committed: Callable[[CheckpointManifest], None],
        executor: Executor,
        host: CoordinatorHost,
    ) -> None:
        self._attempt = attempt
        self._on_committed = on_committed
        self._executor = executor
        self._host = host
        self._waiting: deque[CheckpointManifest] = deque()
        self._pause_ms, _ = RETRY_PAUSE_MS
        self._retry_ms: int | None = None

    def add(self, manifest: CheckpointManifest) -> None:
        """Commit the output of a complete checkpoint, after the commits before it."""
        self._waiting.append(manifest)
        if len(self._waiting) == 1:
            self._submit()

    def tick(self) -> None:
        """Retry a failed commit if it is due."""
        if self._retry_ms is not None and self._host.monotonic_ms() >= self._retry_ms:
            self._retry_ms = None
            self._submit()

    def next_wakeup_ms(self) -> int | None:
        """Return when ``tick`` is due; None if no retry is waiting."""
        return self._retry_ms

    def _submit(self) -> None:
        manifest = self._waiting[0]

        def run() -> None:
            try:
                self._attempt(manifest)
            except FencedError as error:
                self._host.fenced(error)
            except StorageUnavailable:
                self._host.post(self._pause)
            except Exception as error:  # noqa: BLE001 - nobody else would ever see it
                code = error.code if isinstance(error, LaminarError) else ErrorCode.WORKER_FAILED
                self._host.fail(code, f"commit of checkpoint {manifest.checkpoint_id}: {error!s}")
            else:
                self._host.post(self._done)

        self._executor.submit(run)

    def _pause(self) -> None:
        self._retry_ms = int(self._host.monotonic_ms()) + self._pause_ms
        _, longest_ms = RETRY_PAUSE_MS
        self._pause_ms = min(2 * self._pause_ms, longest_ms)

    def _done(self) -> None:
        manifest = self._waiting.popleft()
        self._pause_ms, _ = RETRY_PAUSE_MS
        self._on_committed(manifest)
        if self._waiting:
            self._submit()


def commit_output(
    store: CheckpointStore,
    committers: Mapping[str, Committer],
    manifest: CheckpointManifest,
    generation: Generation,
) -> None:
    """Make the output of a completed checkpoint visible, and record that. Repeating it is harmless.

    Raises:
        FencedError: a newer generation owns the job; it commits what is to be committed.
        StorageUnavailable: the store or the sink did not answer; try again.
        CorruptCheckpointError: what was pre-committed is gone; trying again does not help.
    """
    if manifest.imported_from is not None:
        _settle_import(store, committers, manifest, generation)
        return
    store.claims.check_owner(generation)
    counts: dict[str, int] = {}
    for operator_id, committer in committers.items():
        committables = committables_of(manifest, operator_id)
        committer.commit(manifest.checkpoint_id, committables)
        counts[operator_id] = len(committables)
    store.attempts.record_commit(
        CommitRecord(
            checkpoint_id=manifest.checkpoint_id,
            generation=generation,
            committed_at_ms=manifest.completed_at_ms,
            committables=counts,
        )
    )


def _settle_import(
    store: CheckpointStore,
    committers: Mapping[str, Committer],
    manifest: CheckpointManifest,
    generation: Generation,
) -> None:
    """Make visible what is before a savepoint that was imported, and nothing else; repeatable.

    Of this job, its parent is the checkpoint it was made from: what that had pre-committed belongs
    to that one, and what came after it is taken back. One of another job has nothing to commit.

    Raises:
        As ``commit_output`` does.
    """
    store.claims.check_owner(generation)
    made_from = manifest.parent_checkpoint_id
    counts: dict[str, int] = {}
    for operator_id, committer in committers.items():
        committables = committables_of(manifest, operator_id)
        counts[operator_id] = len(committables)
        if made_from is not None:
            committer.commit(made_from, committables)
            committer.discard_uncommitted(generation)  # Who slept until now commits no more.
            committer.withdraw_after(made_from, generation)
    store.attempts.record_commit(
        CommitRecord(
            checkpoint_id=manifest.checkpoint_id,
            generation=generation,
            committed_at_ms=manifest.completed_at_ms,
            committables=counts,
        )
    )
