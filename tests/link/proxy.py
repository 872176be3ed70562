"""A wire that can be cut: it carries connections to a socket, and loses bytes on demand."""

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress

HOST = "127.0.0.1"
RESET = struct.pack("ii", 1, 0)
"""For SO_LINGER: closing sends a reset."""

Swallow = Callable[[int], bool | None]
"""Decides the fate of a piece that goes to the port, by its length: False carries it, True loses
it, and None loses it and resets the connection.
"""


class Proxy:
    """Listens on a port of its own and carries each connection to ``endpoint``.

    With ``path`` it listens at a unix socket there, and ``endpoint`` has to be one, too.
    """

    def __init__(self, endpoint: str, swallow: Swallow = lambda _: False, path: str = "") -> None:
        self._swallow = swallow
        self._to = endpoint
        if path:
            self._listening = socket.socket(socket.AF_UNIX)
            self._listening.bind(path)
            self._listening.listen()
        else:
            self._listening = socket.create_server((HOST, 0))
        self._ends: list[socket.socket] = []
        self.accepted = 0
        """Connections so far."""
        port = "" if path else self._listening.getsockname()[1]
        self.endpoint = f"ipc://{path}" if path else f"tcp://{HOST}:{port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def reset(self) -> None:
        """Reset every connection that it carries."""
        ends, self._ends = self._ends, []
        for end in ends:
            with suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                end.shutdown(socket.SHUT_RD)  # Whoever reads from it in a thread stops.
            end.close()

    def close(self) -> None:
        """Carry nothing any more."""
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.reset()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                self.accepted += 1
                far = self._far()
                self._ends += [near, far]
                threading.Thread(target=self._carry, args=(near, far, True), daemon=True).start()
                threading.Thread(target=self._carry, args=(far, near, False), daemon=True).start()

    def _far(self) -> socket.socket:
        scheme, _, rest = self._to.partition("://")
        if scheme == "ipc":
            far = socket.socket(socket.AF_UNIX)
            far.connect(rest)
            return far
        return socket.create_connection((HOST, int(rest.rpartition(":")[2])))

    def _carry(self, source: socket.socket, target: socket.socket, to_port: bool) -> None:  # noqa: FBT001
        with suppress(OSError):
            while piece := source.recv(1 << 16):
                lost = self._swallow(len(piece)) if to_port else False
                if lost is None:
                    self.reset()
                    return
                if not lost:
                    target.sendall(piece)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)
