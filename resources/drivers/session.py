"""A process that leads its own session, and the end of all processes in that session.

The JVM and the Python workers of a local Spark stay in the session even if they change their
process group, as PySpark's worker daemon does. So ending the session leaves no process behind. On a
cluster Spark ends the executors; until then the generation in the checkpoint store prevents them
from doing harm.
"""

import os
import signal
import subprocess
from contextlib import suppress

import psutil

from laminar_core.host.clock import Clock
from laminar_core.records.manifest import Owner
from laminar_core.store.owner import is_running, is_visible

_CLEANING_MS_MAX = 10_000
_CLEANING_STEP_MS = 20
_ENDED = (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)


class DriverSession:
    """A driver that this process has started with ``start_new_session``."""

    def __init__(self, process: "subprocess.Popen[bytes]", clock: Clock) -> None:
        """Take over ``process``; no other code may wait for it."""
        self._process = process
        self._clock = clock
        self.pid = process.pid

    @property
    def exited(self) -> bool:
        """Whether the driver itself has ended; processes that it started may continue."""
        # Its exit status stays unread until ``close``: so long nobody else can get this pid.
        return self._process.returncode is not None or _has_ended(self.pid)

    def request_stop(self) -> None:
        """Send SIGTERM to the driver alone.

        It needs its JVM and workers for the last checkpoint.
        """
        if not self.exited:
            os.kill(self.pid, signal.SIGTERM)

    def wait(self, duration_s: float) -> bool:
        """Wait up to this long for the driver's end; return whether it has ended."""
        deadline_ms = self._clock.monotonic_ms() + 1000 * duration_s
        while not self.exited and self._clock.monotonic_ms() < deadline_ms:
            self._clock.wait_ms(_CLEANING_STEP_MS)
        return self.exited

    def close(self, grace_s: float) -> int:
        """Kill the rest of the session; return the exit code, negative for a signal.

        If the driver has ended, its JVM notices, and gets ``grace_s`` seconds to remove its
        temporary files. A second call only returns the exit code, because the pid may belong to
        another process by then.
        """
        if self._process.returncode is not None:
            return self._process.returncode
        if self.exited:
            self._clean_up(1000 * grace_s, kill=False)
        self._clean_up(_CLEANING_MS_MAX, kill=True)
        return self._process.wait()

    def _clean_up(self, duration_ms_max: float, *, kill: bool) -> None:
        deadline_ms = self._clock.monotonic_ms() + duration_ms_max
        while (left := self._living()) and self._clock.monotonic_ms() < deadline_ms:
            for pid in left if kill else ():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._clock.wait_ms(_CLEANING_STEP_MS)

    def _living(self) -> list[int]:
        return session_members(self.pid)


def kill_session_of(owner: Owner) -> bool:
    """Kill a driver of this machine with its session, if it leads one.

    Return whether it was killed.

    A driver that was started in a terminal leads none: the session has other processes.
    """
    if not is_visible(owner) or not is_running(owner) or owner.pid == os.getsid(0):
        return False
    members = session_members(owner.pid)
    if owner.pid not in members:
        return False
    for pid in members:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return True


def session_members(session_id: int) -> list[int]:
    """Return the pids of the processes in a session, without those that have ended."""
    return [pid for pid in sorted(psutil.pids()) if _is_in(pid, session_id)]


def _is_in(pid: int, session_id: int) -> bool:
    try:
        return os.getsid(pid) == session_id and not _has_ended(pid)
    except (OSError, psutil.AccessDenied):  # It has ended meanwhile, or is none of this user's.
        return False


def _has_ended(pid: int) -> bool:
    """Return whether the process is gone, or a zombie that nobody has waited for."""
    try:
        return psutil.Process(pid).status() in _ENDED
    except psutil.NoSuchProcess:  # Also what some systems raise for a zombie.
        return True
