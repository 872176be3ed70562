"""A system that is measured: a program that stays, and works when it gets a line.

It reads a line, does what the line says, and answers ``done``. So it is warm when it is measured,
and its CPU is the CPU of its process and of all processes that it started.
"""

import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from time import perf_counter
from typing import Self

import psutil

DONE = "done"
_END_SECONDS_MAX = 30
_LINE_SECONDS_MAX = 600.0


@dataclass(frozen=True, slots=True)
class Cost:
    """Time that a piece of work took; ``cpu_s`` is the sum over all processes and threads."""

    wall_s: float
    cpu_s: float


class SystemFailedError(RuntimeError):
    """A program that is measured did not answer."""


class System:
    """A running program.

    Args:
        command: what to start.
        log: gets what it writes to its standard error.
        environment: its variables; None: those of this process.
        limit_s: how long it may take for a line; then it is ended.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        environment: Mapping[str, str] | None = None,
        limit_s: float = _LINE_SECONDS_MAX,
    ) -> None:
        self._log = log
        self._limit_s = limit_s
        with log.open("ab") as errors:
            self._process = subprocess.Popen(  # noqa: S603 - a benchmark's own words
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=environment,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        started = self._tree()
        try:
            self._process.communicate(timeout=_END_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            for process in started:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            self._process.communicate()

    def work(self, *lines: str) -> Cost:
        """Send these lines one after the other, and measure the last one.

        Raises:
            SystemFailedError: the program ended, or took longer than it may; the message has the
                end of its log.
        """
        *before, last = lines
        for line in before:
            self._say(line)
        cpu_s, started = self._cpu_s(), perf_counter()
        self._say(last)
        return Cost(perf_counter() - started, self._cpu_s() - cpu_s)

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        limit = Timer(self._limit_s, self._process.kill)
        limit.start()
        try:
            with suppress(BrokenPipeError):  # It has ended, as its answers say.
                self._process.stdin.write(f"{line}\n")
                self._process.stdin.flush()
            if any(answer.strip() == DONE for answer in self._process.stdout):
                return
        finally:
            limit.cancel()
        raise SystemFailedError(f"it ended: {self._log.read_text(errors='replace')[-2000:]}")

    def _tree(self) -> list[psutil.Process]:
        first = psutil.Process(self._process.pid)
        return [first, *first.children(recursive=True)]

    def _cpu_s(self) -> float:
        """Return the CPU of all processes so far, and of those of them that have ended."""
        seconds = 0.0
        for process in self._tree():
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                seconds += times.user + times.system + times.children_user + times.children_system
        return seconds
