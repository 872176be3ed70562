"""Runs a page of the documentation as a reader would: files are written, commands are run."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import Self

import psutil

DOCS = Path(__file__).parents[2] / "docs"
_BLOCK = re.compile(r"^```(\w+)(?: title=\"(.+?)\")?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_END = "@@@ end of block"
_COMMANDS_S_MAX = 900
_COMMENT = "# Not run here"


@dataclass(frozen=True)
class Block:
    """A code block: its language, the file that it is to become, and its text."""

    language: str
    title: str | None
    text: str


def blocks(page: str) -> list[Block]:
    """All code blocks of a page in ``docs``, in order."""
    found = _BLOCK.findall((DOCS / page).read_text())
    return [Block(language, title or None, text) for language, title, text in found]


def steps(page: str) -> Iterator[tuple[Block, str]]:
    """Blocks to write or to run, each with the output that the page shows behind it."""
    found = blocks(page)
    for block, behind in zip(found, [*found[1:], None], strict=True):
        if block.language != "text":
            yield block, behind.text if behind and behind.language == "text" else ""


def missing_lines(shown: str, printed: str) -> list[str]:
    """Lines of ``shown`` that ``printed`` lacks; numbers may differ, … stands for anything."""
    actual = [_flat(line) for line in printed.splitlines()]
    return [
        line
        for line in shown.splitlines()
        if line.strip(" …") and not any(_pattern(line).fullmatch(one) for one in actual)
    ]


def _flat(line: str) -> str:
    return " ".join(_NUMBER.sub("9", line).split())


def _pattern(line: str) -> re.Pattern[str]:
    return re.compile(".*".join(re.escape(part) for part in _flat(line).split("…")))


class Reader:
    """Follows a page in a folder, with one shell from the first command to the last."""

    def __init__(self, folder: Path) -> None:
        place = Path(sys.executable).parent
        self._shell = subprocess.Popen(
            ["bash"],
            cwd=folder,
            env={
                **os.environ,
                "PATH": f"{place}{os.pathsep}{os.environ['PATH']}",
                "DAGSTER_DISABLE_TELEMETRY": "1",
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._shell.pid, signal.SIGKILL)
        self._shell.communicate()

    def folder(self) -> Path:
        """The folder in which the shell is now."""
        return Path(psutil.Process(self._shell.pid).cwd())

    def write_files(self, page: str) -> None:
        """Write the files of a page, and run none of its commands."""
        for block in blocks(page):
            if block.title is not None:
                (self.folder() / block.title).write_text(block.text)

    def follow(self, page: str, after: Mapping[str, Callable[[], None]] | None = None) -> str:
        """Do everything that the page says, and return everything that was printed.

        ``after`` has what a reader does elsewhere, once a file has this title.

        Raises:
            AssertionError: a command failed, or did not print what the page shows.
        """
        printed = ""
        for block, shown in steps(page):
            if block.title is not None:
                (self.folder() / block.title).write_text(block.text)
                if after and block.title in after:
                    after[block.title]()
            elif block.language == "bash" and not block.text.startswith(_COMMENT):
                answer, code = self.run(block.text)
                assert code == 0, f"{page}: exit code {code} of\n{block.text}\n{answer}"
                missing = missing_lines(shown, answer)
                assert not missing, f"{page}: not printed: {missing}\nbut:\n{answer}"
                printed += answer
        return printed

    def run(self, commands: str) -> tuple[str, int]:
        """Run commands in the shell; what they print, and the exit code of the last one."""
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        # A page waits in a loop for a job; if the job failed, the loop never ends.
        watchdog = Timer(_COMMANDS_S_MAX, os.killpg, (self._shell.pid, signal.SIGKILL))
        watchdog.start()
        self._shell.stdin.write(f"{commands}\necho '{_END}' $?\n")
        self._shell.stdin.flush()
        lines = []
        try:
            for line in self._shell.stdout:
                if line.startswith(_END):
                    return "".join(lines), int(line.split()[-1])
                lines.append(line)
        finally:
            watchdog.cancel()
        raise AssertionError(f"the shell ended while it ran\n{commands}\n{''.join(lines)}")
