"""A stream's standby beside the jobs that start, replace and end its driver."""

import logging
import os
import signal
from collections.abc import Iterator
from contextlib import suppress

import pydantic
import pytest

from laminar_core.host.clock import SystemClock
from laminar_core.orchestration.launching.running_driver import Free, TakeOver
from laminar_core.orchestration.launching.standby import (
    standby_now,
    start_standby,
    wanted_standby,
    without_standby,
)
from laminar_core.orchestration.spec import StreamSpec
from laminar_core.resources import DetachedDriver
from laminar_core.resources.drivers.session import session_members
from laminar_core.resources.drivers.standbys import LivingStandby
from laminar_core.sensors.standby.keeper import line_of
from tests.orchestration.started import StartedStream
from tests.resources.drivers.test_standbys import STAND_IN

LOG = logging.getLogger(__name__)
CLOCK = SystemClock()


class Standing:
    """A started stream that wants a standby; the standby is a process that waits."""

    def __init__(self, stream: StartedStream, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stream = stream
        self.launcher = DetachedDriver(log_directory=str(stream.place / "drivers"))
        self.sessions: set[int] = set()
        self.folder = self.launcher.standbys(stream.spec.name)
        spec = stream.spec.model_copy(update={"standby": True})
        monkeypatch.setattr(StartedStream, "spec", property(lambda _: spec))
        words = spec.laminar[0], str(STAND_IN), "waits"
        monkeypatch.setattr(StreamSpec, "command", _standby_only(StreamSpec.command, words))

    def living(self) -> list[LivingStandby]:
        """Return those that live, once each has noted its id."""
        deadline_ms = CLOCK.monotonic_ms() + 20_000
        while any(standby.pid is None for standby in self.folder.living()):
            assert CLOCK.monotonic_ms() < deadline_ms
            CLOCK.wait_ms(5)
        found = self.folder.living()
        self.sessions |= {standby.pid for standby in found if standby.pid}
        return found

    def running_check(self):
        """Return the metadata of the check ``running``."""
        result = (
            self.stream.definitions()
            .resolve_job_def("laminar_checks")
            .execute_in_process(instance=self.stream.instance, raise_on_error=False)
        )
        (told,) = (
            each for each in result.get_asset_check_evaluations() if each.check_name == "running"
        )
        return told.metadata


def _standby_only(command, words):
    def instead(spec: StreamSpec, store_uri: str, more=()):
        return [*words] if "--standby" in more else command(spec, store_uri, more)

    return instead


@pytest.fixture
def standing(stream: StartedStream, monkeypatch: pytest.MonkeyPatch) -> Iterator[Standing]:
    standing = Standing(stream, monkeypatch)
    yield standing
    standing.living()
    for session in standing.sessions:
        for pid in session_members(session):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_it_is_started_with_the_driver_and_shown_on_the_deployment(standing: Standing) -> None:
    assert standing.stream.start().success
    (standby,) = standing.living()
    line = standing.stream.facts("deployment")["standby"]
    assert line == line_of(standby)
    told = start_standby(
        standing.launcher, standing.stream.spec, standing.stream.store, standing.stream.uri, LOG
    )
    assert told == line
    assert standby_now(standing.launcher, standing.stream.store) == line
    assert standing.running_check()["standby"].value == line
    assert standing.living() == [standby]


def test_it_ends_before_a_driver_that_is_killed_and_not_before_others(standing: Standing) -> None:
    assert standing.stream.start().success
    store, launcher = standing.stream.store, standing.launcher
    with without_standby(Free("it is gone"), launcher, store, CLOCK, LOG):
        assert len(standing.living()) == 1
    with without_standby(TakeOver(1, "it is stuck"), launcher, store, CLOCK, LOG):
        assert standing.living() == []
        with standing.folder.alone() as is_alone:
            assert not is_alone  # So nobody starts one meanwhile.


def test_one_that_cannot_be_started_does_not_fail_the_start(
    standing: Standing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StreamSpec, "command", _standby_only(StreamSpec.command, ()))
    (standing.stream.place / "drivers").write_text("no directory")
    assert standing.stream.start().success
    assert standing.stream.facts("deployment")["standby"].startswith("standby: none: ")


def test_its_command_is_that_of_the_next_driver(stream: StartedStream) -> None:
    wanted = wanted_standby(stream.spec, "store")
    command = wanted.command(3)
    assert "--standby" in command
    assert command[command.index("--workers") + 1] == "3"
    assert command.count("--workers") == 1
    assert wanted.digest(command) != wanted.digest(wanted.command(4))


def test_a_supervised_stream_cannot_have_one(stream: StartedStream) -> None:
    with pytest.raises(pydantic.ValidationError, match="standby needs launch: detached"):
        StreamSpec(name="a", program=stream.spec.program, launch="supervised", standby=True)
