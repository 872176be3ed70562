"""Start detached drivers, which outlive the process that starts them, and wait until they run.

The driver gets a session of its own and a log file, and of this process only its environment.
Restarting Dagster does not affect it; the checkpoint store shows whether it lives. (A manager that
ends all processes of a unit or a container at once, like systemd with ``KillMode=control-group``,
ends the driver, too.)
"""

import logging
import os
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg

from laminar_core.errors import ConfigurationError
from laminar_core.host.clock import Clock, SystemClock
from laminar_core.resources.drivers.events import DriverEvent, sentence
from laminar_core.resources.drivers.launcher import DriverLauncher, Predecessor
from laminar_core.resources.drivers.log import LogTail, bound_logs, open_log
from laminar_core.resources.drivers.session import DriverSession
from laminar_core.resources.drivers.standbys import StandbyFolder

_POLL_MS = 50
_UNNOTICED = {"progress", "checkpoint-completed"}


@dataclass(slots=True)
class DetachedStart:
    """A driver on its way up, as its log shows it."""

    pid: int
    log: Path
    events: dict[str, DriverEvent] = field(default_factory=dict[str, DriverEvent])
    """The newest event of each name."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """Return nothing: the log and the claim say where it runs."""
        return {}

    @property
    def generation(self) -> int | None:
        """The generation that the driver claimed; None if it has not."""
        started = self.events.get("generation-started")
        return None if started is None else int(started["generation"])

    @property
    def is_running(self) -> bool:
        """Whether the workers of its newest generation run."""
        running = self.events.get("workers-running")
        return running is not None and running["generation"] == self.generation

    @property
    def has_rows(self) -> bool:
        """Whether its newest generation has processed rows."""
        flowing = self.events.get("data-flowing")
        return flowing is not None and flowing["generation"] == self.generation

    @property
    def outcome(self) -> str | None:
        """The outcome of the job, if it has already ended."""
        return self.events.get("finished", {}).get("outcome")


class DetachedDriver(DriverLauncher):
    """Starts drivers in sessions of their own, and leaves them alone once they run."""

    log_directory: str = "build/drivers"
    """Has a folder per stream with a log file per start."""

    first_rows_s: float = 3.0
    """How long to wait for the first rows, in order to report when the stream was back."""

    stop_grace_s: float = 30.0
    """How long a driver that failed to start may take to end by itself."""

    logs_kept: int = 20
    """Number of log files kept per stream."""

    log_bytes_max: int = 64 << 20
    """A longer log is cut at the next start or housekeeping."""

    def start(  # noqa: PLR0913 - as its base
        self,
        stream: str,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        log: logging.Logger,
        start_timeout_s: float,
        predecessor: Predecessor | None = None,
        clock: Clock | None = None,
    ) -> DetachedStart:
        """Start ``command`` and wait until its workers run, or until the job has finished.

        The wait lasts up to ``start_timeout_s``, in which the driver also reads the checkpoint to
        restore. If this call is interrupted before that, the driver is ended. If this process is
        killed, the driver continues, and the generation that it claims shows who owns the job.

        Raises:
            dagster.Failure: the driver gave up, or did not start in time; it has been ended.
        """
        del predecessor  # It is in the command, and in what the driver prints.
        clock = clock or SystemClock()
        try:
            self.bound_logs(stream)
            path, descriptor = open_log(self._folder(stream), clock.now_ms())
        except OSError as error:
            raise dg.Failure(
                f"no log can be written in {self._folder(stream)} ({error.strerror}): set "
                "log_directory of the resource laminar_launcher, or LAMINAR_DRIVER_LOGS",
                allow_retries=False,
            ) from error
        try:
            process = subprocess.Popen(  # noqa: S603 - the command is the caller's own
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=descriptor,
                stderr=descriptor,
                env=dict(env),
                start_new_session=True,
            )
        finally:
            os.close(descriptor)
        log.info("driver %s started, its log is %s", process.pid, path)
        session = DriverSession(process, clock)
        start, tail = DetachedStart(process.pid, path), LogTail(path)
        look = partial(_look, session, start, tail, log)
        try:
            _wait(start, tail, look, clock, start_timeout_s)
        except BaseException:
            self._end(session)
            raise
        try:
            self._wait_for_rows(start, look, clock)
        finally:
            _release(process)
        return start

    def bound_logs(self, stream: str) -> list[Path]:
        """Delete old logs of ``stream`` and cut those that are too long; returns the former."""
        folder = self._folder(stream)
        deleted = bound_logs(folder, kept=self.logs_kept, bytes_max=self.log_bytes_max)
        return [*deleted, *self.standbys(stream).clean_up()]

    def standbys(self, stream: str) -> StandbyFolder:
        """Return the standbys of ``stream`` that this launcher has started."""
        folder = self._folder(stream) / "standby"
        return StandbyFolder(folder, logs_kept=self.logs_kept, log_bytes_max=self.log_bytes_max)

    def _folder(self, stream: str) -> Path:
        return Path(self.log_directory).absolute() / stream

    def _wait_for_rows(self, start: DetachedStart, look: Callable[[], None], clock: Clock) -> None:
        """Wait briefly for the first rows, only to report them.

        An interrupt leaves the driver running.
        """
        deadline_ms = clock.monotonic_ms() + 1000 * self.first_rows_s
        while not (start.has_rows or start.outcome) and clock.monotonic_ms() < deadline_ms:
            clock.wait_ms(_POLL_MS)
            look()

    def _end(self, session: DriverSession) -> None:
        session.request_stop()
        try:
            session.wait(self.stop_grace_s)
        finally:
            session.close(0)


def _look(session: DriverSession, start: DetachedStart, tail: LogTail, log: logging.Logger) -> None:
    """Note what is new.

    Raises:
        dagster.Failure: the driver has ended, and the job has not.
    """
    exited = session.exited  # First: what it wrote before its end is there.
    for event in tail.read_events():
        start.events[event["event"]] = event
        if event["event"] not in _UNNOTICED:
            log.info(sentence(event))
    if exited and start.outcome is None:
        exit_code = session.close(0)
        raise dg.Failure(
            f"the driver gave up {_how(exit_code)}: {tail.last_line or 'it printed nothing'}",
            metadata=_where(start) | {"exit_code": exit_code},
            allow_retries=exit_code != ConfigurationError.exit_code,
        )


def _wait(
    start: DetachedStart,
    tail: LogTail,
    look: Callable[[], None],
    clock: Clock,
    timeout_s: float,
) -> None:
    deadline_ms = clock.monotonic_ms() + 1000 * timeout_s
    while True:
        look()
        if start.is_running or start.outcome is not None:
            return
        if clock.monotonic_ms() >= deadline_ms:
            raise _too_slow(start, tail, timeout_s)
        clock.wait_ms(_POLL_MS)


def _too_slow(start: DetachedStart, tail: LogTail, timeout_s: float) -> dg.Failure:
    claimed = "had claimed nothing"
    if start.generation is not None:
        claimed = f"had claimed generation {start.generation}"
    words = f", the last line of its log: {tail.last_line}" if tail.last_line else ""
    return dg.Failure(
        f"the driver did not run within {timeout_s:g} s (start_timeout of the stream) and was "
        f"ended; it {claimed}{words}",
        metadata=_where(start),
        allow_retries=False,
    )


def _release(process: "subprocess.Popen[bytes]") -> None:
    """Wait for the driver's end in a background thread.

    So that it does not become a zombie process.
    """
    threading.Thread(target=process.wait, name=f"driver-{process.pid}", daemon=True).start()


def _how(exit_code: int) -> str:
    return f"with exit code {exit_code}" if exit_code >= 0 else f"at signal {-exit_code}"


def _where(start: DetachedStart) -> dict[str, dg.MetadataValue | int]:
    return {"log": dg.PathMetadataValue(start.log), "pid": start.pid}
