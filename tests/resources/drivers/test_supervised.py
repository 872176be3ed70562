"""The client that owns its driver: nothing is left behind, whatever dies first."""

import json
import logging
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import psutil
import pytest

from laminar_core.resources.drivers.events import DriverEvent
from laminar_core.resources.drivers.session import session_members
from laminar_core.resources.drivers.supervised import SparkDriverClient

STAND_IN = Path(__file__).parents[1] / "driver_stand_in.py"
LOG = logging.getLogger("test")


class Run:
    """One supervised run of the stand-in and what can be seen of it."""

    def __init__(self, folder: Path) -> None:
        self.notes, self.event_log = folder / "pids", folder / "deep" / "events.jsonl"
        self.events: list[DriverEvent] = []
        self.interrupt_at = ""

    def command(self, behaviour: str) -> list[str]:
        return [sys.executable, str(STAND_IN), behaviour, str(self.notes)]

    def __call__(self, behaviour: str, *, grace_s: float = 60, restarts_max: int = 3):
        client = SparkDriverClient(
            stop_grace_s=grace_s, jvm_grace_s=0, event_log=str(self.event_log)
        )
        return client.run(
            self.command(behaviour), log=LOG, on_event=self.hear, restarts_max=restarts_max
        )

    def hear(self, event: DriverEvent) -> None:
        self.events.append(event)
        if event["event"] == self.interrupt_at:
            raise KeyboardInterrupt

    @property
    def names(self) -> list[str]:
        return [event["event"] for event in self.events]

    @property
    def pids(self) -> list[int]:
        return [int(line) for line in self.notes.read_text().split()]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    run = Run(tmp_path)
    yield run
    assert [pid for pid in run.pids if is_alive(pid)] == []


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() not in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}
    except psutil.NoSuchProcess:
        return False


def wait_for_end(pid: int) -> bool:
    """True as soon as the process has ended; False if it goes on for very long."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([process], [], [], 30)[0])
    finally:
        os.close(process)


def test_a_driver_killed_by_a_signal_is_started_again_and_takes_over(run: Run) -> None:
    result = run("dies-once")
    assert (result.restarts, result.finished["rows_in"]) == (1, 5)
    assert [e["generation"] for e in run.events if "generation" in e] == [1, 2]


def test_all_of_the_old_driver_is_gone_before_the_new_one_starts(run: Run) -> None:
    alive: list[bool] = []

    def look(event: DriverEvent) -> None:
        if event["event"] == "driver-started" and event["restarts"]:
            alive.extend(is_alive(pid) for pid in run.pids)

    SparkDriverClient(jvm_grace_s=0).run(
        run.command("dies-once"), log=LOG, on_event=look, restarts_max=1
    )
    assert alive == [False, False]


def test_restarts_are_limited(run: Run) -> None:
    with pytest.raises(dg.Failure, match="killed by signal 9 after 2 restarts"):
        run("dies", restarts_max=2)
    assert run.names.count("driver-started") == 3


def test_a_refusal_is_passed_on_and_not_tried_again(run: Run) -> None:
    with pytest.raises(dg.Failure, match=r"exit code 2: no such path: data/missing") as failure:
        run("refuses")
    assert failure.value.allow_retries is False
    assert run.names.count("driver-started") == 1


def test_an_interrupt_lets_the_driver_take_its_last_checkpoint(run: Run) -> None:
    run.interrupt_at = "progress"
    with pytest.raises(KeyboardInterrupt):
        run("runs")
    assert run.names[-2:] == ["checkpoint-completed", "finished"]


def test_a_driver_that_does_not_stop_is_killed(run: Run) -> None:
    run.interrupt_at = "progress"
    with pytest.raises(KeyboardInterrupt):
        run("hangs", grace_s=0.1)
    assert "finished" not in run.names


def test_a_listener_that_fails_stops_the_driver_gracefully(run: Run) -> None:
    def fail(event: DriverEvent) -> None:
        run.events.append(event)
        if event["event"] in {"progress", "checkpoint-completed"}:
            raise OSError("the database is gone")

    with pytest.raises(OSError, match="database"):
        SparkDriverClient(jvm_grace_s=0).run(
            run.command("runs"), log=LOG, on_event=fail, restarts_max=0
        )
    assert "checkpoint-completed" in run.names


def test_events_that_come_with_one_at_which_the_listener_fails_are_not_lost(run: Run) -> None:
    def fail(event: DriverEvent) -> None:
        run.events.append(event)
        if event["event"] == "progress":
            raise OSError("the database is gone")

    with pytest.raises(OSError, match="database"):
        SparkDriverClient(jvm_grace_s=0).run(
            run.command("bursts"), log=LOG, on_event=fail, restarts_max=0
        )
    assert run.names[-3:] == ["progress", "checkpoint-completed", "finished"]


def test_nor_are_those_of_a_driver_that_has_ended_by_then(run: Run) -> None:
    def fail(event: DriverEvent) -> None:
        run.events.append(event)
        if event["event"] == "progress":
            assert wait_for_end(run.pids[0])
            raise OSError("the database is gone")

    with pytest.raises(OSError, match="database"):
        SparkDriverClient(jvm_grace_s=0).run(
            run.command("bursts"), log=LOG, on_event=fail, restarts_max=0
        )
    assert run.names[-3:] == ["progress", "checkpoint-completed", "finished"]


def test_what_is_no_event_goes_to_standard_error(run: Run, capfd: pytest.CaptureFixture) -> None:
    run("dies-once")
    assert run.names.count("generation-started") == 2
    assert capfd.readouterr().err.count('this is no event\n{"nor": "this"}\n') == 2


def test_the_event_log_holds_every_event(run: Run) -> None:
    run("dies-once")
    assert [json.loads(line) for line in run.event_log.read_text().splitlines()] == run.events
    assert run.names[0], run.names[-1] == ("driver-started", "driver-ended")


def test_a_driver_whose_supervisor_is_killed_stops_gracefully(run: Run) -> None:
    """Goal: a SIGKILL of Dagster's step worker leaves no orphan that goes on writing.

    Method: a second Python supervises the stand-in and is killed once the driver runs.
    """
    script = (
        "import logging, sys\n"
        "from laminar_core.resources.drivers.supervised import SparkDriverClient\n"
        "SparkDriverClient().run(sys.argv[1:], log=logging.getLogger(), restarts_max=0,\n"
        "                        on_event=lambda e: print(e['event'], flush=True))\n"
    )
    command = [sys.executable, "-c", script, *run.command("runs")]
    root = STAND_IN.parents[2]
    supervisor = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root)
    assert supervisor.stdout
    with supervisor:
        assert any(line == "progress\n" for line in supervisor.stdout)
        driver, worker = run.pids
        os.kill(supervisor.pid, signal.SIGKILL)
    assert wait_for_end(driver)
    assert session_members(driver) == [worker]  # A real worker sees that its JVM is gone.
    os.kill(worker, signal.SIGKILL)
    assert wait_for_end(worker)
