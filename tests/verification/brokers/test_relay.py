"""The relay, a job that kills are tried on: how its driver says what happens."""

import io
import sys

import pytest

from verification.brokers.relay import print_line


class Calls(io.StringIO):
    """Standard output that another thread may use between any two calls."""

    def write(self, text: str) -> int:
        return super().write(f"{text}<another thread>")


def test_a_line_and_its_end_stay_together(monkeypatch: pytest.MonkeyPatch) -> None:
    out = Calls()
    monkeypatch.setattr(sys, "stdout", out)
    print_line('{"event":"progress"}')
    assert out.getvalue() == '{"event":"progress"}\n<another thread>'
