"""A command is heard while it runs, and nothing of it is left when its caller is interrupted."""

import logging
import os
import sys

import pytest

from laminar_core.host.clock import SystemClock
from laminar_core.resources.drivers.laminar_command import CommandResult, run_command
from laminar_core.resources.drivers.session import session_members

LOG = logging.getLogger("a command")
LOG.setLevel(logging.INFO)

HANGS = """
import os, signal, subprocess, sys
subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
try:
    print(os.getpid(), file=sys.stderr, flush=True)
    signal.pause()
except KeyboardInterrupt:
    print("let go", file=sys.stderr, flush=True)
    raise SystemExit
"""
DEAF = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"


class Listener(logging.Handler):
    """Keeps what is logged, and does what Ctrl-C would after the first line."""

    def __init__(self, *, interrupts: bool) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._interrupts = interrupts

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        if self._interrupts and len(self.lines) == 1:
            raise KeyboardInterrupt


@pytest.fixture
def listen():
    def start(*, interrupts: bool = False) -> Listener:
        listener = Listener(interrupts=interrupts)
        LOG.addHandler(listener)
        return listener

    yield start
    LOG.handlers.clear()


def run(program: str, grace_s: float = 20.0, **env: str) -> CommandResult:
    command = [sys.executable, "-c", program]
    return run_command(
        command,
        env={**os.environ, **env},
        log=LOG,
        clock=SystemClock(),
        stop_grace_s=grace_s,
        jvm_grace_s=0,
    )


def test_its_answer_is_its_output_and_its_words_are_logged(listen) -> None:
    listener = listen()
    result = run(
        "import os, sys\nprint('{')\nprint(os.environ['X'], '}')\nprint('one', file=sys.stderr)\n"
        "print('Error: two', file=sys.stderr)\nprint('three', file=sys.stderr)\nsys.exit(4)",
        X="y",
    )
    assert result == CommandResult(4, "{\ny }", "two")
    assert listener.lines == ["one", "Error: two", "three"]


def test_without_an_error_its_last_line_is_its_problem() -> None:
    assert run("import sys; print('on my way', file=sys.stderr)").problem == "on my way"


def test_who_is_interrupted_interrupts_it_and_it_may_clean_up(listen) -> None:
    listener = listen(interrupts=True)
    with pytest.raises(KeyboardInterrupt):
        run(HANGS)
    pid, *rest = listener.lines
    assert rest == ["let go"]
    assert session_members(int(pid)) == []


def test_one_that_does_not_end_is_killed_with_all_its_processes(listen) -> None:
    listener = listen(interrupts=True)
    with pytest.raises(KeyboardInterrupt):
        run(DEAF + HANGS, grace_s=0.2)
    assert session_members(int(listener.lines[0])) == []
