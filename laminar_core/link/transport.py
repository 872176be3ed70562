"""Sockets between workers, and between a worker and the coordinator.

On one host they are unix sockets in a private directory (mode 0700). On a cluster, this holds for
frames between workers that can prove that they share a host (``unix_sockets.py``). Between hosts
they are TCP with CURVE: authenticated and encrypted, independently of Spark's own settings. The
driver creates one client key for the workers of a generation and sends it with the task, so a
process of another generation cannot even connect. Plain TCP exists for networks that are secured
otherwise, and must be requested.
"""

import math
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

import zmq
from zmq.auth.thread import ThreadAuthenticator

from laminar_core.errors import ErrorCode, FencedError, ProtocolError
from laminar_core.host.private_folders import PrivateFolder
from laminar_core.link.addresses import Listening, TransportKind, is_ipv6, reachable
from laminar_core.link.doors import Door, connections_max
from laminar_core.link.messages import Peer
from laminar_core.link.sockets import (
    Buffer,
    open_context,
    open_socket,
    parts_of,
    require_descriptors,
    whole_of,
)
from laminar_core.link.unix_sockets import NearEndpoint, NearSocket, private_directory
from laminar_core.protocol.links import Connections

CONNECTIONS_PER_WORKER = 2
"""Connections of one worker to the coordinator: messages of its loop, and heartbeats."""

RECEIVE_FRAMES_MAX = 256
"""Frames taken from the socket in one go, before the worker works again."""


def worker_connections(workers: int) -> int:
    """Return how many connections a worker may have open, of so many workers."""
    return connections_max(workers) + 2 * workers


@dataclass(frozen=True, slots=True)
class CoordinatorAddress:
    """The address and keys for the coordinator. Sent inside Spark's task, so it is not logged."""

    kind: TransportKind
    endpoint: str
    workers: int = 1
    """Number of workers."""
    directory: str = ""
    """Private directory of the unix sockets; ``ipc`` only."""
    server_key: str = ""
    worker_public_key: str = ""
    worker_secret_key: str = field(default="", repr=False)
    listening: Listening = field(default_factory=Listening)
    """Where each worker listens on its host."""


class WorkerTransport(Protocol):
    """The transport of a worker's loop; the simulator has its own implementation."""

    endpoint: str
    public_key: str
    near: NearEndpoint | None
    """Where workers of the same host can send to; None: only at ``endpoint``."""
    reorder_max: int
    """Largest number of a peer's frames that a later one may overtake; 0 keeps their order."""

    def connect_peers(self, peers: Iterable[Peer]) -> None:
        """Connect to the peers; call it before ``send``."""
        ...

    def send(self, peer: int, header: bytes, payload: Buffer) -> None:
        """Send one frame; FIFO per peer within ``reorder_max``, never blocks."""
        ...

    def receive(self) -> Iterator[tuple[Buffer, Buffer]]:
        """Yield frames that have arrived, a bounded number."""
        ...

    def connections(self) -> Connections:
        """Return the connections of peers, including all whose frames have arrived."""
        ...

    def send_control(self, message: bytes) -> None:
        """Send a message to the coordinator."""
        ...

    def send_alive(self, message: bytes) -> None:
        """Send to the coordinator from a second thread, beside everything else."""
        ...

    def receive_control(self) -> Iterator[bytes]:
        """Yield messages of the coordinator that have arrived."""
        ...

    def wait(self, timeout_ms: float) -> None:
        """Wait until a message arrives, ``wake`` is called, or the time is over."""
        ...

    def wake(self) -> None:
        """End the wait; callable from any thread."""
        ...

    def close(self) -> None:
        """Get the last messages out, within ``LINGER_MS``."""
        ...


_ANYWHERE = Listening()

_WAKE_UPS_MAX = 65_536
"""The capacity of a pipe on Linux in bytes: one read empties it."""


class WakeUp:
    """Ends a wait from any thread; does nothing once it is closed."""

    def __init__(self) -> None:
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(self._wake, False)
        self._closed = False
        # Reentrant, because a signal handler may call ``set`` in the midst of another ``set``.
        self._lock = threading.RLock()

    def set(self) -> None:
        """End the current wait, or the next one if there is none."""
        with self._lock:
            if not self._closed:  # The number may be somebody else's file by now.
                with suppress(BlockingIOError):  # It is full of earlier calls.
                    os.write(self._wake, b"!")

    def wait(self, sockets: "Iterable[zmq.Socket[bytes]]", timeout_ms: float) -> None:
        """Wait until one of ``sockets`` has a message, ``set`` is called, or the time is over."""
        poller = zmq.Poller()
        for zmq_socket in sockets:
            poller.register(zmq_socket, zmq.POLLIN)
        poller.register(self._woken, zmq.POLLIN)
        ready = dict(poller.poll(max(math.ceil(timeout_ms), 0)))
        if self._woken in ready:
            os.read(self._woken, _WAKE_UPS_MAX)

    def close(self) -> None:
        """Close the descriptor."""
        with self._lock:
            if not self._closed:
                self._closed = True
                os.close(self._woken)
                os.close(self._wake)


class CoordinatorTransport:
    """The coordinator's socket: one ROUTER, workers identify themselves by their index.

    Raises:
        ConfigurationError: ``host`` is none of this machine's addresses, or the process may not
            open as many files as there are workers.
    """

    def __init__(
        self,
        kind: TransportKind,
        host: str,
        workers: int,
        listening: Listening = _ANYWHERE,
        workers_listening: Listening = _ANYWHERE,
    ) -> None:
        self._workers = workers
        self._listening, self._workers_listening = listening, workers_listening
        connections = CONNECTIONS_PER_WORKER * workers
        if kind != "ipc":
            require_descriptors(connections_max(connections))
        self._context = open_context(workers)
        self._socket = open_socket(self._context, zmq.ROUTER, network=kind != "ipc")
        # A worker may connect again before the end of its old connection is noticed here.
        self._socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
        self._door = Door(self._context, self._socket, connections)
        self._auth: ThreadAuthenticator | None = None
        self._directory: PrivateFolder | None = None
        self._wake = WakeUp()
        try:
            self.address = self._bind(kind, host)
        except Exception:
            self.close()
            raise

    def _bind(self, kind: TransportKind, host: str) -> CoordinatorAddress:
        if kind == "ipc":
            self._directory = private_directory()
            endpoint = self._door.listen_at(f"{self._directory.path}/coordinator")
            return CoordinatorAddress(kind, endpoint, self._workers, str(self._directory.path))
        if kind == "tcp":
            return CoordinatorAddress(
                kind,
                self._door.listen_on(host, self._listening),
                self._workers,
                listening=self._workers_listening,
            )
        server_public, server_secret = zmq.curve_keypair()
        worker_public, worker_secret = zmq.curve_keypair()
        self._auth = _serve_curve(self._context, self._socket, server_secret, worker_public)
        return CoordinatorAddress(
            kind,
            self._door.listen_on(host, self._listening),
            self._workers,
            listening=self._workers_listening,
            server_key=server_public.decode(),
            worker_public_key=worker_public.decode(),
            worker_secret_key=worker_secret.decode(),
        )

    def send(self, worker: int, message: bytes) -> None:
        """Send to one worker; silently dropped if it is gone."""
        self._socket.send_multipart([_identity(worker), *parts_of(message)])

    def receive(self) -> Iterator[bytes]:
        """Yield messages that have arrived.

        Raises:
            ProtocolError: a message has a sender but no content.
        """
        while True:
            try:
                parts = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            yield bytes(_content(parts))

    def connections(self) -> Connections:
        """Return the connections of workers, and of any other process that reaches the port."""
        return self._door.connections()

    def wait(self, timeout_ms: float) -> None:
        """Wait until a message arrives, ``wake`` is called, or the time is over."""
        self._wake.wait([self._socket], timeout_ms)

    def wake(self) -> None:
        """End the wait; callable from any thread, and also after ``close``."""
        self._wake.set()

    def close(self) -> None:
        """Get the last messages out, then remove the private directory."""
        self._door.close()
        _close(self._context, [self._socket], self._auth, self._wake)
        if self._directory is not None:
            self._directory.close()


class ZmqWorkerTransport:
    """A worker's sockets: DEALER to the coordinator, PULL for data, one PUSH per peer.

    On a cluster there is a second PULL, a unix socket for the workers of the same host. A peer
    sends through one of the two for a whole generation, so its frames keep their order.

    Raises:
        ConfigurationError: ``host`` is none of this machine's addresses, or the process may not
            open as many files as there are workers.
    """

    def __init__(self, address: CoordinatorAddress, worker: int, host: str) -> None:
        self.reorder_max = 0
        self._address = address
        self._worker = worker
        self._network = address.kind != "ipc"
        if self._network:
            require_descriptors(worker_connections(address.workers))
        self._context = open_context(address.workers)
        self._auth: ThreadAuthenticator | None = None
        self._wake = WakeUp()
        self._peers: dict[int, zmq.Socket[bytes]] = {}
        self._data = open_socket(self._context, zmq.PULL, network=self._network)
        self._door = Door(self._context, self._data, address.workers)
        self._near = NearSocket.open(self._context, address.workers) if self._network else None
        self.near = None if self._near is None else self._near.at
        self._incoming = [self._data, *([] if self._near is None else [self._near.socket])]
        self._control = open_socket(self._context, zmq.DEALER, network=self._network)
        self._control.setsockopt(zmq.IDENTITY, _identity(worker))
        # Sockets are not for two threads.
        self._life = open_socket(self._context, zmq.DEALER, network=self._network)
        self.public_key = ""
        try:
            self.endpoint = self._bind_data(host)
        except Exception:
            self.close()
            raise
        for client in (self._control, self._life):
            self._connect(client, address.endpoint, address.server_key)

    def _bind_data(self, host: str) -> str:
        if self._address.kind == "ipc":
            return self._door.listen_at(f"{self._address.directory}/worker-{self._worker}")
        if self._address.kind == "curve":
            public, secret = zmq.curve_keypair()
            self.public_key = public.decode()
            allowed = self._address.worker_public_key.encode()
            self._auth = _serve_curve(self._context, self._data, secret, allowed)
        return self._door.listen_on(host, self._address.listening.on_worker(os.environ))

    def _connect(self, client: "zmq.Socket[bytes]", endpoint: str, server_key: str) -> None:
        self._secure_client(client, server_key)
        endpoint = reachable(endpoint)
        client.setsockopt(zmq.IPV6, is_ipv6(endpoint))
        client.connect(endpoint)

    def _secure_client(self, client: "zmq.Socket[bytes]", server_key: str) -> None:
        if self._address.kind == "curve":
            client.curve_serverkey = server_key.encode()
            client.curve_publickey = self._address.worker_public_key.encode()
            client.curve_secretkey = self._address.worker_secret_key.encode()

    def connect_peers(self, peers: Iterable[Peer]) -> None:
        """Open one PUSH socket to every other worker; to those of this host a unix socket."""
        for index, peer in enumerate(peers):
            if index != self._worker:
                self._peers[index] = self._connected(peer)

    def _connected(self, peer: Peer) -> "zmq.Socket[bytes]":
        if peer.near is not None and peer.near.is_here():
            push = open_socket(self._context, zmq.PUSH, network=False)
            push.connect(peer.near.endpoint)
        else:
            push = open_socket(self._context, zmq.PUSH, network=self._network)
            self._connect(push, peer.endpoint, peer.public_key)
        return push

    def send(self, peer: int, header: bytes, payload: Buffer) -> None:
        """Send a frame; large payloads are not copied.

        Raises:
            FencedError: the peer refuses this worker's key.
        """
        try:
            parts = [header, *parts_of(payload)]
            self._peers[peer].send_multipart(parts, zmq.NOBLOCK, copy=False)
        except zmq.Again as error:
            raise _refused(f"worker {peer}") from error

    def receive(self) -> Iterator[tuple[Buffer, Buffer]]:
        """Yield at most ``RECEIVE_FRAMES_MAX`` frames of each socket that takes any.

        Frames of one part are not copied.

        Raises:
            ProtocolError: a message has a header but no payload.
        """
        for incoming in self._incoming:
            for _ in range(RECEIVE_FRAMES_MAX):
                try:
                    parts = incoming.recv_multipart(zmq.NOBLOCK, copy=False)
                except zmq.Again:
                    break
                buffers = [part.buffer for part in parts]
                yield buffers[0], _content(buffers)

    def connections(self) -> Connections:
        """Return the connections of peers, and of any other process that reaches the port."""
        seen = self._door.connections()
        return seen if self._near is None else seen + self._near.connections()

    def send_control(self, message: bytes) -> None:
        """Queue a message to the coordinator.

        Raises:
            FencedError: the coordinator refuses this worker's key, because another generation runs
                there.
        """
        try:
            self._control.send_multipart(parts_of(message), zmq.NOBLOCK)
        except zmq.Again as error:
            raise _refused("the coordinator") from error

    def send_alive(self, message: bytes) -> None:
        """Queue a sign of life; its socket belongs to the thread that calls this.

        Raises:
            FencedError: the coordinator refuses this worker's key.
        """
        try:
            self._life.send(message, zmq.NOBLOCK)
        except zmq.Again as error:
            raise _refused("the coordinator") from error

    def receive_control(self) -> Iterator[bytes]:
        """Yield all messages of the coordinator that have arrived."""
        while True:
            try:
                parts = self._control.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            yield bytes(whole_of(parts))

    def wait(self, timeout_ms: float) -> None:
        """Wait for a message on any socket, or the wake-up."""
        self._wake.wait([self._control, *self._incoming], timeout_ms)

    def wake(self) -> None:
        """End the wait; callable from any thread, and also after ``close``."""
        self._wake.set()

    def close(self) -> None:
        """Close everything; data to peers is dropped, the last control messages go out."""
        for push in self._peers.values():
            push.close(linger=0)
        self._life.close(linger=0)
        self._door.close()
        if self._near is not None:
            self._near.close()
        _close(self._context, [self._data, self._control], self._auth, self._wake)


def _refused(who: str) -> FencedError:
    """A socket that is not full and takes nothing has given its connection up for good."""
    return FencedError(
        ErrorCode.FENCED, f"{who} refuses the keys of this worker: it is of another generation"
    )


def _identity(worker: int) -> bytes:
    return f"worker-{worker}".encode()


def _serve_curve(
    context: "zmq.Context[zmq.Socket[bytes]]",
    server: "zmq.Socket[bytes]",
    secret: bytes,
    allowed_public: bytes,
) -> ThreadAuthenticator:
    """Accept exactly one client key; the authenticator has to run before the socket binds."""
    auth = ThreadAuthenticator(context)
    auth.start()
    auth.configure_curve_callback(domain="*", credentials_provider=_OneKey(allowed_public))
    server.curve_server = True
    server.curve_secretkey = secret
    return auth


class _OneKey:
    def __init__(self, allowed_public: bytes) -> None:
        self._allowed = allowed_public

    def callback(self, domain: str, key: bytes) -> bool:
        """Called by the authenticator with the client's public key, in its printable form."""
        del domain
        return key == self._allowed


def _content(parts: Sequence[Buffer]) -> Buffer:
    """Return the message without its first part, which identifies the sender."""
    if len(parts) == 1:
        raise ProtocolError(ErrorCode.ILLEGAL_EVENT, "a message of one part, without its content")
    return whole_of(parts[1:])


def _close(
    context: "zmq.Context[zmq.Socket[bytes]]",
    sockets: "list[zmq.Socket[bytes]]",
    auth: ThreadAuthenticator | None,
    wake: WakeUp,
) -> None:
    for zmq_socket in sockets:
        zmq_socket.close()
    if auth is not None:
        auth.stop()
    context.term()
    wake.close()
