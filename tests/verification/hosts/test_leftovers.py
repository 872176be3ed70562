"""Hosts of owners that are gone are found and ended, others are left alone."""

import os
import subprocess
import sys

import pytest

from verification.hosts.leftovers import MarkedProcess, end_leftovers, mark_of, parse


@pytest.fixture
def sleeper():
    """Start a process that looks like the first one of a host of ``owner``."""
    started: list[subprocess.Popen[bytes]] = []

    def start(mark: str) -> subprocess.Popen[bytes]:
        program = "import time; time.sleep(600)"
        started.append(subprocess.Popen([sys.executable, "-c", program, mark]))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_a_mark_names_its_owner() -> None:
    mark = mark_of("w1")
    found = parse(7, ["bash", "-c", "true", mark])
    assert found is not None
    assert (found.pid, found.owner_pid) == (7, os.getpid())
    assert parse(8, ["bash", "-c", "true", f"x{mark}"]) is None


def test_only_hosts_without_their_owner_are_ended(sleeper) -> None:
    owner = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    orphan = sleeper(mark_of("a", owner.pid))
    owner.kill()
    owner.wait()
    kept = sleeper(mark_of("b"))
    assert orphan.pid in end_leftovers()
    assert orphan.wait() == -9
    assert kept.poll() is None


def test_a_later_process_with_the_owners_number_is_another_one(sleeper) -> None:
    found = parse(0, [mark_of("a")])
    assert found == MarkedProcess(0, os.getpid(), found.owner_started if found else 0)
    assert found is not None
    orphan = sleeper(f"laminar-host:{os.getpid()}:{found.owner_started - 100}:a")
    assert orphan.pid in end_leftovers()
