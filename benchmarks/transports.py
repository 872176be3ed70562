"""One channel between two processes, by transport: throughput, and CPU time of both ends.

The transports are those of workers, with their loops' waits. ``aes-gcm`` is no transport of
Laminar: it is ``tcp`` with each frame encrypted by AES-128-GCM in the worker's thread, to know what
this would cost (docs/adr/0109-one-host-and-aes-gcm.md).
"""

import multiprocessing
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Literal, NamedTuple

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from benchmarks.result import Result
from laminar_core.link.messages import Peer
from laminar_core.link.sockets import Buffer
from laminar_core.link.transport import (
    CoordinatorTransport,
    TransportKind,
    ZmqWorkerTransport,
)

HOST = "127.0.0.1"
Pipe = Connection
Way = Literal["ipc", "tcp", "curve", "aes-gcm"]
WAYS: tuple[Way, ...] = ("ipc", "tcp", "curve", "aes-gcm")
SIZES = ((512, 256), (4, 32))
"""Pairs of the size of a message in kB and the amount of data in MB. Whole windows are sent."""
ROUNDS = 3
_WINDOW_BYTES = 4 << 20
"""How much the receiver has not confirmed at most, about as with credit."""
_HEADER = bytes(33)
_KEY = bytes(range(16))
_WAIT_MS = 1_000.0


class _Cost(NamedTuple):
    seconds: float
    cpu_s: float
    thread_s: float
    """CPU time of the worker's own thread, which also runs operators."""


class _Case(NamedTuple):
    way: Way
    message_bytes: int
    messages: int


def transports() -> list[Result]:
    """A channel between two processes: GB/s and CPU seconds per GB, by transport."""
    results: list[Result] = []
    with _two_processes() as pipes:
        for size_kb, amount_mb in SIZES:
            cases = {way: _Case(way, size_kb * 1024, amount_mb * 1024 // size_kb) for way in WAYS}
            # In turn, so that what else the machine does meets all of them.
            rounds = [
                {way: _measure(case, pipes) for way, case in cases.items()} for _ in range(ROUNDS)
            ]
            for way, case in cases.items():
                gigabytes = case.messages * case.message_bytes / 1e9
                results += _results(
                    f"transport_{way}_{size_kb}kb", gigabytes, [each[way] for each in rounds]
                )
    return results


@contextmanager
def _two_processes() -> Iterator[list[Pipe]]:
    """Start the sender and the receiver; they serve all cases, and end with the last one."""
    start = multiprocessing.get_context("spawn")
    pipes = [start.Pipe() for _ in range(2)]
    processes = [
        start.Process(target=_serve, args=(index, pipes[index][1]), daemon=True)
        for index in range(2)
    ]
    for process in processes:
        process.start()
    ours = [pipe for pipe, _ in pipes]
    yield ours
    for pipe in ours:
        pipe.send(None)
    for process in processes:
        process.join()


def _results(name: str, gigabytes: float, pairs: list[tuple[_Cost, _Cost]]) -> list[Result]:
    speed = [gigabytes / to.seconds for _, to in pairs]
    cpu = [(by.cpu_s + to.cpu_s) / gigabytes for by, to in pairs]
    threads = [(by.thread_s + to.thread_s) / gigabytes for by, to in pairs]
    return [
        Result.of_rounds(name, speed, "GB/s", "higher"),
        Result.of_rounds(f"{name}_cpu", cpu, "s/GB", "lower"),
        Result.of_rounds(f"{name}_threads", threads, "s/GB", "lower"),
    ]


def _measure(case: _Case, pipes: list[Pipe]) -> tuple[_Cost, _Cost]:
    """Return what a run cost the sender and the receiver."""
    kind: TransportKind = "tcp" if case.way == "aes-gcm" else case.way
    coordinator = CoordinatorTransport(kind, HOST, 2)
    try:
        for pipe in pipes:
            pipe.send((coordinator.address, case))
        peers = [pipe.recv() for pipe in pipes]
        for pipe in pipes:
            pipe.send(peers)
        by, to = (_Cost(*pipe.recv()) for pipe in pipes)
        for pipe in pipes:
            pipe.send("close")  # One that closes earlier drops what is under way.
    finally:
        coordinator.close()
    return by, to


def _serve(index: int, pipe: Pipe) -> None:
    """Run cases in a process: as worker 0, which sends, or worker 1, which receives."""
    while (task := pipe.recv()) is not None:
        address, case = task
        transport = ZmqWorkerTransport(address, index, HOST)
        pipe.send((transport.endpoint, transport.public_key))
        transport.connect_peers(Peer(endpoint=at, public_key=key) for at, key in pipe.recv())
        end = _Sender(transport, case) if index == 0 else _Receiver(transport, case)
        end.meet()
        wall, cpu, own = time.perf_counter(), time.process_time(), time.thread_time()
        end.run()
        pipe.send((time.perf_counter() - wall, time.process_time() - cpu, time.thread_time() - own))
        pipe.recv()
        transport.close()


class _End:
    """One end of the channel."""

    def __init__(self, transport: ZmqWorkerTransport, case: _Case) -> None:
        self._transport = transport
        self._case = case
        self._cipher = AESGCM(_KEY) if case.way == "aes-gcm" else None
        self._window = max(_WINDOW_BYTES // case.message_bytes, 2)

    def _arrived(self) -> list[tuple[Buffer, Buffer]]:
        self._transport.wait(_WAIT_MS)
        return list(self._transport.receive())


class _Sender(_End):
    def meet(self) -> None:
        """Wait until both directions are connected."""
        self._transport.send(1, _HEADER, b"")
        while not self._arrived():
            pass

    def run(self) -> None:
        """Send everything, a bounded number of messages ahead of the receiver."""
        data = os.urandom(self._case.message_bytes)
        confirmed = 0
        for number in range(self._case.messages):
            while number - confirmed >= self._window:
                confirmed += len(self._arrived()) * (self._window // 2)
            self._transport.send(1, _HEADER, self._sealed(number, data))
        while confirmed < self._case.messages:
            confirmed += len(self._arrived()) * (self._window // 2)

    def _sealed(self, number: int, data: bytes) -> bytes:
        if self._cipher is None:
            return data
        return self._cipher.encrypt(number.to_bytes(12), data, _HEADER)


class _Receiver(_End):
    def meet(self) -> None:
        """Answer the sender's first frame."""
        while not self._arrived():
            pass
        self._transport.send(0, _HEADER, b"")

    def run(self) -> None:
        """Receive everything, and confirm each half of a window."""
        number = 0
        while number < self._case.messages:
            for header, payload in self._arrived():
                if self._cipher is not None:
                    self._cipher.decrypt(number.to_bytes(12), payload, header)
                number += 1
                if number % (self._window // 2) == 0:
                    self._transport.send(0, _HEADER, b"")
