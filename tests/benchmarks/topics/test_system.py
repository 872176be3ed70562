"""The cost of a system is that of all its processes, dead or alive."""

import sys
from pathlib import Path

import pytest

from benchmarks.topics.system import System, SystemFailedError

BURN = "from time import process_time\nwhile process_time() < 0.4: pass"
CPU_S_MIN = 0.3
"""Less than what is burnt: the system counts each process in ticks of 10 ms."""
PROGRAM = f"""
import subprocess, sys
BURN = {BURN!r}
for line in sys.stdin:
    if line.strip() == "end":
        sys.exit("enough")
    if line.strip() == "one that ends":
        subprocess.run([sys.executable, "-c", BURN], check=True)
    if line.strip() == "one that stays":
        staying = BURN + "\\nprint()\\nimport sys\\nsys.stdin.read()"
        child = subprocess.Popen(
            [sys.executable, "-uc", staying], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        child.stdout.readline()
    print("anything else", "done", sep="\\n", flush=True)
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.mark.parametrize("line", ["one that ends", "one that stays"])
def test_processes_that_a_system_starts_are_counted(log: Path, line: str) -> None:
    with System([sys.executable, "-c", PROGRAM], log) as system:
        cost = system.work(line)
    assert cost.cpu_s >= CPU_S_MIN
    assert cost.wall_s > 0


def test_only_the_last_line_is_measured(log: Path) -> None:
    with System([sys.executable, "-c", PROGRAM], log) as system:
        assert system.work("one that ends", "nothing").cpu_s < CPU_S_MIN


def test_a_system_that_ended_says_why(log: Path) -> None:
    with (
        System([sys.executable, "-c", PROGRAM], log) as system,
        pytest.raises(RuntimeError, match="enough"),
    ):
        system.work("end")


def test_a_system_that_takes_too_long_is_ended(log: Path) -> None:
    silent = "import sys\nsys.stdin.readline()\nsys.stdin.readline()"
    with (
        System([sys.executable, "-c", silent], log, limit_s=0.2) as system,
        pytest.raises(SystemFailedError),
    ):
        system.work("a line")
