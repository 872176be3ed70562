"""The queue of decided commits: one after the other, each retried until it succeeds.

Source: PROTOCOL section 7. A decided commit is never rolled back, and the next one waits for it,
because output becomes visible in the order of checkpoints.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, replace

from laminar_core.connectors.base import Committer, Withdrawing
from laminar_core.driver.events import CommitDelayed
from laminar_core.driver.hosting import CoordinatorHost
from laminar_core.driver.publication import LeftOut, committables_of
from laminar_core.errors import ErrorCode, FencedError, LaminarError, StorageUnavailable
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.records.manifest import CheckpointManifest, CommitRecord
from laminar_core.records.staged import staged_files
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.staging import StagingArea

RETRY_PAUSE_MS = (50, 5_000)
"""First and longest pause between attempts."""
NOTHING_LEFT_OUT = LeftOut()


@dataclass(frozen=True, slots=True)
class CommitNumbers:
    """Commits of one generation, for events and heartbeats."""

    uncommitted_checkpoints: int = 0
    """Completed checkpoints whose output waits."""
    commit_ms: float | None = None
    """Time from the first attempt of the last commit to its success; None: there was none."""
    commit_retries: int = 0
    """Attempts that failed and were repeated."""
    fenced: int = 0
    """Attempts that failed because another driver had taken a sink over."""


class CommitQueue:
    """Called by the coordinator's thread; the attempts themselves run in ``executor``."""

    def __init__(
        self,
        attempt: Callable[[CheckpointManifest, bool], None],
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
        self._failed = False
        """Whether the last attempt failed, so that the targets must be taken over again."""
        self._began_ms = 0.0
        self._numbers = CommitNumbers()

    @property
    def numbers(self) -> CommitNumbers:
        """The commits so far."""
        return replace(self._numbers, uncommitted_checkpoints=len(self._waiting))

    @property
    def waiting(self) -> Sequence[CheckpointManifest]:
        """The checkpoints whose output is not committed."""
        return tuple(self._waiting)

    @property
    def waiting_count(self) -> int:
        """The number of them."""
        return len(self._waiting)

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
        manifest, again = self._waiting[0], self._failed
        if not again:
            self._began_ms = self._host.monotonic_ms()

        def run() -> None:
            try:
                self._attempt(manifest, again)
            except FencedError as error:
                self._host.fenced(error)
            except StorageUnavailable as error:
                is_fenced, why = isinstance(error.__cause__, FencedError), str(error)
                self._host.post(lambda: self._pause(why, is_fenced=is_fenced))
            except Exception as error:  # noqa: BLE001 - nobody else would ever see it
                code = error.code if isinstance(error, LaminarError) else ErrorCode.WORKER_FAILED
                self._host.fail(code, f"commit of checkpoint {manifest.checkpoint_id}: {error!s}")
            else:
                self._host.post(self._done)

        self._executor.submit(run)

    def _pause(self, why: str, *, is_fenced: bool) -> None:
        if not self._failed:
            self._host.notify(
                CommitDelayed(
                    time_ms=self._host.now_ms(),
                    checkpoint_id=self._waiting[0].checkpoint_id,
                    reason=why,
                    uncommitted_checkpoints=len(self._waiting),
                )
            )
        self._failed = True
        self._numbers = replace(
            self._numbers,
            commit_retries=self._numbers.commit_retries + 1,
            fenced=self._numbers.fenced + is_fenced,
        )
        self._retry_ms = int(self._host.monotonic_ms()) + self._pause_ms
        _, longest_ms = RETRY_PAUSE_MS
        self._pause_ms = min(2 * self._pause_ms, longest_ms)

    def _done(self) -> None:
        manifest = self._waiting.popleft()
        self._failed = False
        took_ms = self._host.monotonic_ms() - self._began_ms
        self._numbers = replace(self._numbers, commit_ms=took_ms)
        self._pause_ms, _ = RETRY_PAUSE_MS
        self._on_committed(manifest)
        if self._waiting:
            self._submit()


def commit_output(  # noqa: PLR0913 - the last three vary it, by keyword
    store: CheckpointStore,
    committers: Mapping[str, Committer],
    manifest: CheckpointManifest,
    generation: Generation,
    *,
    again: bool = False,
    left_out: LeftOut = NOTHING_LEFT_OUT,
    monotonic_ms: Callable[[], float] = lambda: 0.0,
) -> dict[str, float]:
    """Make the output of a completed checkpoint visible, and record that. Repeating it is harmless.

    ``again``: an earlier attempt of this generation failed, so the targets are taken over again.
    Rows that were staged in the store are deleted once the commit is recorded.

    Return how long each sink took, by the clock ``monotonic_ms``.

    Raises:
        FencedError: a newer generation owns the job; it commits what is to be committed.
        StorageUnavailable: the store or the sink did not answer; try again.
        CorruptCheckpointError: what was pre-committed is gone; trying again does not help.
    """
    if again:
        for operator_id, committer in committers.items():
            with fenced_by_its_target(store, operator_id, generation):
                committer.take_over(generation)
    store.claims.check_owner(generation)  # After the targets: see ``Committer.take_over``.
    committed_id = manifest.checkpoint_id
    if manifest.imported_from is not None:
        # A savepoint of this job: its parent is the checkpoint that it was made from, and what
        # that had pre-committed belongs to that one. One of another job has nothing to commit.
        committed_id = manifest.parent_checkpoint_id
    counts: dict[str, int] = {}
    took_ms: dict[str, float] = {}
    for operator_id, committer in committers.items():
        committables = left_out.rest(operator_id, committables_of(manifest, operator_id))
        counts[operator_id] = len(committables)
        if committed_id is not None:
            began_ms = monotonic_ms()
            with fenced_by_its_target(store, operator_id, generation):
                committer.commit(committed_id, committables)
            took_ms[operator_id] = monotonic_ms() - began_ms
    if manifest.imported_from is not None and committed_id is not None:
        _go_back(store, committers, committed_id, generation)
    store.attempts.record_commit(
        CommitRecord(
            checkpoint_id=manifest.checkpoint_id,
            generation=generation,
            committed_at_ms=manifest.completed_at_ms,
            committables=counts,
        )
    )
    for operator_id in committers:
        staging = StagingArea(store.objects, store.paths, operator_id)
        staging.delete(staged_files(committables_of(manifest, operator_id)))
    return took_ms


@contextmanager
def fenced_by_its_target(
    store: CheckpointStore, operator_id: str, generation: Generation
) -> Iterator[None]:
    """Let only the store decide who owns the job: a sleeper may have fenced the owner's sink.

    Raises:
        FencedError: a newer generation owns the job.
        StorageUnavailable: the sink has fenced the owner, which tries again.
    """
    try:
        yield
    except FencedError as error:
        store.claims.check_owner(generation)
        raise StorageUnavailable(
            ErrorCode.STORE_IO, f"sink {operator_id} was taken over by another driver: {error}"
        ) from error


def _go_back(
    store: CheckpointStore,
    committers: Mapping[str, Committer],
    made_from: CheckpointId,
    generation: Generation,
) -> None:
    """Take back what came after the checkpoint that a savepoint was made from; repeatable."""
    for operator_id, committer in committers.items():
        with fenced_by_its_target(store, operator_id, generation):
            committer.discard_uncommitted(generation)  # Who slept until now commits no more.
            if isinstance(committer, Withdrawing):
                committer.withdraw_after(made_from, generation)
