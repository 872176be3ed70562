"""Retention by the running job: after each checkpoint that completes, in the background.

It is a run of retention like any other (``storage.retention``), so it is safe beside others, and in
a driver that is fenced without knowing it yet. Checkpoints never wait for it: while one run is
under way, the next one is only asked for once. What goes wrong is told, and tried again after the
next checkpoint.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor

from laminar_core.errors import ErrorCode, LaminarError
from laminar_core.runtime.events import (
    CheckpointCompleted,
    CleanUpFailed,
    Finished,
    JobEvent,
    JobListener,
)
from laminar_core.runtime.listening import isolated
from laminar_core.storage.retention import Mandate, Retention


class BackgroundRetention:
    """A listener around another one. Called from any thread."""

    def __init__(
        self,
        listener: JobListener,
        retention: Retention,
        mandate: Mandate,
        now_ms: Callable[[], int],
        executor: Executor | None = None,
    ) -> None:
        self._tell = isolated(listener)
        self._retention = retention
        self._mandate = mandate
        self._now_ms = now_ms
        self._executor = executor or ThreadPoolExecutor(1, "laminar-retention")
        self._lock = threading.Lock()
        self._is_asked_for = False

    def __call__(self, event: JobEvent) -> None:
        """Pass the event on, and see to old checkpoints if there is a new one."""
        self._tell(event)
        match event:
            case CheckpointCompleted(checkpoint_id=checkpoint_id):
                self._ask(checkpoint_id)
            case Finished():
                self._executor.shutdown(wait=False)  # What was asked for is still done.
            case _:
                pass

    def _ask(self, checkpoint_id: int) -> None:
        with self._lock:
            if self._is_asked_for:
                return
            self._is_asked_for = True
        self._executor.submit(self._run, checkpoint_id)

    def _run(self, checkpoint_id: int) -> None:
        with self._lock:
            self._is_asked_for = False  # What completes from here on is not seen any more.
        try:
            self._retention.finish_earlier(run_id=self._mandate.run_id)
            self._retention.apply(self._retention.plan(), self._mandate)
        except LaminarError as error:
            if error.code is ErrorCode.RETENTION_PLAN_STALE:
                return  # A claim, a pin, another run: the next plan takes it into account.
            problem = str(error)
        except Exception as error:  # noqa: BLE001 - a job does not fail for want of tidiness
            problem = repr(error)
        else:
            return
        self._tell(
            CleanUpFailed(time_ms=self._now_ms(), checkpoint_id=checkpoint_id, reason=problem)
        )
