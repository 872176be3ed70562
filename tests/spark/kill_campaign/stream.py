"""The stream under attack: its input with a known answer, its store, and its drivers."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from laminar_core.host.clock import SystemClock
from laminar_core.jobs.payments_data import write_payments
from laminar_core.records.actor import Actor, ActorKind
from laminar_core.resources.drivers.log import LogTail
from laminar_core.store.attribution import environment_of
from laminar_core.store.checkpoint_store import CheckpointStore
from tests.spark.jobs_under_test import ROOT, SmallJob
from tests.spark.kill_campaign.adopted import AdoptedProcess
from tests.spark.kill_campaign.interrupt import Interrupt
from tests.spark.kill_campaign.pauses import VARIABLE, Pauses
from tests.spark.processes import children, daemons_of, jvm_of, kill, marked

PROGRAM = Path(__file__).with_name("attacked_job.py")
SPARK_CONF = {"spark.python.daemon.module": "tests.spark.kill_campaign.paused_daemon"}
CAMPAIGN = Actor("campaign", ActorKind.PROGRAM)
INTERVAL = "400 milliseconds"
PACED, FAST = 2_000, 400_000
"""Rows per second: while it is attacked, and for the last driver, which has to finish."""
WAIT_MAX_MS = 300_000
POLL_MS = 50
FENCED_CODE = 6


class CampaignError(AssertionError):
    """The campaign found a violation, or did not see in time what it waited for."""


@dataclass
class Driver:
    """One driver process and what it has printed."""

    process: "subprocess.Popen[bytes] | AdoptedProcess"
    log: Path
    events: list[dict] = field(default_factory=list)
    _tail: LogTail | None = None

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def read(self) -> list[dict]:
        """Take what it printed since the last call; everything stays in ``events``."""
        self._tail = self._tail or LogTail(self.log)
        new = list(self._tail.read_events())
        self.events += new
        return new

    def newest(self, name: str) -> dict | None:
        """Return its last event of this name."""
        self.read()
        return next((e for e in reversed(self.events) if e["event"] == name), None)

    def count(self, name: str) -> int:
        self.read()
        return sum(event["event"] == name for event in self.events)

    @property
    def generation(self) -> int:
        """The newest one that it announced; 0 if none."""
        started = self.newest("generation-started")
        return 0 if started is None else started["generation"]

    def completed(self, above_generation: int = 0) -> int:
        """How many checkpoints it completed in later generations than this one."""
        self.read()
        return sum(
            event["event"] == "checkpoint-completed" and event["generation"] > above_generation
            for event in self.events
        )

    @property
    def workers(self) -> tuple[int, ...]:
        """Pids of the workers of its newest generation, once they run."""
        running = self.newest("workers-running")
        if running is None or running["generation"] < self.generation:
            return ()
        return tuple(running["pids"])

    @property
    def jvm(self) -> int | None:
        return jvm_of(self.pid)

    @property
    def daemon(self) -> int | None:
        return next(iter(daemons_of(self.jvm)), None) if self.jvm is not None else None

    def family(self) -> list[int]:
        """Everything that runs for it, but itself."""
        jvm = self.jvm
        daemons = [] if jvm is None else daemons_of(jvm)
        forked = [worker for daemon in daemons for worker in children(daemon)]
        return [*([] if jvm is None else [jvm]), *daemons, *forked, *self.workers]


class AttackedStream:
    """A job in a folder of its own; of its drivers the newest one owns it, if it lives."""

    def __init__(self, folder: Path, rows: int, interrupt: Interrupt) -> None:
        self.folder = folder
        self._interrupt = interrupt
        self.job = SmallJob(folder)
        write_payments(self.job.input, rows=rows, files=4, merchants=200, events_per_second=100)
        self.pauses = Pauses(folder / "pauses")
        self.store = CheckpointStore.open(self.job.store, "payments")
        self.clock = SystemClock()
        self.drivers: list[Driver] = []

    @property
    def driver(self) -> Driver | None:
        """The newest driver, if it has not ended."""
        newest = self.drivers[-1] if self.drivers else None
        return None if newest is None or newest.has_ended else newest

    def start(self, *more: str, rows_per_second: int = PACED, actor: Actor = CAMPAIGN) -> Driver:
        """Start a driver that continues the job."""
        log = self.folder / f"driver-{len(self.drivers) + 1:03}.log"
        environment = {**environment_of(actor), VARIABLE: str(self.pauses.folder)}
        with log.open("wb") as output:
            process = subprocess.Popen(
                self._command(rows_per_second, *more),
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.drivers.append(Driver(process, log))
        return self.drivers[-1]

    def _command(self, rows_per_second: int, *more: str) -> list[str]:
        settings: Mapping[str, object] = {
            "input": self.job.input,
            "output": self.job.output,
            "rows_per_second": rows_per_second,
        }
        return [
            *(sys.executable, "-m", "laminar_core.cli", "run", str(PROGRAM), "--json"),
            *(word for name, value in settings.items() for word in ("--set", f"{name}={value}")),
            *("--store", self.job.store, "--checkpoint-interval", INTERVAL),
            *("--keep-last", "3", "--restarts", "50"),
            *(word for k, v in SPARK_CONF.items() for word in ("--conf", f"{k}={v}")),
            *more,
        ]

    def wait(self, what: str, done: Callable[[], bool]) -> None:
        """Look until it is so.

        Raises:
            CampaignError: it did not come; with the last words of the driver.
            Interrupted: the campaign was asked to end.
        """
        deadline_ms = self.clock.monotonic_ms() + WAIT_MAX_MS
        while not done():
            self._interrupt.check()
            if self.clock.monotonic_ms() > deadline_ms:
                self._show_threads()
                raise CampaignError(f"{what}: not within {WAIT_MAX_MS // 1000} s; {self.said()}")
            self.clock.wait_ms(POLL_MS)

    def _show_threads(self) -> None:
        """Let the newest driver write to its log where each of its threads stands."""
        if (driver := self.driver) is not None:
            driver.process.send_signal(signal.SIGUSR1)
            self.clock.wait_ms(1_000)

    def said(self) -> str:
        """Return the end of the newest driver's log."""
        if not self.drivers:
            return "no driver yet"
        lines = self.drivers[-1].log.read_text(errors="replace").splitlines()
        kept = [line[:300] for line in lines if '"progress"' not in line]
        code = self.drivers[-1].process.poll()
        return f"driver {len(self.drivers)} (exit code {code}) said:\n" + "\n".join(kept[-12:])

    def close(self) -> None:
        """End every process that was started for this stream, whoever its parent is by now."""
        while left := marked(f"{VARIABLE}={self.pauses.folder}"):
            for pid in left:
                kill(pid)
            self.clock.wait_ms(POLL_MS)
        for driver in self.drivers:
            driver.process.wait()
