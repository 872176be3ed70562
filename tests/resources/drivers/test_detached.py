"""Drivers that outlive who started them, and of which nothing is left if they do not come up."""

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import dagster as dg
import psutil
import pytest

from laminar_core.resources.drivers.detached import DetachedDriver, DetachedStart
from laminar_core.resources.drivers.session import session_members
from tests.resources.drivers.test_supervised import STAND_IN, is_alive, wait_for_end


class Launch:
    """A folder for logs, and what the stand-in notes of its processes."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.notes = folder, folder / "pids"
        self.log = logging.getLogger("test.launch")

    def command(self, behaviour: str) -> list[str]:
        return [sys.executable, str(STAND_IN), behaviour, str(self.notes)]

    def launcher(self, **changes: float) -> DetachedDriver:
        settings = {"first_rows_s": 0, "stop_grace_s": 5} | changes
        return DetachedDriver(log_directory=str(self.folder / "logs"), **settings)

    def __call__(
        self, behaviour: str, *, start_timeout_s: float = 300, **changes: float
    ) -> DetachedStart:
        return self.launcher(**changes).start(
            "orders",
            self.command(behaviour),
            env={**os.environ, "LAMINAR_ACTOR": "ann"},
            log=self.log,
            start_timeout_s=start_timeout_s,
        )

    @property
    def pids(self) -> list[int]:
        return [int(line) for line in self.notes.read_text().split()]

    @property
    def living(self) -> list[int]:
        return [pid for pid in self.pids if is_alive(pid)]


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    launch = Launch(tmp_path)
    yield launch
    for pid in launch.pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        assert wait_for_end(pid)


def failure_of(launch: Launch, behaviour: str, **changes: float) -> dg.Failure:
    with pytest.raises(dg.Failure) as caught:
        launch(behaviour, **changes)
    assert launch.living == []
    return caught.value


def test_a_driver_whose_workers_run_is_left_alone(launch: Launch) -> None:
    start = launch("runs")
    driver, worker = launch.pids
    assert (start.generation, start.pid, start.outcome) == (1, driver, None)
    assert session_members(driver) == [driver, worker]


def test_it_gets_nothing_of_who_starts_it_but_the_environment(launch: Launch) -> None:
    reader, writer = os.pipe()
    pipe = str(Path(f"/proc/self/fd/{writer}").readlink())
    try:
        os.set_inheritable(writer, True)  # noqa: FBT003 - it takes no names
        start = launch("runs")
    finally:
        os.close(reader)
        os.close(writer)
    files = {int(p.name): str(p.readlink()) for p in Path(f"/proc/{start.pid}/fd").iterdir()}
    assert [files[n] for n in range(3)] == ["/dev/null", str(start.log), str(start.log)]
    assert pipe not in files.values()
    assert psutil.Process(start.pid).environ()["LAMINAR_ACTOR"] == "ann"


def test_it_waits_for_the_first_rows_a_little(launch: Launch) -> None:
    assert launch("flows", first_rows_s=20).has_rows


def test_a_generation_that_fails_on_its_way_up_is_not_the_one_to_wait_for(launch: Launch) -> None:
    assert launch("restarts").generation == 2


def test_a_job_that_is_over_at_once_has_been_started(launch: Launch) -> None:
    launch.command = lambda _: [*Launch.command(launch, "dies-once"), "--take-over"]
    assert launch("dies-once").outcome == "finished"


def test_a_refusal_has_the_drivers_own_words(launch: Launch) -> None:
    failure = failure_of(launch, "refuses")
    assert failure.description == "the driver gave up with exit code 2: no such path: data/missing"
    assert failure.allow_retries is False
    assert "failed" in Path(failure.metadata["log"].value).read_text()


def test_without_a_place_for_its_log_nothing_is_started(launch: Launch) -> None:
    launch.notes.touch()
    (launch.folder / "logs").write_text("no directory")
    with pytest.raises(dg.Failure, match=r"no log can be written in .*LAMINAR_DRIVER_LOGS"):
        launch("runs")
    assert launch.pids == []


def test_a_driver_that_dies_is_reported_with_its_signal(launch: Launch) -> None:
    assert "gave up at signal 9" in str(failure_of(launch, "dies").description)


@pytest.mark.parametrize(
    ("behaviour", "claimed"),
    [("never-claims", "nothing"), ("never-runs", "generation 1"), ("hangs-before", "nothing")],
)
def test_a_driver_that_does_not_come_up_is_ended(launch: Launch, behaviour, claimed) -> None:
    failure = failure_of(launch, behaviour, start_timeout_s=0.5, stop_grace_s=0.2)
    said = str(failure.description)
    assert "did not run within 0.5 s (start_timeout of the stream) and was ended" in said
    assert f"it had claimed {claimed}" in said


def test_an_interrupt_before_it_runs_ends_it(launch: Launch) -> None:
    def interrupt(record: logging.LogRecord) -> bool:
        if "generation-started" in record.getMessage():
            raise KeyboardInterrupt
        return True

    launch.log.setLevel(logging.INFO)
    launch.log.addFilter(interrupt)
    with pytest.raises(KeyboardInterrupt):
        launch("never-runs")
    launch.log.removeFilter(interrupt)
    assert launch.living == []


def test_an_interrupt_while_it_runs_leaves_it_alone(launch: Launch, monkeypatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(DetachedDriver, "_wait_for_rows", interrupt)
    with pytest.raises(KeyboardInterrupt):
        launch("runs")
    assert launch.living == launch.pids


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_it_survives_the_end_of_who_started_it(launch: Launch, end: signal.Signals) -> None:
    """Goal: neither a crash nor a Ctrl-C, which goes to the whole group, reaches the driver."""
    script = (
        "import logging, os, sys\n"
        "from laminar_core.resources.drivers.detached import DetachedDriver\n"
        "launcher = DetachedDriver(log_directory=sys.argv[1], first_rows_s=0)\n"
        "how = dict(env=os.environ, log=logging.getLogger(), start_timeout_s=300)\n"
        "launcher.start('orders', sys.argv[2:], **how)\n"
        "print('started', flush=True)\n"
        "sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", script, str(launch.folder), *launch.command("runs")]
    starter = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=STAND_IN.parents[2],
        process_group=0,
    )
    assert starter.stdin
    assert starter.stdout
    with starter:
        assert starter.stdout.readline() == b"started\n"
        os.killpg(starter.pid, end)
        starter.wait()
    assert launch.living == launch.pids


def test_logs_are_bounded_at_each_start(launch: Launch) -> None:
    for _ in range(3):
        failure_of(launch, "refuses", logs_kept=2)
    logs = sorted((launch.folder / "logs" / "orders").iterdir())
    assert len(logs) == 3  # Two are kept, and one is new.
