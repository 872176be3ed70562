"""Calls the command line in this process, with everything but the JVM as users get it."""

import sys
from dataclasses import dataclass

import pytest

from laminar_core.cli.main import main


@dataclass(frozen=True)
class Answer:
    """The output of a command, and its exit code."""

    code: int
    out: str
    err: str


class CommandLine:
    """``cli("run", "x.py")`` is ``laminar run x.py``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, *words: object) -> Answer:
        self._monkeypatch.setattr(sys, "argv", ["laminar", *map(str, words)])
        self._capsys.readouterr()
        code = _exit_code()
        said = self._capsys.readouterr()
        return Answer(code, said.out, said.err)


def _exit_code() -> int:
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0
