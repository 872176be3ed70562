"""The processes of a driver, found by who started whom (Linux)."""

import os
import select
import signal
from contextlib import suppress
from pathlib import Path

WITHIN_S = 30


def children(pid: int) -> list[int]:
    """Processes that this one started and that still are its children."""
    found: list[int] = []
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                found += map(int, (thread / "children").read_text().split())
    return sorted(found)


def command_of(pid: int) -> str:
    """Its command line; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def jvm_of(driver: int) -> int | None:
    """The JVM that a driver started, once it is one: before, it is a shell that looks for Java."""
    return next((pid for pid in children(driver) if "/bin/java " in command_of(pid)), None)


def daemons_of(jvm: int) -> list[int]:
    """Its Python daemons, from which workers are forked."""
    return [pid for pid in children(jvm) if "daemon pyspark" in command_of(pid)]


def signal_process(pid: int, number: int) -> bool:
    """Send a signal; False if the process is gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def kill(pid: int) -> bool:
    """SIGKILL; False if the process is gone."""
    return signal_process(pid, signal.SIGKILL)


def ends(pid: int, within_s: float = WITHIN_S) -> bool:
    """Whether a process that is no child of this one ends, or has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], within_s)[0])
    finally:
        os.close(descriptor)


def marked(variable: str) -> list[int]:
    """Living processes that were started with ``NAME=value`` in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                environment = (entry / "environ").read_bytes().split(b"\0")
                found += [int(entry.name)] if variable.encode() in environment else []
    return found
