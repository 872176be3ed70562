"""A supervised driver process: it is stopped when this process dies, and its output is read."""

import os
import selectors
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from laminar_core.host.clock import Clock
from laminar_core.resources.drivers.session import DriverSession

_PIPE_BYTES_MAX = 1 << 20
"""No pipe holds more, so one read takes all that is there."""

_LINE_BYTES_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class Line:
    """A line that the driver wrote, without its end."""

    stream: Literal["stdout", "stderr"]
    text: str


class DriverProcess(DriverSession):
    """Started by the constructor; ``close`` must be called in any case."""

    def __init__(
        self, command: Sequence[str], clock: Clock, env: Mapping[str, str] | None = None
    ) -> None:
        """Start ``command``; its first part is the path of a program."""
        guard = [sys.executable, "-I", "-S", str(Path(__file__).with_name("guard.py"))]
        process = subprocess.Popen(  # noqa: S603 - the command is the caller's own
            [*guard, str(os.getpid()), *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            start_new_session=True,
        )
        super().__init__(process, clock)
        self._unfinished: dict[str, bytes] = {}
        self._selector = selectors.DefaultSelector()
        for stream in ("stdout", "stderr"):
            self._selector.register(getattr(process, stream), selectors.EVENT_READ, stream)

    def read_lines(self, timeout_s: float) -> list[Line]:
        """Return complete lines written since the last call; wait for some up to ``timeout_s``."""
        lines: list[Line] = []
        for key, _ in self._selector.select(timeout_s):
            data = os.read(key.fd, _PIPE_BYTES_MAX)
            if not data:
                self._selector.unregister(key.fileobj)
            *complete, rest = (self._unfinished.get(key.data, b"") + data).split(b"\n")
            self._unfinished[key.data] = rest[-_LINE_BYTES_MAX:]
            lines += [Line(key.data, text.decode(errors="replace")) for text in complete]
        return lines

    def close(self, grace_s: float) -> int:
        """Kill what is left of the session and return the exit code; see ``DriverSession``."""
        exit_code = super().close(grace_s)
        self._selector.close()
        for pipe in (self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()
        return exit_code
