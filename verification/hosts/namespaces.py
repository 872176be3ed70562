"""A set of Linux namespaces that ends with the process that made it."""

import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

import psutil

from verification.hosts.leftovers import mark_of

NETWORK = "net"
ALL = (NETWORK, "uts", "ipc", "mount", "pid")
_UNSHARE = ("unshare", "--fork", "--kill-child=KILL")
_READY = "ready"
_THEN_WAIT = "\necho ready\nwhile read -r _; do :; done\n"
"""The pipe closes when its owner ends, also by ``kill -9``; then this first process ends, and with
it everything that shares its process table."""
_FLAGS = {"pid": ("--pid", "--mount-proc"), "mount": ("--mount",)}


class Namespaces:
    """New namespaces and their first process, which runs ``script`` and then waits for its owner.

    Raises:
        RuntimeError: the script failed.
    """

    def __init__(self, name: str, kinds: Sequence[str], script: str = "") -> None:
        self.kinds = tuple(kinds)
        flags = [flag for kind in kinds for flag in _FLAGS.get(kind, (f"--{kind}",))]
        self._unshare = subprocess.Popen(  # noqa: S603 - its own words
            [*_UNSHARE, *flags, "--", "bash", "-euc", script + _THEN_WAIT, mark_of(name)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
        )  # fmt: skip
        said = _line_of(self._unshare.stdout)
        if said != _READY:
            self.end()
            raise RuntimeError(f"no namespaces for {name}: {said}")
        self.pid = _child_of(self._unshare.pid)
        """The first process, as the machine numbers it."""

    @property
    def is_up(self) -> bool:
        """Whether the first process runs."""
        return self._unshare.poll() is None

    def start(
        self,
        command: Sequence[str],
        log: int | IO[bytes],
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> "subprocess.Popen[bytes]":
        """Start a program inside, in a session of its own; both its outputs go to ``log``.

        The process that is returned is ``nsenter``, which ends as the program does.
        """
        into = [] if folder is None else ["env", "-C", str(folder)]
        return subprocess.Popen(  # noqa: S603 - its own words
            [*self._entry(), *into, *command],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment,
            start_new_session=True,
        )  # fmt: skip

    def run(self, *command: str, lines: str = "") -> str:
        """Run a program inside, with ``lines`` as its input, and return what it printed.

        Raises:
            subprocess.CalledProcessError: it failed.
        """
        return subprocess.run(  # noqa: S603 - its own words
            [*self._entry(), *command], input=lines, capture_output=True, text=True, check=True
        ).stdout

    def processes(self) -> list[int]:
        """Return every process inside but the first, as the machine numbers them."""
        own = _process_table_of(self.pid)
        numbers = [int(p.name) for p in Path("/proc").iterdir() if p.name.isdecimal()]
        return [n for n in numbers if n != self.pid and own and _process_table_of(n) == own]

    def end(self) -> None:
        """Kill everything inside that shares the process table; nothing if that has happened."""
        self._unshare.kill()
        self._unshare.wait()
        for pipe in (self._unshare.stdin, self._unshare.stdout):
            assert pipe is not None
            pipe.close()

    def _entry(self) -> list[str]:
        return ["nsenter", f"--target={self.pid}", *(f"--{kind}" for kind in self.kinds), "--"]


def _process_table_of(pid: int) -> str:
    with suppress(OSError):
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    return ""


def _line_of(pipe: IO[str] | None) -> str:
    assert pipe is not None
    return pipe.readline().strip()


def _child_of(pid: int) -> int:
    return psutil.Process(pid).children()[0].pid
