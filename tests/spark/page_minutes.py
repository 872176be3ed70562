# ruff: noqa: T201
"""How many minutes a page takes: it is followed word for word, and each command is measured.

python -m tests.spark.page_minutes tutorial.md
"""

import re
import sys
import tempfile
from pathlib import Path

from laminar_core.host.clock import SystemClock
from tests.spark.guides import DOCS, Reader, blocks

_WORDS_PER_MINUTE = 200
"""How fast people read such a text."""

_BLOCK = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_SHOWN = 60


class Stopwatch(Reader):
    """A reader who notes how long each command took."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.clock = SystemClock()
        self.taken_ms: list[tuple[str, float]] = []

    def run(self, commands: str) -> tuple[str, int]:
        begun_ms = self.clock.monotonic_ms()
        answer = super().run(commands)
        self.taken_ms.append((commands, self.clock.monotonic_ms() - begun_ms))
        return answer


def words_to_read(page: str) -> int:
    """Count the words of a page outside its code blocks."""
    return len(_BLOCK.sub("", (DOCS / page).read_text()).split())


def lines(page: str, taken_ms: list[tuple[str, float]]) -> list[str]:
    """Return what to print: a line for each command, the files to save, and the sum."""
    shown = [f"{ms / 1000:7.1f} s  {text.splitlines()[0][:_SHOWN]}" for text, ms in taken_ms]
    machine = sum(ms for _, ms in taken_ms) / 60_000
    words, files = words_to_read(page), sum(block.title is not None for block in blocks(page))
    reading = words / _WORDS_PER_MINUTE
    told = f"{page}: commands {machine:.1f} minutes, {words} words to read {reading:.1f} minutes"
    return [*shown, f"{told}, {files} files to save; together {machine + reading:.1f} minutes"]


def main(page: str) -> None:
    """Follow the page in a new folder."""
    with tempfile.TemporaryDirectory() as folder, Stopwatch(Path(folder)) as reader:
        reader.follow(page)
        print("\n".join(lines(page, reader.taken_ms)))


if __name__ == "__main__":
    main(*sys.argv[1:])
