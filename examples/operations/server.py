"""``dagster dev`` for one demonstration, and the end of everything it started."""

# Settings of YAML have any shape.
# pyright: reportUnknownArgumentType=false

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import yaml

from examples.operations.stream import FOLDER_VARIABLE
from laminar_core.host.clock import Clock
from laminar_core.orchestration.streams import ROOT
from laminar_core.resources.drivers import guard

_GRACE_MS = 15_000
_STEP_MS = 100


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def serving(folder: Path, module: str, port: int, clock: Clock) -> Iterator[None]:
    """Run webserver, daemon and code server; end them and all that they started, also drivers.

    ``module`` has the definitions. Logs are in ``folder``/dagster.log.
    """
    home = write_home(folder / "dagster")
    workspace = write_workspace(folder / "workspace.yaml", module)
    process = _start(folder, home, ["-w", str(workspace), "-p", str(port), "-h", "127.0.0.1"])
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_MS / 1000)
        end_all(folder, clock)
        process.wait()


def write_home(home: Path) -> Path:
    """Write a separate DAGSTER_HOME with the project's settings."""
    settings = yaml.safe_load((ROOT / "dagster.yaml").read_text())
    home.mkdir(parents=True, exist_ok=True)
    (home / "dagster.yaml").write_text(yaml.safe_dump(_moved(settings, str(home))))
    return home


def write_workspace(path: Path, module: str) -> Path:
    """Write a workspace like the project's, with other definitions."""
    workspace = yaml.safe_load((ROOT / "workspace.yaml").read_text())
    (target,) = workspace["load_from"]
    target["python_module"] |= {"module_name": module, "working_directory": str(ROOT)}
    path.write_text(yaml.safe_dump(workspace))
    return path


def started_for(folder: Path) -> list[int]:
    """Return the pids of living processes with the demonstration's mark, but this one."""
    marked = (FOLDER_VARIABLE, str(folder))
    processes = psutil.process_iter(["environ", "pid"])
    return [
        process.info["pid"]
        for process in processes
        if marked in (process.info["environ"] or {}).items() and process.info["pid"] != os.getpid()
    ]


def end_all(folder: Path, clock: Clock) -> int:
    """Kill what is left of a demonstration, also of an earlier one; returns how many there were."""
    left = found = started_for(folder)
    while left:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        clock.wait_ms(_STEP_MS)
        left = started_for(folder)
    return len(found)


def _start(folder: Path, home: Path, words: list[str]) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "dagster", "dev", *words]
    guarded = [sys.executable, "-I", "-S", guard.__file__, str(os.getpid()), *command]
    with (folder / "dagster.log").open("wb") as log:
        return subprocess.Popen(  # noqa: S603 - its own words
            guarded,
            cwd=ROOT,
            env={**os.environ, FOLDER_VARIABLE: str(folder), "DAGSTER_HOME": str(home)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _moved(settings: Mapping[str, Any], home: str) -> dict[str, Any]:
    """Return the settings with all folders below ``home``."""
    return {
        name: _moved(value, home)
        if isinstance(value, dict)
        else value.replace("build/dagster", home)
        if isinstance(value, str)
        else value
        for name, value in settings.items()
    }
