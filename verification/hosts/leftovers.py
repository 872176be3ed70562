"""Hosts whose owner is gone: found by the mark in their command lines, and ended.

The first process of each host reads from a pipe of its owner and ends when the owner does, however
that came about. So leftovers are rare: a host whose first process was stopped from outside.
"""

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

import psutil

_MARK = re.compile(r"laminar-host:(\d+):(\d+):(\w+)")
_HUNDREDTHS = 100


@dataclass(frozen=True, slots=True)
class MarkedProcess:
    """A process of a host, and the process that made the host."""

    pid: int
    owner_pid: int
    owner_started: int
    """In hundredths of a second since 1970."""


def mark_of(name: str, pid: int | None = None) -> str:
    """Return the word that marks the first process of a host of ``pid``; None: of this process."""
    owner = psutil.Process(os.getpid() if pid is None else pid)
    return f"laminar-host:{owner.pid}:{_started(owner)}:{name}"


def parse(pid: int, command: Iterable[str]) -> MarkedProcess | None:
    """Return the process with its owner, if its command line has a mark."""
    for word in command:
        if found := _MARK.fullmatch(word):
            return MarkedProcess(pid, int(found[1]), int(found[2]))
    return None


def end_leftovers() -> list[int]:
    """End all hosts whose owner is gone; return the processes that were killed."""
    ended: list[int] = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            marked = parse(process.pid, process.cmdline())
            if marked is not None and not _is_alive(marked):
                process.kill()
                ended.append(process.pid)
    return ended


def _is_alive(marked: MarkedProcess) -> bool:
    """Return whether the owner runs; a process that got its number later is another one."""
    try:
        owner = psutil.Process(marked.owner_pid)
        return _started(owner) == marked.owner_started and owner.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _started(process: psutil.Process) -> int:
    return round(process.create_time() * _HUNDREDTHS)
