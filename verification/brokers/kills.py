"""Drivers and workers of a whole job that die (SIGKILL), or sleep and wake (SIGSTOP, SIGCONT).

A strike hits at one step of a committer or a writer, in a process of its own. A driver that died is
followed by another one; one that sleeps is taken over, and wakes when its successor has completed a
checkpoint. The successor of a worker is the driver's to start.
"""

import random
import signal
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Self

import psutil

from laminar_core.host.clock import SystemClock
from verification.brokers.judge import Verdict
from verification.brokers.outgoing import DELIVERIES
from verification.brokers.place import Place
from verification.brokers.relay import WORKER_STEPS
from verification.brokers.relay_driver import JsonEvent, RelayDriver, RelayError
from verification.brokers.relay_run import RelayRun
from verification.brokers.strikes import Act, Strike

Who = Literal["driver", "worker"]
ROUNDS = 6
_CASE_SECONDS_MAX = 240
_WAKES_SECONDS_MAX = 60
_TIMEOUT = "40 seconds"
"""Timeout of the transactions of workers. A worker that is killed with its driver leaves one open,
and readers wait behind it until the broker aborts it."""


@dataclass(frozen=True, slots=True)
class KillCase:
    """One case: who is hit, when, and what becomes of the process."""

    seed: int
    delivery: str
    who: Who
    strike: Strike
    workers: int = 2

    def as_dict(self) -> dict[str, Any]:
        """Return the fields."""
        return asdict(self)


def draw_kill(seed: int) -> KillCase:
    """Return the case of a seed; deliveries take turns."""
    rng = random.Random(f"kill {seed}")  # noqa: S311 - the same case in every run
    delivery = list(DELIVERIES)[seed % len(DELIVERIES)]
    who: Who = rng.choice(["driver", "driver", "worker"])
    step = rng.choice(DELIVERIES[delivery].steps if who == "driver" else WORKER_STEPS)
    act: Act = rng.choice(["dies", "dies", "sleeps"])
    number = 1 if step in ("taken-over", "opened") else rng.randint(1, 3)
    return KillCase(seed, delivery, who, Strike(step, act, number), rng.choice([1, 2, 3]))


def run_kill(place: Place, folder: Path, case: KillCase) -> Verdict:
    """Run a case, and judge what readers of committed messages see."""
    problem: str | None = None
    timeout = None if case.delivery in ("staged", "no-marker", "marker-outside") else _TIMEOUT
    run = RelayRun(place, folder, case.delivery, workers=case.workers, transaction_timeout=timeout)
    run.strikes.arm(case.strike)
    with _Attack(run, case) as attack:
        try:
            attack.carry_out()
        except RelayError as error:
            problem = str(error)
    fired = int(run.strikes.struck() is not None)
    return run.verdict(fired, problem)


class _Attack:
    """The drivers of a case, and who sleeps."""

    def __init__(self, run: RelayRun, case: KillCase) -> None:
        self._run = run
        self._case = case
        self._drivers = ExitStack()
        self._clock = SystemClock()
        self._rounds = self._checkpoints = 0
        self._sleeper: RelayDriver | None = None
        self._has_woken = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._drivers.close()

    def carry_out(self) -> None:
        """Run drivers until one has read everything and stopped.

        Raises:
            RelayError: that did not come.
        """
        deadline_ms = self._clock.monotonic_ms() + 1000 * _CASE_SECONDS_MAX
        self._feed()
        driver, is_stopping = self._start(), False
        while self._clock.monotonic_ms() < deadline_ms:
            event = driver.next()
            match event["event"]:
                case "checkpoint-completed":
                    self._feed()
                    self._wake_if_due(driver)
                case "progress" if not is_stopping and self._is_done(event):
                    driver.signal(signal.SIGTERM)
                    is_stopping = True
                case "asleep":
                    self._sleeper = driver
                    driver, is_stopping = self._start(take_over=True), False
                case "refused":
                    raise RelayError(f"refused: {driver.said()}")
                case "over":
                    if driver.ended_well():
                        return
                    driver, is_stopping = self._start(), False
                case _:
                    pass
        raise RelayError(f"not done in {_CASE_SECONDS_MAX} s: {driver.said()}")

    def _start(self, *, take_over: bool = False) -> RelayDriver:
        self._checkpoints = 0
        return self._drivers.enter_context(self._run.start(take_over=take_over))

    def _feed(self) -> None:
        self._checkpoints += 1
        if self._rounds < ROUNDS:
            self._rounds += 1
            self._run.feed()

    def _is_done(self, event: JsonEvent) -> bool:
        waits = self._case.strike.act == "sleeps" and self._run.strikes.struck() is not None
        is_all = self._rounds == ROUNDS and self._run.has_read_all(event)
        return is_all and (self._has_woken or not waits)

    def _wake_if_due(self, driver: RelayDriver) -> None:
        """Wake who sleeps once a newer generation has completed a checkpoint; see it end."""
        pid = self._run.strikes.struck()
        if pid is None or self._has_woken or self._case.strike.act != "sleeps":
            return
        if self._case.who == "driver" and self._sleeper is None:
            return  # It has just fallen asleep, and its last events are still being read.
        if self._case.who == "worker" and pid in driver.workers:
            return
        self._has_woken = True
        if self._sleeper is not None:
            self._sleeper.signal(signal.SIGCONT)
            while self._sleeper.next()["event"] != "over":
                pass
        elif not _ends_awake(pid):
            raise RelayError(f"process {pid} woke and goes on: {driver.said()}")


def _ends_awake(pid: int) -> bool:
    """Wake a worker; return whether it ends: it has been replaced."""
    with suppress(psutil.NoSuchProcess):
        worker = psutil.Process(pid)
        worker.resume()
        try:
            worker.wait(_WAKES_SECONDS_MAX)
        except psutil.TimeoutExpired:
            return False
    return True


CANARIES: Mapping[str, KillCase] = {
    "no marker": KillCase(
        0, "no-marker", "driver", Strike("committed", "dies", after="half-produced")
    ),
    "marker outside the transaction": KillCase(
        0, "marker-outside", "driver", Strike("flushed", "dies", after="half-produced")
    ),
    "ends some transactions": KillCase(
        0, "always-ends-some", "driver", Strike("marker-set", "dies", after="ended")
    ),
}
"""Sinks that are wrong on purpose: the judge must not find them exact."""
