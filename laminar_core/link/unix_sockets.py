"""Unix sockets in private directories, and the proof that another worker can be reached by one.

A name or an address does not show that two workers share a host: containers of different hosts may
have the same ones, and containers of one host need not share a file system. So a worker binds a
second socket, which carries nothing, under a random name in its private directory. A peer that can
connect to it shares the kernel and the directory with it: the kernel looks for a socket that is
open under this name, so one seen through a network file system refuses, and so does one that was
left by a dead process or copied with an image. Nothing has to be compared, and a peer that cannot
connect uses the network.
"""

import os
import secrets
import stat
import tempfile
from contextlib import suppress
from typing import Self

import zmq
from pydantic import BaseModel, ConfigDict

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.host.private_folders import PrivateFolder, temporary_root
from laminar_core.link.doors import Door
from laminar_core.link.sockets import open_local, open_socket
from laminar_core.protocol.links import Connections

SOCKET_DIRECTORY_LENGTH_MAX = 50
"""Longest temporary directory under which the paths of unix sockets stay short enough."""

_PROOF_BYTES = 6
"""Random bytes in the name of the proof; the directory's own name has eight random letters."""


class NearEndpoint(BaseModel):
    """Where a worker receives data of workers on its host."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    directory: str
    proof: str
    """Name of the socket that shows who shares the host."""

    @property
    def endpoint(self) -> str:
        """The endpoint of the socket that takes frames."""
        return f"ipc://{self.directory}/data"

    def is_here(self) -> bool:
        """Return whether this process can reach the sockets of that directory.

        The directory must be this user's own: another user of this host could make one of the same
        name if the worker is on another host.
        """
        try:
            found = os.lstat(self.directory)
            if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) != stat.S_IRWXU:
                return False
            with open_local() as trial:
                trial.connect(f"{self.directory}/{self.proof}")
        except (OSError, ValueError):  # A path may be too long here, or have a zero byte.
            return False
        return True


class NearSocket:
    """Takes frames of workers on the same host, until ``close``."""

    def __init__(
        self, context: "zmq.Context[zmq.Socket[bytes]]", peers: int, folder: PrivateFolder
    ) -> None:
        self._folder = folder
        self.at = NearEndpoint(directory=str(folder.path), proof=secrets.token_hex(_PROOF_BYTES))
        self._proof = open_local()
        self.socket = open_socket(context, zmq.PULL, network=False)
        self._door = Door(context, self.socket, peers, "near")
        try:
            self._door.listen_at(f"{folder.path}/data")
            # Last: whoever finds the proof can connect.
            self._proof.bind(f"{folder.path}/{self.at.proof}")
        except (OSError, zmq.ZMQError):
            self.close()
            raise

    @classmethod
    def open(cls, context: "zmq.Context[zmq.Socket[bytes]]", peers: int) -> Self | None:
        """Listen in a directory of its own; return None if none can be made here."""
        with suppress(ConfigurationError, OSError, zmq.ZMQError):
            return cls(context, peers, private_directory())
        return None

    def connections(self) -> Connections:
        """Return the connections so far."""
        return self._door.connections()

    def close(self) -> None:
        """Close the sockets and remove the directory."""
        self._door.close()
        self.socket.close()
        self._proof.close()
        self._folder.close()


def private_directory() -> PrivateFolder:
    """Make a short directory: the path of a unix socket may have 107 bytes at most, on macOS 103.

    Raises:
        ConfigurationError: it cannot be made.
    """
    short_enough = len(tempfile.gettempdir()) <= SOCKET_DIRECTORY_LENGTH_MAX
    root = temporary_root(None if short_enough else "/tmp")  # noqa: S108 - only ours can be opened
    try:
        return PrivateFolder.open(root, "sockets-")
    except OSError as error:
        raise ConfigurationError(
            ErrorCode.INVALID_OPTION,
            f"no folder for sockets can be made in {root} ({error.strerror}): set TMPDIR to a "
            "folder of your own",
        ) from error
