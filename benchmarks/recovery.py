"""The time from SIGKILL until data flows again."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

from benchmarks import dataset
from benchmarks.result import Result
from laminar_core.driver.events import CheckpointCompleted, DataFlowing, JobEvent, WorkersRunning
from laminar_core.driver.restart import FixedDelay
from laminar_core.host.clock import SystemClock
from laminar_core.jobs.payments import pipeline
from laminar_core.pipeline import CheckpointConfig, RunConfig
from laminar_core.spark.session import open_session

CLOCK = SystemClock()
WORKERS = 2
ROWS_PER_SECOND = 1_000_000
WORKER_KILLS = 7
DRIVER_KILLS = 3


def worker() -> list[Result]:
    """Seconds from SIGKILL of a worker until rows are processed again."""
    path = str(dataset.payments(dataset.RECOVERY_ROWS))
    spark = open_session(f"local[{WORKERS}]", "benchmark")
    events: SimpleQueue[JobEvent] = SimpleQueue()
    job = pipeline(path, str(dataset.fresh("output")), ROWS_PER_SECOND).start(
        spark,
        checkpoint=CheckpointConfig(str(dataset.fresh("store")), interval="1 second"),
        run=RunConfig(workers=WORKERS, restart=FixedDelay(attempts=1000)),  # No pause is measured.
        listener=events.put,
    )
    try:
        took = [_kill_a_worker(events) for _ in range(WORKER_KILLS + 1)][1:]  # The first one warms.
    finally:
        job.cancel()
        spark.stop()
    return [
        Result.of_rounds("worker_kill_to_data", took, "s", "lower", 0.45),
        Result("worker_kill_to_data_worst", max(took), "s", "lower"),
    ]


def _kill_a_worker(events: "SimpleQueue[JobEvent]") -> float:
    pids = next(e.pids for e in iter(events.get, None) if isinstance(e, WorkersRunning))
    next(e for e in iter(events.get, None) if isinstance(e, CheckpointCompleted))
    killed_ms = CLOCK.now_ms()
    os.kill(pids[0], signal.SIGKILL)
    held: list[JobEvent] = []
    for event in iter(events.get, None):
        held.append(event)
        if isinstance(event, DataFlowing):
            break
    flowing_ms = held[-1].time_ms
    for event in held:  # The next kill looks for the pids of this generation.
        events.put(event)
    return (flowing_ms - killed_ms) / 1000


def driver() -> list[Result]:
    """Seconds from SIGKILL of the driver until a new one processes rows."""
    command = _command()
    process = _start(command)
    took: list[float] = []
    try:
        for _ in range(DRIVER_KILLS):
            _wait_for(process, "checkpoint-completed")
            killed_ms = _kill(process)
            process = _start(command)
            took.append((_wait_for(process, "data-flowing") - killed_ms) / 1000)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return [
        Result.of_rounds("driver_kill_to_data", took, "s", "lower", 5.5),
        Result("driver_kill_to_data_worst", max(took), "s", "lower"),
    ]


def standby() -> list[Result]:
    """Seconds from SIGKILL of the driver to rows: with a warm standby, and without, in turn."""
    command = _command(ROWS_PER_SECOND // 20)  # The input lasts for all starts.
    process = _start(command)
    warm: list[float] = []
    cold: list[float] = []
    try:
        _wait_for(process, "data-flowing")
        for _ in range(DRIVER_KILLS):
            with _started([*command, "--standby"]) as following:
                _wait_for(following, "standby-waiting")
                _wait_for(process, "checkpoint-completed")
                killed_ms = _kill(process)
                process = following
                warm.append((_wait_for(process, "data-flowing") - killed_ms) / 1000)
            _wait_for(process, "checkpoint-completed")
            killed_ms = _kill(process)
            process = _start(command)
            cold.append((_wait_for(process, "data-flowing") - killed_ms) / 1000)
    finally:
        _kill(process)
    return [
        Result.of_rounds("driver_kill_to_data_standby", warm, "s", "lower", 1),
        Result("driver_kill_to_data_standby_worst", max(warm), "s", "lower"),
        Result.of_rounds("driver_kill_to_data_beside", cold, "s", "lower"),
    ]


def _command(rows_per_second: int = ROWS_PER_SECOND) -> list[str]:
    """Return the words that run a fresh job."""
    path = str(dataset.payments(dataset.RECOVERY_ROWS))
    output, store = dataset.fresh("output"), dataset.fresh("store")
    return [
        *(sys.executable, "-m", "laminar_core.cli", "run", "jobs/payments.py", "--json"),
        *("--set", f"input={path}", "--set", f"output={output}"),
        *("--set", f"rows_per_second={rows_per_second}", "--store", str(store)),
        *("--checkpoint-interval", "1 second", "--workers", str(WORKERS)),
    ]


@contextmanager
def _started(command: list[str]) -> "Iterator[subprocess.Popen[str]]":
    """Start it, and end it if what follows fails."""
    process = _start(command)
    try:
        yield process
    except BaseException:
        _kill(process)
        raise


def _kill(process: "subprocess.Popen[str]") -> float:
    """Kill the driver; return the time in milliseconds since 1970."""
    killed_ms = CLOCK.now_ms()
    process.kill()
    process.wait()
    return killed_ms


def _start(command: list[str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(  # noqa: S603 - our own command line
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


def _wait_for(process: "subprocess.Popen[str]", event: str) -> float:
    """Time of the first such event, in milliseconds since 1970."""
    return next(e["time_ms"] for e in _events(process) if e["event"] == event)


def _events(process: "subprocess.Popen[str]") -> Iterator[dict[str, Any]]:
    assert process.stdout is not None
    for line in process.stdout:
        yield json.loads(line)
    raise RuntimeError(f"the driver ended with exit code {process.wait()}")
