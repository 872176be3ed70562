"""One host: its boot, its programs, and what may become of it."""

import os
import shlex
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from verification.hosts.namespaces import ALL, Namespaces

_SYSTEM_TMP = Path("/tmp")  # noqa: S108 - each host gets its own
_END_SECONDS_MAX = 20


@dataclass(frozen=True, slots=True)
class Place:
    """The folders that a host has, besides those of the machine."""

    folder: Path
    """For the host itself; on no other host is there anything in it."""
    names: Path
    """Its ``/etc/hosts``."""
    shared: tuple[Path, ...]
    """Folders that stay visible although ``/tmp`` is the host's own."""
    private: tuple[Path, ...] = ()
    """Folders that each host has, every one with contents of its own."""


class Host:
    """A host that can be booted, and lose its power; ``network.py`` connects it."""

    def __init__(self, name: str, address: str, place: Place) -> None:
        self.name = name
        self.address = address
        self._place = place
        self._space: Namespaces | None = None
        self._started: list[subprocess.Popen[bytes]] = []

    @property
    def is_up(self) -> bool:
        """Whether it has power."""
        return self._space is not None and self._space.is_up

    @property
    def space(self) -> Namespaces:
        """Return its namespaces; it must have power."""
        assert self._space is not None, f"{self.name} has no power"
        return self._space

    def boot(self) -> None:
        """Give it power; it has no programs then, and an empty ``/tmp``."""
        self._place.folder.mkdir(parents=True, exist_ok=True)
        self._space = Namespaces(self.name, ALL, boot_script(self.name, self._place))

    def start(
        self,
        *command: str,
        log: Path,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> "subprocess.Popen[bytes]":
        """Start a program; what it prints is appended to ``log``."""
        with log.open("ab") as output:
            started = self.space.start(command, output, environment, folder)
        self._started.append(started)
        return started

    def run(self, *command: str) -> str:
        """Run a program to its end and return what it printed.

        Raises:
            subprocess.CalledProcessError: it failed.
        """
        return self.space.run(*command)

    def freeze(self) -> None:
        """Stop all its processes; its kernel still acknowledges what arrives."""
        stopped: set[int] = set()
        while new := set(self.space.processes()) - stopped:
            _send(new, signal.SIGSTOP)
            stopped |= new

    def thaw(self) -> None:
        """Let its processes go on."""
        _send(self.space.processes(), signal.SIGCONT)
        # The program that entered the host for us has stopped with its child.
        _send([p.pid for p in self._started if p.poll() is None], signal.SIGCONT)

    def kill(self, *words: str) -> list[int]:
        """Kill each process whose command line has all ``words``; return them."""
        found = [pid for pid in self.space.processes() if _has(pid, words)]
        _send(found, signal.SIGKILL)
        return found

    def end(self) -> None:
        """Kill everything on it. Cut its link first if others are to hear nothing of that."""
        if self._space is not None:
            self._space.end()
        _send([p.pid for p in self._started if p.poll() is None], signal.SIGKILL)
        for started in self._started:
            started.wait(_END_SECONDS_MAX)
        self._started.clear()


def boot_script(name: str, place: Place) -> str:
    """Return what the first process of a host does: its name, its ``/tmp``, its folders."""
    stage = place.folder / "tmp"
    lines = [f"echo {shlex.quote(name)} >/proc/sys/kernel/hostname", "ip link set lo up"]
    lines += [_bind(place.names, Path("/etc/hosts"))]
    lines += ["if [ -e /etc/resolv.conf ]; then mount --bind /dev/null /etc/resolv.conf; fi"]
    lines += [f"mkdir -p {_quoted(p)}; {_empty(p)}" for p in (stage, *place.private)]
    # A mount over /tmp hides what is in it: what is shared is bound into the new one before.
    for kept in _within_tmp(place.shared):
        inside = stage / kept.relative_to(_SYSTEM_TMP)
        lines += [f"mkdir -p {_quoted(inside)}", f"mount --rbind {_quoted(kept)} {_quoted(inside)}"]
    lines += [f"mount --rbind {_quoted(stage)} {_SYSTEM_TMP}"]
    return "\n".join(lines)


def _within_tmp(folders: Sequence[Path]) -> list[Path]:
    inside = {folder.resolve() for folder in folders if folder.resolve().is_relative_to("/tmp")}  # noqa: S108
    return sorted(f for f in inside if not any(f != g and f.is_relative_to(g) for g in inside))


def _bind(source: Path, target: Path) -> str:
    return f"mount --bind {_quoted(source)} {_quoted(target)}"


def _empty(folder: Path) -> str:
    return f"mount -t tmpfs -o mode=1777 tmpfs {_quoted(folder)}"


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))


def _has(pid: int, words: Sequence[str]) -> bool:
    with suppress(psutil.Error):
        command = " ".join(psutil.Process(pid).cmdline())
        return all(word in command for word in words)
    return False


def _send(pids: Sequence[int] | set[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
