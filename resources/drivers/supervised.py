"""Run a Spark driver under supervision: report its events, own its processes, restart it.

It works like a Pipes client with the driver's own protocol: a driver writes one JSON object per
line to its standard output (``laminar_core.driver.events``), so that it does not depend on Dagster.
Its standard error goes to Dagster's logs of the step.
"""

import json
import logging
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import dagster as dg

from laminar_core.errors import ConfigurationError
from laminar_core.host.clock import Clock, SystemClock
from laminar_core.resources.drivers.events import DriverEvent, event_of
from laminar_core.resources.drivers.process import DriverProcess, Line
from laminar_core.resources.settled import SettledResource

_POLL_S = 0.1


class StopRequest(Protocol):
    """Asks a driver, through its store, to end in the way that its operators want.

    Neither call raises for a store that does not answer: there are other ways to end a driver.
    """

    def ask(self, pid: int) -> bool:
        """Request a stop of the driver with this pid; return whether that was possible."""
        ...

    def is_refused(self) -> bool:
        """Return whether the driver has answered that it continues."""
        ...


@dataclass(frozen=True, slots=True)
class DriverResult:
    """The result of a supervised job; ``finished`` is the driver's last event, or empty."""

    restarts: int
    finished: DriverEvent


@dataclass(slots=True)
class _Supervision:
    """The state of one call of ``run``."""

    command: Sequence[str]
    log: logging.Logger
    on_event: Callable[[DriverEvent], None]
    clock: Clock
    event_log: str | None
    env: Mapping[str, str] | None
    stop_request: StopRequest | None
    pid: int = 0
    finished: DriverEvent = field(default_factory=DriverEvent)
    last_line: str = ""
    waiting: deque[Line] = field(default_factory=deque[Line])
    """Lines that are not passed on yet, because the listener failed at one before them."""

    def report(self, event: DriverEvent) -> None:
        """Pass an event on, and keep it where it can be read later."""
        if event.get("event") == "finished":
            self.finished = event
        if self.event_log:
            path = Path(self.event_log)
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a") as file:
                file.write(json.dumps(event) + "\n")
        self.on_event(event)

    def pass_on(self, lines: Sequence[Line]) -> None:
        """Pass on the driver's output; lines without an event go to standard error."""
        self.waiting.extend(lines)
        while self.waiting:
            line = self.waiting.popleft()
            event = event_of(line.text) if line.stream == "stdout" else None
            if event is not None:
                self.report(event)
            elif line.text.strip():
                self.last_line = line.text.strip()
                print(line.text, file=sys.stderr)  # noqa: T201 - the step's log in Dagster


class SparkDriverClient(SettledResource["SparkDriverClient"]):
    """Starts drivers, stops them gracefully, and starts them again when they are killed."""

    request_grace_s: float = 60.0
    """How long a driver may take for a stop that is requested through its store."""

    stop_grace_s: float = 45.0
    """How long a driver may take after SIGTERM for its last checkpoint before it is killed."""

    jvm_grace_s: float = 5.0
    """How long the processes of a driver may outlive its normal end before they are killed."""

    event_log: str | None = None
    """A file to which all events are appended, one JSON object per line."""

    def run(  # noqa: PLR0913 - a driver, and everybody who has a say in it
        self,
        command: Sequence[str],
        *,
        log: logging.Logger,
        on_event: Callable[[DriverEvent], None],
        restarts_max: int,
        restart: Callable[[int], Sequence[str]] | None = None,
        stop_request: StopRequest | None = None,
        env: Mapping[str, str] | None = None,
    ) -> DriverResult:
        """Run ``command`` until the job has ended; restart it if a signal kills it.

        ``restart`` returns the command, given the old pid; without it, the same command is used
        with ``--take-over``. A new driver starts after the last process of the old one has ended.
        If this call is interrupted, the driver is asked to stop, by ``stop_request``, then by
        SIGTERM; then it is killed.

        Raises:
            dagster.Failure: the driver gave up, or was killed more than ``restarts_max`` times.
        """
        clock = SystemClock()
        job = _Supervision(command, log, on_event, clock, self.event_log, env, stop_request)
        restarts = 0
        while (exit_code := self._run_once(job, restarts)) < 0:
            if restarts == restarts_max:
                raise dg.Failure(
                    f"the driver was killed by signal {-exit_code} after {restarts} restarts, "
                    "which is all that is allowed: look for what kills it",
                    metadata={"signal": -exit_code, "restarts": restarts},
                )
            restarts += 1
            log.warning("the driver was killed by signal %s: restart %s", -exit_code, restarts)
            job.command = [*command, "--take-over"] if restart is None else restart(job.pid)
        if exit_code:
            raise dg.Failure(
                f"the driver gave up with exit code {exit_code}: {job.last_line}",
                metadata={"exit_code": exit_code, "restarts": restarts},
                allow_retries=exit_code != ConfigurationError.exit_code,
            )
        return DriverResult(restarts, job.finished)

    def _run_once(self, job: _Supervision, restarts: int) -> int:
        driver = DriverProcess(job.command, job.clock, job.env)
        job.pid = driver.pid
        try:
            job.report(_event("driver-started", job.clock, pid=driver.pid, restarts=restarts))
            while not driver.exited:
                job.pass_on(driver.read_lines(_POLL_S))
            job.pass_on(driver.read_lines(0))
        except BaseException:
            self._stop(driver, job)
            raise
        finally:
            exit_code = driver.close(self.jvm_grace_s)
            job.log.info("driver %s ended with exit code %s", driver.pid, exit_code)
        job.report(_event("driver-ended", job.clock, pid=driver.pid, exit_code=exit_code))
        return exit_code

    def _stop(self, driver: DriverProcess, job: _Supervision) -> None:
        """Ask nicely, then ask; ``close`` kills what is left."""
        request = job.stop_request
        if request is not None and not driver.exited and request.ask(driver.pid):
            self._hear_out(driver, job, self.request_grace_s, request.is_refused)
        if not driver.exited:
            driver.request_stop()
        # Also one that had ended before anybody asked: its last lines are not passed on yet.
        self._hear_out(driver, job, self.stop_grace_s, lambda: False)
        job.log.warning("driver %s was asked to stop, and did: %s", driver.pid, driver.exited)

    def _hear_out(
        self,
        driver: DriverProcess,
        job: _Supervision,
        grace_s: float,
        is_refused: Callable[[], bool],
    ) -> None:
        deadline_ms = job.clock.monotonic_ms() + 1000 * grace_s
        is_over = False
        while not is_over:
            is_over = driver.exited or job.clock.monotonic_ms() >= deadline_ms or is_refused()
            job.waiting.extend(driver.read_lines(0 if is_over else _POLL_S))  # The last ones, too.
            while job.waiting:
                with suppress(Exception):  # It may be the listener that made us stop.
                    job.pass_on(())


def _event(name: str, clock: Clock, **facts: object) -> DriverEvent:
    return {"event": name, "time_ms": clock.now_ms(), **facts}
