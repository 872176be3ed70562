"""Fixtures of the command line's tests."""

import sys
from collections.abc import Iterator

import pytest

from tests.cli.command_line import CommandLine


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> CommandLine:
    """The command line; variables of the machine do not leak in."""
    for variable in ("LAMINAR_STORE", "LAMINAR_AUDIT_KEY", "LAMINAR_ACTOR", "LAMINAR_RUN_ID"):
        monkeypatch.delenv(variable, raising=False)
    return CommandLine(monkeypatch, capsys)


@pytest.fixture
def own_imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Undo, after a test, the imports of a program and its changes to ``sys.path``."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]
