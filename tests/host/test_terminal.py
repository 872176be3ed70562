"""Text for people."""

import pytest

from laminar_core.host.terminal import escaped, say


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("payments of 日本, 5 µs\n  and more\n", "payments of 日本, 5 µs\n  and more\n"),
        ("\x1b]0;owned\a", "\\x1b]0;owned\\x07"),
        ("one\rtwo\ttabs\x85", "one\\rtwo\\ttabs\\x85"),
        ("\u202egnp.exe\u2066", "\\u202egnp.exe\\u2066"),
        ("a\u2028b\ud800", "a\\u2028b\\ud800"),
    ],
)
def test_what_a_terminal_would_obey_is_escaped(text: str, shown: str) -> None:
    assert escaped(text) == shown


def test_lines_are_printed_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    say("paid\x1b[2J\nand more")
    say()
    say("lost\x07", err=True)
    assert capsys.readouterr() == ("paid\\x1b[2J\nand more\n\n", "lost\\x07\n")
