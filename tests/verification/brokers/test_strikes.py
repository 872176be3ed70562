"""A strike hits one process, once, at the step that it waits for."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from verification.brokers.strikes import Strike, Strikes, reach

PROGRAM = """
import sys
from verification.brokers.strikes import reach
for step in sys.argv[1:]:
    reach(step)
"""


@pytest.fixture
def strikes(tmp_path: Path) -> Strikes:
    return Strikes(tmp_path / "strikes")


def start(strikes: Strikes, *steps: str) -> "subprocess.Popen[bytes]":
    environment = {**os.environ, **strikes.environment}
    return subprocess.Popen([sys.executable, "-c", PROGRAM, *steps], env=environment)


def test_a_process_dies_at_the_step_and_at_no_other(strikes: Strikes) -> None:
    strikes.arm(Strike("written", "dies", number=2))
    assert start(strikes, "written", "told").wait() == 0
    assert strikes.struck() is None
    hit = start(strikes, "written", "written")
    assert hit.wait() == -signal.SIGKILL
    assert strikes.struck() == hit.pid
    assert start(strikes, "written", "written").wait() == 0, "one strike hits once"


def test_a_strike_can_wait_for_a_step_before_it(strikes: Strikes) -> None:
    strikes.arm(Strike("committed", "dies", after="written"))
    assert start(strikes, "committed").wait() == 0
    assert start(strikes, "committed", "written", "committed").wait() == -signal.SIGKILL


def test_a_process_that_sleeps_goes_on_when_it_is_woken(strikes: Strikes) -> None:
    strikes.arm(Strike("written", "sleeps"))
    hit = start(strikes, "written")
    os.waitid(os.P_PID, hit.pid, os.WSTOPPED | os.WNOWAIT)
    assert psutil.Process(hit.pid).status() == psutil.STATUS_STOPPED
    hit.send_signal(signal.SIGCONT)
    assert hit.wait() == 0


def test_without_a_campaign_steps_do_nothing() -> None:
    reach("written")
