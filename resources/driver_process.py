"""One run of a driver, and every process that it starts.

The driver leads a session of its own: the JVM and the Python workers of a local Spark stay in it
also where they change their process group, as PySpark's worker daemon does. So whoever ends the
session leaves nothing behind. On a cluster the executors are Spark's business; the generation in
the checkpoint store keeps what is left of them from doing harm.
"""

import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from laminar_core.runtime.clock import Clock

_PIPE_BYTES_MAX = 1 << 20
"""No pipe holds more, so one read takes all that is there."""

_LINE_BYTES_MAX = 1 << 20
_CLEANING_MS_MAX = 10_000
_CLEANING_STEP_MS = 20
_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Line:
    """A line that the driver wrote, without its end."""

    stream: Literal["stdout", "stderr"]
    text: str


class DriverProcess:
    """Started by the constructor; ``close`` must be called in any case."""

    def __init__(self, command: Sequence[str], clock: Clock) -> None:
        """Start ``command``; its first part is the path of a program."""
        guard = [sys.executable, "-I", "-S", str(Path(__file__).with_name("guard.py"))]
        self._clock = clock
        self._process = subprocess.Popen(  # noqa: S603 - the command is the caller's own
            [*guard, str(os.getpid()), *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self.pid = self._process.pid
        self._unfinished: dict[str, bytes] = {}
        self._selector = selectors.DefaultSelector()
        for stream in ("stdout", "stderr"):
            self._selector.register(getattr(self._process, stream), selectors.EVENT_READ, stream)

    @property
    def exited(self) -> bool:
        """The driver itself has ended; processes that it started may go on."""
        return self._how_it_ended() is not None

    def read_lines(self, timeout_s: float) -> list[Line]:
        """Complete lines written since the last call; waits for some, up to ``timeout_s``."""
        lines: list[Line] = []
        for key, _ in self._selector.select(timeout_s):
            data = os.read(key.fd, _PIPE_BYTES_MAX)
            if not data:
                self._selector.unregister(key.fileobj)
            *complete, rest = (self._unfinished.get(key.data, b"") + data).split(b"\n")
            self._unfinished[key.data] = rest[-_LINE_BYTES_MAX:]
            lines += [Line(key.data, text.decode(errors="replace")) for text in complete]
        return lines

    def request_stop(self) -> None:
        """Ask the driver, and only it: it needs its JVM and its workers for the last checkpoint."""
        if not self.exited:
            os.kill(self.pid, signal.SIGTERM)

    def close(self, grace_s: float) -> int:
        """Kill what is left of the session and return the exit code, negative for a signal.

        After an orderly end the JVM gets ``grace_s`` seconds to remove its temporary files.
        """
        ended = self._how_it_ended()
        if ended is not None and ended.si_code == os.CLD_EXITED:
            self._clean_up(1000 * grace_s, kill=False)
        self._clean_up(_CLEANING_MS_MAX, kill=True)
        exit_code = self._process.wait()
        self._selector.close()
        for pipe in (self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()
        return exit_code

    def _clean_up(self, duration_ms_max: float, *, kill: bool) -> None:
        deadline_ms = self._clock.monotonic_ms() + duration_ms_max
        while (left := self._living()) and self._clock.monotonic_ms() < deadline_ms:
            for pid in left if kill else ():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._clock.wait_ms(_CLEANING_STEP_MS)

    def _how_it_ended(self) -> os.waitid_result | None:
        # The exit status stays unread until ``close``: so long nobody else can get this pid.
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)

    def _living(self) -> list[int]:
        if _PROC.is_dir():
            return session_members(self.pid)
        return [] if self.exited else [self.pid]  # Not Linux: its children see their pipes close.


def session_members(session_id: int) -> list[int]:
    """Pids of the processes in a session, without those that have ended."""
    return [int(e.name) for e in _PROC.iterdir() if e.name.isdigit() and _is_in(e, session_id)]


def _is_in(entry: Path, session_id: int) -> bool:
    try:
        stat = (entry / "stat").read_text(errors="replace")
    except OSError:  # It has ended meanwhile.
        return False
    state, _, _, session = stat.rpartition(")")[2].split()[:4]
    return int(session) == session_id and state not in "ZX"
