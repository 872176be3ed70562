"""Decide which workers are alive, and which of them make progress.

Two conditions end a generation. A worker that sends nothing is dead, or its process is stopped. A
worker that is alive but in one step of its loop for too long hangs. Times are the driver's
monotonic milliseconds; the worker itself measures how long a step has lasted.
"""

from dataclasses import dataclass

from laminar_core.driver.deadlines import Deadlines
from laminar_core.errors import ErrorCode
from laminar_core.link.messages import Alive

AT_WORK_REPORTED_MS = 10_000.0
"""An operator that computes for so long is reported, and again whenever the time has doubled."""


@dataclass(frozen=True, slots=True)
class LostWorker:
    """A worker with which the generation cannot go on."""

    code: ErrorCode
    reason: str
    idle_ms: float
    """How long it has been silent, or in one step."""


class Liveness:
    """The newest sign of life of each worker."""

    def __init__(self, deadlines: Deadlines) -> None:
        self._deadlines = deadlines
        self._heard_ms: dict[int, float] = {}
        self._signs: dict[int, Alive] = {}
        self._report_due_ms: dict[int, float] = {}

    def heard(self, worker: int, now_ms: float) -> None:
        """Take note of any message of a worker."""
        self._heard_ms[worker] = now_ms

    def take(self, sign: Alive) -> bool:
        """Keep what a worker is doing; return whether its operator is to be reported."""
        before = self._signs.get(sign.worker)
        self._signs[sign.worker] = sign
        goes_on = (
            before is not None
            and before.operator_id == sign.operator_id
            and before.operator_ms < sign.operator_ms
        )
        if not goes_on:
            self._report_due_ms[sign.worker] = AT_WORK_REPORTED_MS
        if not sign.operator_id or sign.operator_ms < self._report_due_ms[sign.worker]:
            return False
        while self._report_due_ms[sign.worker] <= sign.operator_ms:
            self._report_due_ms[sign.worker] *= 2
        return True

    def lost(self, now_ms: float) -> LostWorker | None:
        """Return a worker that is dead or hangs, if there is one."""
        for worker, heard_ms in self._heard_ms.items():
            silent_ms = now_ms - heard_ms
            if silent_ms > self._deadlines.silence_ms:
                reason = f"worker {worker}: no sign of life for {silent_ms / 1000:.0f} s"
                return LostWorker(ErrorCode.WORKER_LOST, reason, silent_ms)
        for sign in self._signs.values():
            if sign.step_ms > self._deadlines.progress_ms:
                return _hangs(sign)
        return None


def _hangs(sign: Alive) -> LostWorker:
    where = f"operator {sign.operator_id!r}" if sign.operator_id else "the worker itself"
    reason = (
        f"worker {sign.worker}: {where} has been at work for {sign.operator_ms / 1000:.0f} s, and "
        f"the batch for {sign.step_ms / 1000:.0f} s; if it does not hang, give it more time "
        "(--progress-timeout)"
    )
    return LostWorker(ErrorCode.NO_PROGRESS, reason, sign.step_ms)
