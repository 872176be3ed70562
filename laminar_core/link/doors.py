"""Listening sockets that count connections and refuse new ones while there are too many.

libzmq has no bound on the connections that it accepts. So a thread counts them and, while there are
too many, makes the kernel drop requests for further ones. Existing connections are not affected.
One that does not finish its handshake is closed after a while, and then the door opens again. A
peer that was refused tries again by itself.

A packet filter drops the requests. Newer kernels let only a privileged process attach one to a TCP
socket. Any other process demands the highest time-to-live: the kernel then drops every other packet
in the same place. A stranger on the same link who sets it is let in.

The thread needs some milliseconds to react, and in this time more connections may come than
allowed. ``require_descriptors`` makes sure that there are descriptors for them.
"""

import ctypes
import os
import select
import socket
import struct
import sys
import threading
from contextlib import suppress

import zmq
from zmq.utils.monitor import parse_monitor_message

from laminar_core.link.addresses import Listening, endpoint_of, is_ipv6
from laminar_core.link.listening import listen_on
from laminar_core.link.sockets import open_socket
from laminar_core.protocol.links import Connections

SPARE_CONNECTIONS = 32
"""Connections beyond two per peer, for old ones whose end has not been noticed."""

LOOKS_EVERY_MS = 1_000
"""How often the thread checks if no event wakes it."""

_EVENTS = zmq.EVENT_ACCEPTED | zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED
_SO_ATTACH_FILTER, _SO_DETACH_FILTER = 26, 27  # The module ``socket`` has no names for them.
_IP_MINTTL, _TTL_MAX = 21, 255  # Nor for this one: packets with less are dropped.
_IPV6_MINHOPCOUNT = 73  # The same for IPv6.
_DROP = struct.pack("HBBI", 0x06, 0, 0, 0)  # A packet filter of one instruction: return 0.


def connections_max(peers: int) -> int:
    """Return the number of connections allowed for a socket with so many peers."""
    return 2 * peers + SPARE_CONNECTIONS


class Door:
    """Opens and closes the listening end of ``server``, whose options are already set.

    Doors of one context need different names.
    """

    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        server: "zmq.Socket[bytes]",
        peers: int,
        name: str = "door",
    ) -> None:
        self._server = server
        self._most = connections_max(peers)
        self._accepted = self._established = self._closed = 0
        self._lock = threading.Lock()
        self._listening: socket.socket | None = None
        self._guard: threading.Thread | None = None
        self._stopped, self._stop = os.pipe()
        self._shut = False
        self._events = open_socket(context, zmq.PAIR, network=False)
        server.monitor(f"inproc://{name}", _EVENTS)
        self._events.connect(f"inproc://{name}")

    def listen_at(self, path: str) -> str:
        """Listen at a unix socket in a private directory; it needs no guard."""
        endpoint = f"ipc://{path}"
        self._server.bind(endpoint)
        return endpoint

    def listen_on(self, host: str, listening: Listening) -> str:
        """Listen on a free port of this host; return the endpoint for others.

        Raises:
            ConfigurationError: what it is to listen at is no address of this machine.
            JobFailedError: no port of the range is free.
        """
        self._listening = listen_on(listening.bind or host, listening.ports)
        address, port = self._listening.getsockname()[:2]
        # libzmq closes its own copy.
        self._server.setsockopt(zmq.USE_FD, os.dup(self._listening.fileno()))
        bound = endpoint_of(address, port)
        self._server.setsockopt(zmq.IPV6, is_ipv6(bound))
        self._server.bind(bound)
        self._guard = threading.Thread(target=self._watch, name="laminar-door", daemon=True)
        self._guard.start()
        return endpoint_of(listening.told(host, address), port)

    def connections(self) -> Connections:
        """Return the connections so far, including all whose messages can be received."""
        with self._lock:
            while self._events.poll(0):
                event = parse_monitor_message(self._events.recv_multipart())["event"]
                self._accepted += event == zmq.EVENT_ACCEPTED
                self._established += event == zmq.EVENT_HANDSHAKE_SUCCEEDED
                self._closed += event == zmq.EVENT_DISCONNECTED
            return Connections(self._accepted, self._established, self._closed)

    @property
    def shut(self) -> bool:
        """Whether new connections are refused."""
        return self._shut

    def close(self) -> None:
        """Release everything but the server; a second call does nothing."""
        if self._events.closed:
            return
        if self._guard is not None:
            os.write(self._stop, b"!")
            self._guard.join()
        os.close(self._stopped)
        os.close(self._stop)
        # In this order: libzmq would wait for ever for somebody who reads its events.
        with suppress(zmq.ZMQError):
            self._server.disable_monitor()
        self._events.close(linger=0)
        if self._listening is not None:
            self._listening.close()

    def _watch(self) -> None:
        poller = select.poll()
        for descriptor in (int(self._events.getsockopt(zmq.FD)), self._stopped):
            poller.register(descriptor, select.POLLIN)
        while not any(ready == self._stopped for ready, _ in poller.poll(LOOKS_EVERY_MS)):
            self._keep_out(self.connections().open >= self._most)

    def _keep_out(self, shut: bool) -> None:  # noqa: FBT001 - private, and the only argument
        """Have the kernel drop requests for connections, or let them in again."""
        if shut is self._shut or sys.platform != "linux":  # The limit of descriptors has to do.
            return
        assert self._listening is not None
        if shut:
            instruction = ctypes.create_string_buffer(_DROP)
            program = struct.pack("HL", 1, ctypes.addressof(instruction))
            try:
                self._listening.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
            except OSError:  # This process may not; what anybody may do is nearly as good.
                try:
                    self._require_ttl(self._listening, _TTL_MAX)
                except OSError:  # A kernel with neither: the limit of descriptors has to do.
                    return
        else:
            with suppress(OSError):  # There is none if none could be attached.
                self._listening.setsockopt(
                    socket.SOL_SOCKET, _SO_DETACH_FILTER, struct.pack("i", 0)
                )
            self._require_ttl(self._listening, 0)
        self._shut = shut

    @staticmethod
    def _require_ttl(listening: socket.socket, least: int) -> None:
        """Have the kernel drop packets with a smaller time-to-live."""
        if listening.family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, _IPV6_MINHOPCOUNT, least)
        else:
            listening.setsockopt(socket.IPPROTO_IP, _IP_MINTTL, least)
