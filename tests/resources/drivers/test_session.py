"""Only the session that a driver leads is killed."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from laminar_core.host.clock import SystemClock
from laminar_core.records.manifest import Owner
from laminar_core.resources.drivers.session import (
    DriverSession,
    kill_session_of,
    session_members,
)
from laminar_core.store.owner import this_process
from tests.resources.drivers.test_supervised import is_alive, wait_for_end

DESCRIBE = (
    "from laminar_core.store.owner import this_process; import signal\n"
    "print(this_process().model_dump_json(), flush=True); signal.pause()"
)


class Process:
    """A process that says who it is."""

    def __init__(self, *, leads: bool) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, "-c", DESCRIBE], stdout=subprocess.PIPE, start_new_session=leads
        )
        assert self.popen.stdout
        self.owner = Owner.model_validate_json(self.popen.stdout.readline())

    def end(self) -> None:
        self.popen.kill()
        self.popen.communicate()


@pytest.fixture(params=[True, False])
def process(request: pytest.FixtureRequest) -> Iterator[Process]:
    process = Process(leads=request.param)
    yield process
    process.end()


@pytest.mark.parametrize("process", [True], indirect=True)
def test_a_driver_that_leads_a_session_is_killed(process: Process) -> None:
    assert kill_session_of(process.owner)
    assert wait_for_end(process.owner.pid)
    assert not kill_session_of(process.owner)


@pytest.mark.parametrize("process", [False], indirect=True)
def test_a_session_that_somebody_else_leads_is_not(process: Process) -> None:
    """Goal: a driver in a terminal shares its session with everything else in there."""
    assert not kill_session_of(process.owner)
    assert is_alive(process.owner.pid)


@pytest.mark.parametrize("process", [True], indirect=True)
@pytest.mark.parametrize("changes", [{"pid_start_time": 1}, {"boot_id": "other"}, {"host_id": "h"}])
def test_another_process_with_the_same_pid_is_not(process: Process, changes) -> None:
    assert not kill_session_of(process.owner.model_copy(update=changes))
    assert session_members(process.owner.pid) == [process.owner.pid]


def test_this_process_does_not_kill_its_own(monkeypatch) -> None:
    killed: list[int] = []
    monkeypatch.setattr("os.getsid", lambda _: this_process().pid)
    monkeypatch.setattr("os.kill", lambda pid, _: killed.append(pid))
    monkeypatch.setattr("laminar_core.resources.drivers.session.session_members", lambda pid: [pid])
    assert not kill_session_of(this_process())
    assert killed == []


JVM = "import sys; sys.stdin.read(); open('tidied', 'w').close()"
DRIVER = (
    "import subprocess, sys, signal\n"
    f"subprocess.Popen([sys.executable, '-c', {JVM!r}], stdin=subprocess.PIPE)\n"
    "print('up', flush=True); signal.pause()"
)
"""A driver, and a JVM that tidies up when its driver is gone."""


@pytest.fixture
def driver(tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen(
        [sys.executable, "-c", DRIVER],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout
    assert process.stdout.readline() == b"up\n"
    yield process
    process.kill()
    process.communicate()


def test_the_end_of_a_driver_is_seen_and_its_pid_stays_taken(driver, monkeypatch) -> None:
    monkeypatch.delattr(os, "waitid", raising=False)  # As on macOS before Python 3.13.
    session = DriverSession(driver, SystemClock())
    assert not session.exited
    os.kill(driver.pid, signal.SIGKILL)
    assert session.wait(60)
    assert driver.returncode is None
    assert session.close(0) == -signal.SIGKILL
    assert session_members(driver.pid) == []


def test_the_jvm_of_a_killed_driver_may_tidy_up(driver, tmp_path: Path) -> None:
    session = DriverSession(driver, SystemClock())
    os.kill(driver.pid, signal.SIGKILL)
    assert session.wait(60)
    assert session.close(60) == -signal.SIGKILL
    assert (tmp_path / "tidied").exists()
