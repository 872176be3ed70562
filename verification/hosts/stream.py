"""A job with drivers on hosts: one after the other, each with its events in a file."""

import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from laminar_core.host.clock import SystemClock
from verification.hosts.answer import Answer
from verification.hosts.driver_events import EventLog, JsonEvent, Reaction, reaction
from verification.hosts.host import Host
from verification.hosts.network import Network
from verification.hosts.spark_cluster import ROOT, environment_of
from verification.hosts.waiting import HostsError, wait_until

PACED, FAST = 2_000, 400_000
"""Rows per second: while there are faults, and for the last driver, which has to finish."""
SECONDS_MAX = 240
SPARK = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.cores.max": "3",
    "spark.driver.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    # Spark forgets an executor that is silent; by default after two minutes.
    "spark.executor.heartbeatInterval": "2s",
    "spark.network.timeout": "10s",
    "spark.network.timeoutInterval": "2s",
    # An executor ends when its driver is; by default after ten minutes.
    "spark.executor.heartbeat.maxFailures": "6",
}
"""One slot more than workers, so that a lost host has a spare."""


class Driver:
    """One driver process on a host."""

    def __init__(
        self, host: Host, command: Sequence[str], log: Path, environment: Mapping[str, str]
    ) -> None:
        self.host = host
        self._log = log
        self._events = EventLog(log)
        self.process: subprocess.Popen[bytes] = host.start(
            *command, log=log, environment=environment, folder=ROOT
        )

    @property
    def events(self) -> list[JsonEvent]:
        """All events so far."""
        return self._events.read()

    @property
    def exit_code(self) -> int | None:
        """The exit code; None: it runs."""
        return self.process.poll()

    @property
    def has_ended(self) -> bool:
        """Whether it has."""
        return self.exit_code is not None

    def newest(self, name: str) -> JsonEvent | None:
        """Return its last event of this name."""
        return next((e for e in reversed(self.events) if e["event"] == name), None)

    def count(self, name: str, since_ms: int = 0) -> int:
        """Return how many events of this name there are after a time."""
        return sum(e["event"] == name and e["time_ms"] > since_ms for e in self.events)

    def said(self) -> str:
        """Return its last words."""
        lines = self._log.read_text(errors="replace").splitlines()
        kept = [line[:400] for line in lines if '"progress"' not in line]
        return f"{self._log.name} (exit code {self.exit_code}) said:\n" + "\n".join(kept[-12:])


class Stream:
    """The job, its answer and its drivers.

    Args:
        network: the hosts.
        master: the address of Spark's master; empty: an option has it.
        answer: input, output and what must be in it.
        store: where the checkpoints are; a directory that all hosts see, or a URI.
        options: more words for ``laminar run``.
        environment: more variables for driver and executors.
    """

    def __init__(
        self,
        network: Network,
        master: str,
        answer: Answer,
        store: str,
        *,
        options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.network = network
        self.answer = answer
        self.drivers: list[Driver] = []
        self._master = master
        self._store = store
        self._options = tuple(options)
        self._environment = dict(environment or {})
        self._clock = SystemClock()
        self._logs = answer.output.parent / "drivers"
        self._logs.mkdir(exist_ok=True)

    @property
    def driver(self) -> Driver:
        """The newest driver."""
        return self.drivers[-1]

    @property
    def events(self) -> list[JsonEvent]:
        """All events of all drivers."""
        return [event for driver in self.drivers for event in driver.events]

    @property
    def worker_hosts(self) -> list[str]:
        """The names of the hosts with the newest workers, by index of the worker."""
        running = self.driver.newest("workers-running")
        addresses: list[str] = [] if running is None else running["hosts"]
        names = {host.address: name for name, host in self.network.hosts.items()}
        return [names.get(address, address) for address in addresses]

    def start(
        self, host: str, *options: str, workers: int = 2, rows_per_second: int = PACED
    ) -> Driver:
        """Start a driver on a host, which continues the job."""
        log = self._logs / f"driver-{len(self.drivers) + 1:03}.log"
        at = self.network[host]
        environment = {**environment_of(at.address), **self._environment}
        command = self._command(at, workers, rows_per_second, *options)
        self.drivers.append(Driver(at, command, log, environment))
        return self.driver

    def _command(self, host: Host, workers: int, rows_per_second: int, *more: str) -> list[str]:
        spark = {**SPARK, "spark.driver.host": host.address}
        spark |= {f"spark.executorEnv.{k}": v for k, v in self._environment.items()}
        answer = self.answer
        return [
            *(sys.executable, "-m", "laminar_core.cli", "run", answer.program, "--json"),
            *("--set", f"input={answer.input_uri}", "--set", f"output={answer.output_uri}"),
            *("--set", f"rows_per_second={rows_per_second}", "--store", self._store),
            *(("--master", self._master) if self._master else ()),
            *("--workers", str(workers)),
            *("--checkpoint-interval", "500 milliseconds", "--restarts", "50"),
            *("--silence-timeout", "8 seconds", "--start-timeout", "1 minute"),
            *(word for name, value in spark.items() for word in ("--conf", f"{name}={value}")),
            *self._options,
            *more,
        ]

    def wait_for_rows(self, what: str, since_ms: int, seconds_max: float = SECONDS_MAX) -> None:
        """Wait until rows flow and a checkpoint completes after a time of the wall clock.

        Raises:
            HostsError: that did not come.
        """
        driver = self.driver
        wait_until(
            what,
            lambda: driver.has_ended or driver.count("checkpoint-completed", since_ms) > 1,
            driver.said,
            seconds_max=seconds_max,
        )
        if driver.has_ended:
            raise HostsError(f"{what}: the driver ended; {driver.said()}")

    def now_ms(self) -> int:
        """Return the wall clock, which all hosts of this machine have in common."""
        return self._clock.now_ms()

    def pause(self, seconds: float) -> None:
        """Let a fault last."""
        self._clock.wait_ms(1000 * seconds)

    def reaction(self, since_ms: int) -> Reaction:
        """Return what became of a fault at this time until now."""
        return reaction(self.events, since_ms, self.now_ms())

    def stop(self) -> None:
        """Let the driver take a last checkpoint and end.

        Raises:
            HostsError: it did not end well.
        """
        driver = self.driver
        for child in psutil.Process(driver.process.pid).children():  # Behind ``nsenter``.
            child.send_signal(signal.SIGTERM)
        wait_until("the end of the driver", lambda: driver.has_ended, driver.said)
        if driver.exit_code != 0:
            raise HostsError(f"it did not stop in good order; {driver.said()}")

    def finish(self, host: str, *options: str, workers: int = 2) -> int:
        """Read the rest of the input and verify the output; return the number of its rows.

        Raises:
            HostsError: the job does not end, or its output is not exact.
        """
        self.finish_unseen(host, *options, workers=workers)
        return self.answer.check()

    def finish_unseen(self, host: str, *options: str, workers: int = 2) -> None:
        """Read the rest of the input; the output is where only hosts can read it.

        Raises:
            HostsError: the job does not end.
        """
        if self.drivers and not self.driver.has_ended:
            self.stop()
        driver = self.start(host, *options, workers=workers, rows_per_second=FAST)
        wait_until("the end of the input", lambda: driver.has_ended, driver.said)
        if driver.exit_code != 0 or driver.newest("finished") is None:
            raise HostsError(f"the job did not finish; {driver.said()}")
