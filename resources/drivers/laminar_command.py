"""Run a ``laminar`` command to its end: log its output live, own its processes, return its result.

The command ends together with this process, and leaves no process behind.
"""

import logging
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from laminar_core.host.clock import Clock
from laminar_core.resources.drivers.process import DriverProcess, Line

_ERROR = "error: "
_POLL_S = 0.1
JVM_GRACE_S = 5.0
"""How long the processes of a command may outlive its normal end before they are killed."""

STOP_GRACE_S = 20.0
"""How long an interrupted command may clean up before it is killed."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The result of a command; ``exit_code`` is negative for a signal."""

    exit_code: int
    stdout: str
    problem: str
    """The last error that it named, or else its last line on standard error."""


@dataclass(slots=True)
class _Output:
    """The output of a command so far."""

    log: logging.Logger
    stdout: list[str] = field(default_factory=list[str])
    error: str = ""
    last_line: str = ""

    def add(self, lines: Sequence[Line]) -> None:
        for line in lines:
            if line.stream == "stdout":
                self.stdout.append(line.text)
            elif text := line.text.strip():
                self.last_line = text
                if text.lower().startswith(_ERROR):
                    self.error = text[len(_ERROR) :]
                self.log.info("%s", text)


def run_command(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    log: logging.Logger,
    clock: Clock,
    stop_grace_s: float = STOP_GRACE_S,
    jvm_grace_s: float = JVM_GRACE_S,
) -> CommandResult:
    """Run ``command`` and wait for it; an interrupt of this call also interrupts the command.

    Its standard error goes to ``log``, line by line.
    """
    output = _Output(log)
    process = DriverProcess(command, clock, env)
    try:
        while not process.exited:
            output.add(process.read_lines(_POLL_S))
        output.add(process.read_lines(0))
    except BaseException:
        _interrupt(process, output, clock, stop_grace_s)
        raise
    finally:
        exit_code = process.close(jvm_grace_s)
    return CommandResult(exit_code, "\n".join(output.stdout), output.error or output.last_line)


def _interrupt(process: DriverProcess, output: _Output, clock: Clock, grace_s: float) -> None:
    """As Ctrl-C does: the command cleans up, as a drill lets go of its checkpoint."""
    if not process.exited:
        os.kill(process.pid, signal.SIGINT)
    deadline_ms = clock.monotonic_ms() + 1000 * grace_s
    is_over = False
    while not is_over:
        is_over = process.exited or clock.monotonic_ms() >= deadline_ms
        lines = process.read_lines(0 if is_over else _POLL_S)  # Its last words, too.
        for line in lines:
            with suppress(Exception):  # It may be the log that made us stop.
                output.add([line])
