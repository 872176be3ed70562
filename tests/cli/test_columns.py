from io import StringIO

from rich.console import Console

from laminar_core.cli.columns import Side, lines_of

SIDES: tuple[Side, Side] = ("right", "left")
TABLE = [("id", "why"), ("7", "one of the last three"), ("12", "")]


def console(width: int) -> Console:
    return Console(width=width, file=StringIO())


def test_columns_are_as_wide_as_their_widest_cells() -> None:
    assert lines_of(TABLE, SIDES, console(80)) == [
        "id  why",
        " 7  one of the last three",
        "12",
    ]


def test_wide_characters_take_two_places() -> None:
    table = [("name", "n"), ("支払", "1")]
    assert lines_of(table, ("left", "right"), console(80)) == ["name  n", "支払  1"]


def test_the_last_column_is_broken_between_words_and_goes_on_below_itself() -> None:
    table = [("id", "why"), ("7", "kept because it is the newest of its hour")]
    assert lines_of(table, SIDES, console(28)) == [
        "id  why",
        " 7  kept because it is the",
        "    newest of its hour",
    ]


def test_what_does_not_fit_and_cells_of_several_lines_are_left_to_others() -> None:
    assert lines_of(TABLE, SIDES, console(10)) is None
    assert lines_of([("why",), ("two\nlines",)], ("left",), console(80)) is None


def test_cells_are_coloured_with_their_padding() -> None:
    def coloured(cell: str, text: str) -> str:
        return f"<{text}>" if cell == "7" else text

    assert lines_of(TABLE, SIDES, console(80), coloured) == [
        "id  why",
        "< 7>  one of the last three",
        "12",
    ]
