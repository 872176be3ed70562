"""Run retention in the background of the running job, in batches.

It is a run of retention like any other (``retention.run``), so it is safe beside others, and in a
driver that is fenced without knowing it yet. A run follows the first checkpoint of a driver, then
every so many checkpoints, or every so many minutes if there are fewer, and the end. Each run reads
all manifests and leaves a record in the audit log, which is kept for ever: one run for each
checkpoint of a fast job would write thousands a day.

Checkpoints never wait for retention: requests during a run are combined into one. A failure is
reported, and the run is repeated after the next checkpoint.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor

from laminar_core.driver.events import (
    CheckpointCompleted,
    CleanUpFailed,
    Finished,
    JobEvent,
    JobListener,
)
from laminar_core.driver.listening import isolated
from laminar_core.errors import ErrorCode, LaminarError
from laminar_core.host.clock import Clock
from laminar_core.records.actor import Actor
from laminar_core.records.record import JsonObject
from laminar_core.retention.config import RetentionConfig
from laminar_core.retention.run import Retention
from laminar_core.store.audit_log import AuditLog
from laminar_core.store.checkpoint_store import CheckpointStore

BATCH_CHECKPOINTS = 16
"""Completed checkpoints after which the old ones are deleted together."""

BATCH_MS = 600_000
"""Time after which one new checkpoint is enough."""


def applied(
    config: RetentionConfig,
    store: CheckpointStore,
    clock: Clock,
    listener: JobListener,
    actor: Actor,
) -> JobListener:
    """Return a listener that applies a policy in the background while the job runs."""
    audit = AuditLog(store.objects, store.paths, clock.now_ms)
    retention = Retention(store, config.policy(), clock.now_ms, audit=audit)
    by = actor.because("the running job's policy")
    return BackgroundRetention(listener, retention, by, config.model_dump(), clock.now_ms)


class BackgroundRetention:
    """A listener around another one. Called from any thread."""

    def __init__(  # noqa: PLR0913 - what it joins
        self,
        listener: JobListener,
        retention: Retention,
        actor: Actor,
        policy: JsonObject,
        now_ms: Callable[[], int],
        executor: Executor | None = None,
        *,
        batch: int = BATCH_CHECKPOINTS,
    ) -> None:
        self._notify = isolated(listener)
        self._retention = retention
        self._actor = actor
        self._policy = policy
        self._now_ms = now_ms
        self._executor = executor or ThreadPoolExecutor(1, "laminar-retention")
        self._lock = threading.Lock()
        self._is_asked_for = False
        self._batch = batch
        self._new_count = self._newest_id = 0
        self._asked_ms: int | None = None
        """When the last run was requested; None: the next checkpoint requests one."""

    def __call__(self, event: JobEvent) -> None:
        """Pass the event on, and see to old checkpoints if there are enough new ones."""
        self._notify(event)
        match event:
            case CheckpointCompleted(checkpoint_id=checkpoint_id):
                self._count(checkpoint_id)
            case Finished():
                self._finish()
                self._executor.shutdown()  # A process that ends could not do it any more.
            case _:
                pass

    def _count(self, checkpoint_id: int) -> None:
        with self._lock:
            self._newest_id = checkpoint_id
            self._new_count += 1
            if self._is_due():
                self._ask()

    def _finish(self) -> None:
        """A job that has ended has what its policy keeps, and no batch that waits."""
        with self._lock:
            if self._new_count:
                self._ask()

    def _is_due(self) -> bool:
        if self._asked_ms is None or self._new_count >= self._batch:
            return True
        return not 0 <= self._now_ms() - self._asked_ms < BATCH_MS  # Clocks step.

    def _ask(self) -> None:
        if self._is_asked_for:
            return
        self._is_asked_for, self._new_count, self._asked_ms = True, 0, self._now_ms()
        self._executor.submit(self._run, self._newest_id)

    def _run(self, checkpoint_id: int) -> None:
        with self._lock:
            self._is_asked_for = False  # What completes from here on is not seen any more.
        try:
            self._retention.finish_earlier(run_id=self._actor.run_id)
            self._retention.apply(self._retention.plan(), self._actor, self._policy)
        except LaminarError as error:
            if error.code is ErrorCode.RETENTION_PLAN_STALE:
                return  # A claim, a pin, another run: the next plan takes it into account.
            problem = str(error)
        except Exception as error:  # noqa: BLE001 - a job does not fail for want of tidiness
            problem = repr(error)
        else:
            return
        with self._lock:
            self._asked_ms = None
        self._notify(
            CleanUpFailed(time_ms=self._now_ms(), checkpoint_id=checkpoint_id, reason=problem)
        )
