"""Standbys that are proved to live by a lock that they hold until they end."""

import errno
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from laminar_core.host.clock import SystemClock
from laminar_core.resources.drivers.session import session_members
from laminar_core.resources.drivers.standbys import (
    LivingStandby,
    StandbyFolder,
    digest_of,
    retire,
)

STAND_IN = Path(__file__).parents[1] / "standby_stand_in.py"
CLOCK = SystemClock()


class Standbys:
    def __init__(self, place: Path) -> None:
        self.folder = StandbyFolder(place / "standby", logs_kept=2, log_bytes_max=1 << 20)
        self.started: list[LivingStandby] = []
        self.sessions: set[int] = set()

    def start(self, how: str = "waits", now_ms: int = 0) -> LivingStandby:
        command = [sys.executable, str(STAND_IN), how]
        with self.folder.alone() as is_alone:
            assert is_alone
            found = self.folder.start(command, how, os.environ, now_ms + len(self.started))
        self.started.append(found)
        assert found.pid
        self.sessions.add(found.pid)
        return found

    def ready(self, standby: LivingStandby) -> None:
        deadline_ms = CLOCK.monotonic_ms() + 20_000
        while "waits" not in standby.log.read_text():
            assert CLOCK.monotonic_ms() < deadline_ms
            CLOCK.wait_ms(10)

    def ends(self, standby: LivingStandby) -> bool:
        return self.folder.wait_for_end([standby], CLOCK, 20_000)

    @property
    def pids(self) -> list[int | None]:
        return [standby.pid for standby in self.folder.living()]


@pytest.fixture
def standbys(tmp_path: Path) -> Iterator[Standbys]:
    standbys = Standbys(tmp_path)
    yield standbys
    for session in standbys.sessions:
        for pid in session_members(session):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_it_is_known_by_its_lock_until_it_ends(standbys: Standbys) -> None:
    """Goal: neither its children nor who started it are a proof of it."""
    first = standbys.start()
    standbys.ready(first)
    assert standbys.folder.living() == [first]
    assert first.pid
    (child,) = psutil.Process(first.pid).children()
    os.kill(first.pid, signal.SIGKILL)
    assert standbys.ends(first)
    assert child.is_running()
    assert standbys.pids == []


def test_its_id_is_known_before_it_has_run_at_all(
    standbys: Standbys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: it is shown in the same words from the first look on, however slow its start is."""
    monkeypatch.setattr("laminar_core.resources.drivers.standbys._GUARD", str(STAND_IN))
    first = standbys.start()
    assert standbys.folder.living() == [first]


def test_a_disk_that_fills_up_while_it_starts_does_not_lose_it(
    standbys: Standbys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The standby runs by then, and notes its id by itself as soon as it can."""
    write = os.write

    def refuse(descriptor: int, data: bytes) -> int:
        if data.strip().isdigit():
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", refuse)
    first = standbys.start()
    standbys.ready(first)
    assert standbys.pids == [first.pid]


def test_it_ends_when_it_is_asked_and_the_driver_does_not(standbys: Standbys) -> None:
    first, driver = standbys.start(), standbys.start("drives")
    standbys.ready(first)
    standbys.ready(driver)
    for each in standbys.folder.living():
        retire(each)
    assert standbys.ends(first)
    assert standbys.pids == [driver.pid]
    assert not standbys.folder.wait_for_end([driver], CLOCK, 0)


def test_no_process_with_its_number_is_signalled_once_it_has_ended(standbys: Standbys) -> None:
    first = standbys.start("dies")
    assert standbys.ends(first)
    innocent = standbys.start("waits")
    standbys.ready(innocent)
    retire(LivingStandby(first.lock, first.log, "dies", 0, innocent.pid))
    assert standbys.pids == [innocent.pid]


def test_only_one_looks_after_a_folder_at_a_time(standbys: Standbys) -> None:
    with standbys.folder.alone() as first, standbys.folder.alone() as second:
        assert (first, second) == (True, False)
    with standbys.folder.alone() as third:
        assert third


def test_logs_are_bounded_and_those_of_the_living_are_kept(standbys: Standbys) -> None:
    lives = standbys.start()
    for _ in range(4):
        assert standbys.ends(standbys.start("dies"))
    names = sorted(path.name for path in standbys.folder.clean_up())
    assert lives.log.exists()
    assert len(names) == 1  # The other starts have deleted theirs.
    assert len(list(lives.log.parent.glob("*.log"))) == 3
    assert len(list(lives.log.parent.glob("*.lock"))) == 3
    assert standbys.folder.newest_log() == standbys.started[-1].log


def test_a_lock_without_its_facts_is_no_standby(standbys: Standbys) -> None:
    lives = standbys.start()
    lives.lock.write_text("")
    assert standbys.folder.living() == []


def test_a_digest_tells_programs_and_commands_apart() -> None:
    known = {digest_of(words, version) for words in (["a"], ["b"]) for version in ("1", "2")}
    assert len(known) == 4
