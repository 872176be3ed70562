"""A TCP proxy that fails on order: late, cut, deaf, half open, or with a reply that is lost.

It carries connections to a port of loopback, from a thread of its own, so that a test or a campaign
orders the next fault while its client waits. Every fault that strikes is counted: a case whose
fault never struck has shown nothing.
"""

import asyncio
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Self

HOST = "127.0.0.1"
_PIECE_BYTES = 1 << 16
_RESET = struct.pack("ii", 1, 0)
"""For SO_LINGER: closing sends a reset."""

Watch = Callable[[bytes], Collection[int]]
"""Takes what a client sends on one connection, piece by piece; returns the kinds of the requests
that begin in the piece.
"""


class FaultKind(Enum):
    """The effect of a fault on a connection, or on all of them."""

    LATENCY = "latency"
    """From now on every piece from the server takes ``seconds`` longer, on all connections."""
    RESET = "reset"
    """The connection breaks in the middle of a request."""
    LOST_REPLY = "lost-reply"
    """The request arrives; the connection breaks in place of its answer."""
    BLACK_HOLE = "black-hole"
    """All connections, new ones too, are silent both ways for ``seconds``; then they break."""
    HALF_OPEN = "half-open"
    """The server loses the connection, and the client does not notice."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. It strikes once, at the first request that fits."""

    kind: FaultKind
    requests: Collection[int] = ()
    """Kinds of requests that it strikes at; empty: any piece from a client."""
    after_bytes: int = 0
    """Bytes of clients that pass from the order until it may strike."""
    seconds: float = 0.0


@dataclass(slots=True)
class _Wire:
    """One connection of a client, and the one to the server that carries it."""

    near: asyncio.StreamWriter
    far: asyncio.StreamWriter
    watch: Watch
    is_reply_lost: bool = False
    is_half_open: bool = False

    def reset(self) -> None:
        for end in (self.near, self.far):
            _reset(end)

    def close(self) -> None:
        for end in (self.near, self.far):
            end.close()


@dataclass(slots=True)
class FaultProxy:
    """Listens on ``port`` of loopback and carries each connection to ``target``.

    A context manager. ``arm`` and ``heal`` may be called from any thread.

    Args:
        target: a port of loopback; may be set later.
        watch: makes the watch of a connection; without one, faults cannot name requests.
    """

    target: int = 0
    watch: Callable[[], Watch] = lambda: lambda _: ()
    fired: Counter[FaultKind] = field(default_factory=Counter[FaultKind])
    """The faults that struck so far."""
    refused: int = 0
    """Requests that were refused so far; see ``refuse``."""
    port: int = field(init=False)
    _listening: socket.socket = field(init=False)
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    _thread: threading.Thread = field(init=False)
    _armed: Fault | None = None
    _refused_requests: Collection[int] = ()
    _passed_bytes: int = 0
    _late_seconds: float = 0.0
    _is_silent: bool = False
    _wires: list[_Wire] = field(default_factory=list[_Wire])

    def __post_init__(self) -> None:
        self._listening = socket.create_server((HOST, 0))
        self.port = int(self._listening.getsockname()[1])
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def address(self) -> str:
        """Host and port for clients."""
        return f"{HOST}:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        self._do(lambda: None)
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._break_all)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def arm(self, fault: Fault) -> None:
        """Let ``fault`` strike next, in place of one that has not struck yet."""
        self._do(lambda: self._arm(fault))

    def refuse(self, requests: Collection[int]) -> None:
        """Break each connection at such a request, which does not arrive, until ``heal``."""
        self._do(lambda: self._refuse(requests))

    def heal(self) -> None:
        """Carry everything again; a fault that has not struck is forgotten."""
        self._do(self._heal)

    # --- in the thread of the proxy -------------------------------------------------------------

    def _do(self, act: Callable[[], None]) -> None:
        async def run() -> None:
            act()

        asyncio.run_coroutine_threadsafe(run(), self._loop).result(30)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        serving = asyncio.start_server(self._connected, sock=self._listening)
        server = self._loop.run_until_complete(serving)
        self._loop.run_forever()
        server.close()
        self._loop.run_until_complete(_some_turns())  # So that each new connection has a task.
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self._loop.run_until_complete(_some_turns())  # Sockets are closed a turn after transports.
        self._loop.close()

    def _arm(self, fault: Fault) -> None:
        self._armed, self._passed_bytes = fault, 0

    def _refuse(self, requests: Collection[int]) -> None:
        self._refused_requests = frozenset(requests)

    def _heal(self) -> None:
        self._armed, self._late_seconds, self._refused_requests = None, 0.0, ()
        if self._is_silent:
            self._is_silent = False
            self._break_all()  # Bytes are missing: what they carry makes no sense any more.
        for wire in self._wires:
            if wire.is_half_open:
                wire.reset()

    def _break_all(self) -> None:
        for wire in self._wires:
            wire.reset()

    async def _connected(self, reader: asyncio.StreamReader, near: asyncio.StreamWriter) -> None:
        try:
            back, far = await asyncio.open_connection(HOST, self.target)
        except (OSError, asyncio.CancelledError):  # Nothing listens there now, or we end.
            _reset(near)
            return
        wire = _Wire(near, far, self.watch())
        self._wires.append(wire)
        leave = wire.reset
        try:
            with suppress(asyncio.CancelledError):  # We end.
                await asyncio.gather(self._from_client(wire, reader), self._from_server(wire, back))
                # A reset could overtake the end of the stream, which the client has to read yet.
                leave = wire.close
        finally:
            self._wires.remove(wire)
            leave()

    async def _from_client(self, wire: _Wire, reader: asyncio.StreamReader) -> None:
        with suppress(OSError):
            while piece := await reader.read(_PIECE_BYTES):
                await self._forward(wire, piece)
        if not wire.is_half_open:
            _end(wire.far)

    async def _forward(self, wire: _Wire, piece: bytes) -> None:
        requests = wire.watch(piece)
        if not set(requests).isdisjoint(self._refused_requests):
            self.refused += 1
            wire.reset()
            return
        fault, before = self._armed, self._passed_bytes
        self._passed_bytes += len(piece)
        if fault is not None and _strikes(fault, requests, self._passed_bytes):
            self._armed = None
            piece = self._strike(fault, wire, piece, before)
        if piece and not self._is_silent and not wire.is_half_open:
            wire.far.write(piece)
            await wire.far.drain()
        if fault is not None and fault.kind is FaultKind.RESET and self._armed is None:
            wire.reset()

    def _strike(self, fault: Fault, wire: _Wire, piece: bytes, before: int) -> bytes:
        """Begin the fault; return the part of the piece that still arrives."""
        self.fired[fault.kind] += fault.kind is not FaultKind.LOST_REPLY
        match fault.kind:
            case FaultKind.LATENCY:
                self._late_seconds = fault.seconds
            case FaultKind.RESET:
                left = fault.after_bytes - before
                return piece[: left if left > 0 else len(piece) // 2]
            case FaultKind.LOST_REPLY:
                wire.is_reply_lost = True
            case FaultKind.BLACK_HOLE:
                self._is_silent = True
                if fault.seconds:
                    self._loop.call_later(fault.seconds, self._heal)
            case FaultKind.HALF_OPEN:
                wire.is_half_open = True
                _reset(wire.far)
        return piece

    async def _from_server(self, wire: _Wire, reader: asyncio.StreamReader) -> None:
        with suppress(OSError):
            while piece := await reader.read(_PIECE_BYTES):
                if wire.is_reply_lost:
                    self.fired[FaultKind.LOST_REPLY] += 1
                    wire.reset()
                    return
                if self._late_seconds:
                    await asyncio.sleep(self._late_seconds)
                if not self._is_silent and not wire.is_half_open:
                    wire.near.write(piece)
                    await wire.near.drain()
        if not wire.is_half_open:
            _end(wire.near)


async def _some_turns() -> None:
    """Let the loop do what it has put off, and what follows from that."""
    for _ in range(3):
        await asyncio.sleep(0)


def _strikes(fault: Fault, requests: Collection[int], passed_bytes: int) -> bool:
    is_due = passed_bytes > fault.after_bytes
    return is_due and (not fault.requests or not set(requests).isdisjoint(fault.requests))


def _end(writer: asyncio.StreamWriter) -> None:
    """Tell the other side that nothing more comes."""
    with suppress(OSError):
        if writer.can_write_eof() and not writer.is_closing():
            writer.write_eof()


def _reset(writer: asyncio.StreamWriter) -> None:
    end = writer.get_extra_info("socket")
    with suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
