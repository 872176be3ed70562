"""Open files, memory and processor time of one worker's connections to all others.

One process has both ends: a worker that others reach, and a worker with a connection to it for each
of its peers. So the files and the memory are those of one worker of a cluster, which has as many
connections in each direction.
"""

from pathlib import Path
from time import process_time

import psutil

from benchmarks.result import Result
from laminar_core.host.clock import SystemClock
from laminar_core.link.messages import Peer
from laminar_core.link.transport import CoordinatorTransport, ZmqWorkerTransport

WORKERS = (16, 64, 256, 1_000)
_WAIT_MAX_MS = 120_000.0
_LOOK_MS = 100.0
_FILES = Path("/proc/self/fd")


def connections() -> list[Result]:
    """Open files, memory and handshakes of one worker with 16 to 1,000 peers, encrypted."""
    return [result for workers in WORKERS for result in connections_of(workers)]


def connections_of(workers: int) -> list[Result]:
    """Return the figures of one of so many workers.

    Raises:
        TimeoutError: the first frames have not arrived.
    """
    coordinator = CoordinatorTransport("curve", "127.0.0.1", workers)
    reached = ZmqWorkerTransport(coordinator.address, 0, "127.0.0.1")
    # Its sign that it is on the same host is left out: peers elsewhere do not have one either.
    peer = Peer(endpoint=reached.endpoint, public_key=reached.public_key)
    files, bytes_ = _open_files(), _memory_bytes()
    reaching = ZmqWorkerTransport(coordinator.address, 1, "127.0.0.1")
    try:
        begun_s = process_time()
        reaching.connect_peers([peer] * workers)
        _send_to_all(reaching, reached, workers)
        cpu_s = process_time() - begun_s
        files, bytes_ = _open_files() - files, _memory_bytes() - bytes_
    finally:
        reaching.close()
        reached.close()
        coordinator.close()
    peers = workers - 1
    name = f"connections_{workers}_workers"
    return [
        Result(f"{name}_open_files", files, "files", "lower"),
        Result(f"{name}_memory", bytes_ / peers, "bytes/peer", "lower"),
        Result(f"{name}_handshake", 1_000 * cpu_s / peers, "ms CPU/peer", "lower"),
    ]


def _send_to_all(reaching: ZmqWorkerTransport, reached: ZmqWorkerTransport, workers: int) -> None:
    """Send a frame on each connection, and wait for all: only then it is known to be open."""
    peers = [index for index in range(workers) if index != 1]
    for peer in peers:
        reaching.send(peer, b"header", b"payload")
    clock = SystemClock()
    arrived, end_ms = 0, clock.monotonic_ms() + _WAIT_MAX_MS
    while arrived < len(peers):
        if clock.monotonic_ms() > end_ms:
            raise TimeoutError(f"{arrived} of {len(peers)} connections are open")
        reached.wait(_LOOK_MS)
        arrived += sum(1 for _ in reached.receive())


def _open_files() -> int:
    return len(list(_FILES.iterdir()))


def _memory_bytes() -> int:
    return psutil.Process().memory_info().rss
