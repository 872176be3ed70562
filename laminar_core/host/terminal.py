"""Text for people: nothing in it is obeyed by the terminal that shows it."""

from unicodedata import bidirectional, category

import click

_CONTROLS = {"Cc", "Cs", "Zl", "Zp"}
"""Categories of Unicode that have no letters: controls, halves of pairs, separators of lines."""

_DIRECTIONS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
"""Letters that change the direction of those behind them."""


def say(text: str = "", *, err: bool = False) -> None:
    """Print lines for people on standard output, or on standard error.

    They may have names, reasons and values that anybody has written.

    Raises:
        OSError: it cannot be written.
    """
    click.echo(escaped(text), err=err)


def escaped(text: str) -> str:
    r"""Return the text with everything escaped that a terminal would obey; lines stay.

    >>> escaped("paid\x1b[2J")
    'paid\\x1b[2J'
    """
    return "\n".join(
        line if line.isprintable() else "".join(map(_escaped, line)) for line in text.split("\n")
    )


def _escaped(letter: str) -> str:
    is_control = category(letter) in _CONTROLS or bidirectional(letter) in _DIRECTIONS
    return letter.encode("unicode_escape").decode() if is_control else letter
