"""Tables on terminals and in files."""

import sys

import pytest

from laminar_core.cli.tables import print_table


def test_numbers_are_on_the_right_and_lines_end_with_their_last_cell(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_table(("id", "why"), [("7", "too old"), ("10000", "")])
    assert capsys.readouterr().out == "   id  why\n    7  too old\n10000\n"


def test_wide_letters_take_two_columns(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "why"), [("日本", "x"), ("abcdef", "y")])
    assert capsys.readouterr().out == "name    why\n日本    x\nabcdef  y\n"


def test_a_row_of_several_lines_is_printed_all_the_same(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_table(("name", "why"), [("a", "one\ntwo")])
    assert capsys.readouterr().out.split() == ["name", "why", "a", "one", "two"]


def test_the_last_column_is_broken_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("NO_COLOR", "1")
    print_table(("name", "why"), [("a", "one two three four five six seven eight nine")])
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("a     one two")
    assert lines[2].startswith("      ")
    assert max(map(len, lines)) <= 40


def test_an_outcome_has_its_colour_on_a_terminal_and_a_word_inside_a_sentence_has_none(
    monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    print_table(("outcome", "why"), [("failed", "failed to write"), ("completed", "")])
    said = capsys.readouterr().out
    assert said.count("\x1b[31m") == 1
    assert said.count("\x1b[32m") == 1
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("FORCE_COLOR")
    print_table(("outcome",), [("failed",)])
    assert "\x1b[31m" not in capsys.readouterr().out


def test_what_a_terminal_would_obey_is_shown_instead(capsys: pytest.CaptureFixture[str]) -> None:
    """Goal: whoever may write a reason into the store cannot clear the screen of its reader."""
    print_table(("name", "why"), [("a\x1b[2J", "\x1b]0;owned\a gone\r\u202e")])
    said = capsys.readouterr().out
    assert not {"\x1b", "\a", "\r", "\u202e"} & set(said)
    assert "a\\x1b[2J" in said


@pytest.mark.parametrize("text", ["panne\xa0: réseau", "修正\u3000再起動", "\u200d👩"])
def test_letters_of_other_languages_are_shown_as_they_are(
    capsys: pytest.CaptureFixture[str], text: str
) -> None:
    print_table(("why",), [(text,)])
    assert text in capsys.readouterr().out
