"""The only place that creates sockets, so that every socket has the same bounds.

A stranger who reaches a port can connect and send before presenting a key. So every resource that a
stranger can use up is bounded: the length of one part of a message, the time for a handshake, the
number of connections (``doors.py``). Without a limit libzmq trusts any length that it reads, even
before the handshake, and it accepts connections until the process has no descriptors left.

A longer message is sent in several parts, which arrive together or not at all.
"""

import os
import resource
import socket
from collections.abc import Sequence
from contextlib import suppress

import psutil
import zmq

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.link.wire import Buffer

PART_BYTES_MAX = 4 << 20
"""Longest part of a message: an exchange of 131,072 rows of 32 bytes fits in one."""

ENCRYPTION_BYTES = 1024
"""More than encryption and framing add to a part."""

HANDSHAKE_MAX_MS = 10_000
"""A connection that is not through its handshake by then is closed."""

HEARTBEAT_INTERVAL_MS = 5_000
HEARTBEAT_TIMEOUT_MS = 25_000
"""A link without any sign of life for so long is closed. With the interval this is as long as the
coordinator waits for a worker, so a process that stands still loses nothing that it would keep
otherwise. libzmq answers in a thread of its own: a busy worker is not a silent one."""

LINGER_MS = 1000
"""How long a closing socket tries to send its last messages."""

DESCRIPTORS_WANTED = (65_536, 10_240)
"""Processes start with 1,024 in most places (on macOS with 256), and may have many more if they
ask. macOS refuses the first of these numbers where the kernel is set to fewer per process."""

_UNLIMITED = 0  # Channel credit bounds what is under way; the sockets must never refuse.
_SPARE_DESCRIPTORS = 128  # For state files, the store, and what user code opens.
_SPARE_SOCKETS = 64


def open_context(peers: int) -> "zmq.Context[zmq.Socket[bytes]]":
    """Make a context with room for a socket to each peer."""
    context = zmq.Context()
    context.set(zmq.MAX_SOCKETS, max(context.get(zmq.MAX_SOCKETS), peers + _SPARE_SOCKETS))
    return context


def open_socket(
    context: "zmq.Context[zmq.Socket[bytes]]", kind: int, *, network: bool
) -> "zmq.Socket[bytes]":
    """Make a socket with bounds; on a ``network`` it also notices a silent link."""
    opened = context.socket(kind)
    opened.setsockopt(zmq.SNDHWM, _UNLIMITED)
    opened.setsockopt(zmq.RCVHWM, _UNLIMITED)
    opened.setsockopt(zmq.LINGER, LINGER_MS)
    opened.setsockopt(zmq.MAXMSGSIZE, PART_BYTES_MAX + ENCRYPTION_BYTES)
    opened.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MAX_MS)
    if network:
        opened.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_INTERVAL_MS)
        opened.setsockopt(zmq.HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT_MS)
        opened.setsockopt(zmq.HEARTBEAT_TTL, HEARTBEAT_INTERVAL_MS + HEARTBEAT_TIMEOUT_MS)
    return opened


def listen_on(host: str) -> socket.socket:
    """Listen on this host's own address only, on a free port.

    Raises:
        ConfigurationError: ``host`` is no address of this machine.
    """
    listening = socket.socket()
    try:
        listening.bind((socket.gethostbyname(host), 0))
        listening.listen()
        # One that has gone again before it is accepted must not block the thread that accepts.
        listening.settimeout(0)
    except OSError as error:
        listening.close()
        raise ConfigurationError(
            ErrorCode.INVALID_OPTION,
            f"cannot listen on {host} ({error}): set spark.driver.host, or the executors' host "
            "names, to addresses of their machines",
        ) from error
    return listening


def require_descriptors(connections: int) -> None:
    """Verify that the process may open so many files more, and let it open many.

    Raises:
        ConfigurationError: it may not.
    """
    soft = _raised_limit()
    needed = psutil.Process().num_fds() + connections + _SPARE_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < needed:
        raise ConfigurationError(
            ErrorCode.INVALID_OPTION,
            f"process {os.getpid()} needs about {needed} open files for its connections and may "
            f"have {soft}: raise the limit (ulimit -n), or run with fewer workers",
        )


def _raised_limit() -> int:
    """Raise this process's limit of open files as far as is wanted and allowed; return it."""
    for wanted in DESCRIPTORS_WANTED:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        aim = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        if soft == resource.RLIM_INFINITY or soft >= aim:
            return soft
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (aim, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def parts_of(message: Buffer) -> Sequence[Buffer]:
    """Cut a message into parts that every socket takes; they share its memory."""
    if len(message) <= PART_BYTES_MAX:
        return (message,)
    whole = memoryview(message).cast("B")
    return [whole[at : at + PART_BYTES_MAX] for at in range(0, len(whole), PART_BYTES_MAX)]


def whole_of(parts: Sequence[Buffer]) -> Buffer:
    """Put the parts of a message together again; a single part is not copied."""
    return parts[0] if len(parts) == 1 else b"".join(parts)
