"""The processes of a driver, found by who started whom."""

import os
import select
import signal
from contextlib import suppress

import psutil

WITHIN_S = 30


def children(pid: int) -> list[int]:
    """Processes that this one started and that still are its children."""
    with suppress(psutil.Error):
        return sorted(child.pid for child in psutil.Process(pid).children())
    return []


def command_of(pid: int) -> str:
    """Its command line; empty if it is gone."""
    with suppress(psutil.Error):
        return " ".join(psutil.Process(pid).cmdline())
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
    name, _, value = variable.partition("=")
    found = [
        process.pid
        for process in psutil.process_iter(["environ"])
        if (process.info["environ"] or {}).get(name) == value
    ]
    return [pid for pid in found if pid != os.getpid()]
