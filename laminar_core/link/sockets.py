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
from typing import Any

import psutil
import zmq

from laminar_core.errors import ConfigurationError, ErrorCode

# pyarrow ships no types, and is not needed here: Any stands for its Buffer.
Buffer = bytes | memoryview | Any

PART_BYTES_MAX = 4 << 20
"""Longest part of a message: an exchange of 131,072 rows of 32 bytes fits in one."""

ENCRYPTION_BYTES = 1024
"""More than encryption and framing add to a part."""

HANDSHAKE_MAX_MS = 10_000
"""A connection that is not through its handshake by then is closed."""

HEARTBEAT_INTERVAL_MS = 2_000
HEARTBEAT_TIMEOUT_MS = 6_000
"""A link without any sign of life for as long as both together is closed, and connected again.
Nothing is lost by that: frames and messages are sent again. libzmq answers in a thread of its own,
so a busy worker is not a silent one."""

CONNECT_MAX_MS = 2_000
"""A request for a connection that gets no answer is given up and made again. The kernel would
repeat it at intervals that double, and so connect long after a cut is over."""

KEEPALIVE_S = 30
"""Connections that are still in their handshake send no heartbeats. The kernel asks for them, and
firewalls that forget quiet connections are reminded."""

LINGER_MS = 1000
"""How long a closing socket tries to send its last messages."""

DESCRIPTORS_WANTED = (65_536, 10_240)
"""Processes start with 1,024 in most places (on macOS with 256), and may have many more if they
ask. macOS refuses the first of these numbers where the kernel is set to fewer per process."""

_UNLIMITED = 0  # Channel credit bounds what is under way; the sockets must never refuse.
SPARE_DESCRIPTORS = 128
"""Files for state, the store, and what user code opens."""
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
        opened.setsockopt(zmq.CONNECT_TIMEOUT, CONNECT_MAX_MS)
        opened.setsockopt(zmq.TCP_KEEPALIVE, 1)
        opened.setsockopt(zmq.TCP_KEEPALIVE_IDLE, KEEPALIVE_S)
        opened.setsockopt(zmq.TCP_KEEPALIVE_INTVL, KEEPALIVE_S)
    return opened


def open_local() -> socket.socket:
    """Make a unix socket for datagrams: one that listens has no connections to bound."""
    return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)


def listen_at(address: str, port: int) -> socket.socket:
    """Listen at one address of this host, IPv4 or IPv6; with port 0 the kernel chooses.

    Raises:
        OSError: it is no address of this machine, or the port is in use.
    """
    listening = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    try:
        # Connections that ended a moment ago do not block a port of a range. One at which
        # somebody listens stays blocked.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((address, port))
        listening.listen()
        # One that has gone again before it is accepted must not block the thread that accepts.
        listening.settimeout(0)
    except OSError:
        listening.close()
        raise
    return listening


def require_descriptors(connections: int) -> None:
    """Verify that the process may open so many files more, and let it open many.

    Raises:
        ConfigurationError: it may not.
    """
    soft = _raised_limit()
    needed = psutil.Process().num_fds() + connections + SPARE_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < needed:
        raise ConfigurationError(
            ErrorCode.INVALID_OPTION,
            f"process {os.getpid()} needs about {needed} open files for its connections and may "
            f"have {soft}: raise the limit (ulimit -n), or run with fewer workers",
        )


def open_files_max() -> int | None:
    """Return how many files this process may have open; None: any number."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return None if soft == resource.RLIM_INFINITY else soft


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
