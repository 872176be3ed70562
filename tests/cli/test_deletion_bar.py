"""The bar of a deletion: seen on a terminal, and silent elsewhere."""

import io
import sys

import pytest

from laminar_core.cli.deletion_bar import deletion_bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("stream", "shown"), [(Terminal(), True), (io.StringIO(), False)])
def test_what_is_done_is_shown_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, shown: bool
) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    out = Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setenv("TERM", "xterm")
    with deletion_bar() as progress:
        progress(1, 3)
        progress(3, 3)
    assert ("3/3" in out.getvalue()) is shown
