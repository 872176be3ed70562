"""One standby of a stream is kept by ticks, with real processes that are no drivers."""

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import dagster as dg
import psutil
import pytest

from laminar_core.host.clock import SystemClock
from laminar_core.resources import DetachedDriver
from laminar_core.resources.drivers.launcher import DriverLauncher
from laminar_core.resources.drivers.session import session_members
from laminar_core.resources.drivers.standbys import LivingStandby, StandbyFolder, digest_of
from laminar_core.resources.names import asset_key
from laminar_core.sensors.policy import AlertPolicy
from laminar_core.sensors.standby.keeper import WantedStandby
from laminar_core.sensors.standby.sensor import build_standby_sensor
from laminar_core.store.owner import this_process
from tests.sensors.streams import STREAM, Ticks, stored_job

STAND_IN = Path(__file__).parents[2] / "resources" / "standby_stand_in.py"
BOOTED_S = psutil.boot_time()


class Kept:
    """A job whose driver runs, and the sensor that keeps its standby."""

    def __init__(self, place: Path, instance: dg.DagsterInstance) -> None:
        self.job = stored_job(place)
        self.instance = instance
        self.version = "1"
        self.how = "waits"
        self.asked: list[int | None] = []
        uri = self.job.store.objects.uri
        self.folder: StandbyFolder = DetachedDriver(log_directory=f"{uri}-drivers").standbys(STREAM)
        self.ticks = self.daemon()
        self.sessions: set[int] = set()

    def daemon(self, *, wanted: bool = True) -> Ticks:
        streams = {STREAM: lambda _: WantedStandby(self._command, self._digest)} if wanted else {}
        sensor = build_standby_sensor({STREAM: AlertPolicy()}, streams, self.job.clock)
        return Ticks(self.instance, sensor, self.job.store.objects.uri)

    def _command(self, workers: int | None) -> Sequence[str]:
        self.asked.append(workers)
        return [sys.executable, str(STAND_IN), self.how]

    def _digest(self, command: Sequence[str]) -> str:
        return digest_of(command, self.version)

    def tick(self) -> str:
        return self.ticks.tick()

    @property
    def living(self) -> list[LivingStandby]:
        found = self.folder.living()
        self.sessions |= {standby.pid for standby in found if standby.pid}
        return found

    def end_all(self) -> None:
        """End every standby that was seen, or lives now, with its children."""
        seen = {standby.pid for standby in self.living if standby.pid}
        for session in self.sessions | seen:
            for pid in session_members(session):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def wait_until(self, is_so: Callable[[], Any]) -> None:
        clock = SystemClock()
        deadline_ms = clock.monotonic_ms() + 20_000
        while not is_so():
            assert clock.monotonic_ms() < deadline_ms
            clock.wait_ms(5)

    def take_over(self) -> int:
        """The standby claims the job."""
        pid = self.living[0].pid
        assert pid
        ticks = os.sysconf("SC_CLK_TCK")
        began = round((psutil.Process(pid).create_time() - BOOTED_S) * ticks)
        owner = this_process().model_copy(update={"pid": pid, "pid_start_time": began})
        self.job.claim(owner)
        self.job.beat()
        return pid


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    with dg.DagsterInstance.ephemeral() as instance:
        kept = Kept(tmp_path, instance)
        yield kept
        kept.end_all()


def running(kept: Kept) -> Kept:
    kept.job.claim()
    kept.job.beat()
    return kept


def test_ticks_of_several_daemons_start_exactly_one(kept: Kept) -> None:
    assert kept.tick() == "standby: none: the job has never run"
    kept.job.claim()
    assert kept.tick() == "standby: none: the driver is on its way up"
    kept.job.beat()
    line = kept.tick()
    (standby,) = kept.living
    assert line.startswith("standby: waiting since ")
    assert line.endswith(f"process {standby.pid}")
    other = kept.daemon()
    assert (kept.tick(), other.tick()) == (line, line)
    with kept.folder.alone():
        assert kept.tick() == "standby: another process is looking after it"
    assert kept.living == [standby]


def test_its_line_is_shown_on_the_deployment_once(kept: Kept) -> None:
    running(kept)
    (event,) = kept.ticks.evaluate().asset_events
    assert isinstance(event, dg.AssetObservation)
    assert event.asset_key == asset_key(STREAM, "deployment")
    assert str(event.metadata["standby"].value).startswith("standby: waiting since")
    kept.tick()
    assert kept.ticks.evaluate().asset_events == []


def test_another_one_is_started_once_it_is_the_driver(kept: Kept) -> None:
    running(kept).tick()
    driver = kept.take_over()
    kept.tick()
    assert [standby.pid == driver for standby in kept.living] == [True, False]
    kept.tick()
    assert len(kept.living) == 2


def test_another_definition_replaces_it(kept: Kept) -> None:
    running(kept).tick()
    (old,) = kept.living
    kept.version = "2"
    assert "is replaced" in kept.tick()
    kept.wait_until(lambda: not kept.living)
    kept.tick()
    (new,) = kept.living
    assert new.digest != old.digest


def test_none_is_started_for_a_job_that_is_over_or_lost(kept: Kept) -> None:
    running(kept)
    kept.job.store.generations.end(kept.job.generation, "stopped", "")
    assert kept.tick() == "standby: none: the job is over"
    kept.job.claim_by_the_dead()
    kept.job.beat()
    assert kept.tick() == "standby: none: the driver is lost"
    assert kept.living == []


def test_turned_off_it_ends_and_the_driver_goes_on(kept: Kept) -> None:
    kept.how = "drives"
    running(kept).tick()
    driver = kept.take_over()
    kept.how = "waits"
    kept.tick()
    off = kept.daemon(wanted=False)
    assert off.tick() == "standby: none: the stream wants none"
    kept.wait_until(lambda: len(kept.living) == 1)
    assert [standby.pid for standby in kept.living] == [driver]


def test_one_that_dies_at_once_waits_longer_each_time_and_is_told_once(kept: Kept) -> None:
    kept.how = "dies"
    running(kept)
    lines: list[str] = []
    for _ in range(4):
        kept.tick()
        kept.wait_until(lambda: not kept.living)
        lines.append(kept.tick())
        kept.job.clock.wait_ms(90_000)
        kept.job.beat()
    assert [line.rpartition("in ")[2] for line in lines] == ["10 s", "20 s", "40 s", "80 s"]
    assert kept.ticks.cursor
    assert kept.ticks.cursor.count("standby:dies") == 1


def test_it_runs_with_as_many_workers_as_the_driver(kept: Kept) -> None:
    running(kept).tick()
    assert kept.asked == [None]  # It is not recorded: so the stream's own.


def test_a_launcher_that_keeps_none_is_refused(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DetachedDriver, "standbys", DriverLauncher.standbys)
    with pytest.raises(dg.Failure, match="DetachedDriver keeps no standbys"):
        kept.tick()
    assert kept.daemon(wanted=False).tick() == "no standby is wanted"


def test_a_stream_that_never_wanted_one_costs_nothing(kept: Kept) -> None:
    assert kept.daemon(wanted=False).tick() == "no standby is wanted"
