"""The bar of a deletion: seen on a terminal, and silent elsewhere."""

import io
import sys

import pytest

from laminar_core.cli.deletion_bar import deletion_bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("stream", "shown"), [(Terminal(), 1), (io.StringIO(), 0)])
def test_what_is_done_is_shown_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, shown: int
) -> None:
    output = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(sys, "stdout", output)
    monkeypatch.setenv("TERM", "xterm")
    with deletion_bar() as progress:
        progress(3, 3)
    assert stream.getvalue().count("3/3") == shown
    assert output.getvalue() == ""
