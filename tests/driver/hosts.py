"""A host for the coordinator's parts that records calls, for tests of one part."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future

from laminar_core.driver.events import JobEvent
from laminar_core.errors import ErrorCode, FencedError
from laminar_core.link.messages import (
    Peer,
    ToCoordinator,
    ToWorker,
    decode_to_coordinator,
    decode_to_worker,
    encode,
)
from laminar_core.link.sockets import Buffer
from laminar_core.link.unix_sockets import NearEndpoint
from laminar_core.protocol.links import Connections
from laminar_core.worker.snapshots import BackgroundThreads


class Background(Executor):
    """Runs the submitted functions when a test calls ``run``."""

    def __init__(self) -> None:
        self.queue: deque[Callable[[], None]] = deque()

    def submit(self, fn, /, *args, **kwargs):
        future = Future()

        def run() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except Exception as error:  # noqa: BLE001 - whoever asks the future gets it
                future.set_exception(error)

        self.queue.append(run)
        return future

    def run(self) -> None:
        while self.queue:
            self.queue.popleft()()


def threads_of(
    background: Executor, inflight: Executor | None = None, files: Executor | None = None
) -> BackgroundThreads:
    """Threads of a worker that are all ``background``, without any for coroutines."""
    return BackgroundThreads(background, background, None, files, inflight)


class Host:
    """Implements ``CoordinatorHost``."""

    def __init__(self) -> None:
        self.time_ms = 1_000
        self.posted: deque[Callable[[], None]] = deque()
        self.sent: list[ToWorker] = []
        self.sent_to: list[tuple[int, ToWorker]] = []
        self.told: list[JobEvent] = []
        self.failures: list[tuple[str, str]] = []
        self.fences: list[str] = []
        self.last_commits: list[str] = []
        self.unconfirmed: deque[Callable[[], None]] = deque()

    def now_ms(self) -> int:
        return self.time_ms

    def send(self, worker: int, message: ToWorker) -> None:
        self.sent_to.append((worker, message))

    def host_of(self, worker: int) -> str:
        return f"host-{worker}"

    def monotonic_ms(self) -> float:
        return float(self.time_ms)

    def post(self, action: Callable[[], None]) -> None:
        self.posted.append(action)

    def run(self) -> None:
        """Run the posted functions."""
        while self.posted:
            self.posted.popleft()()

    def fail(self, code: ErrorCode, reason: str, *, restart_helps: bool = True) -> None:
        del restart_helps
        self.failures.append((code.value, reason))

    def fenced(self, error: FencedError) -> None:
        self.fences.append(str(error))

    def broadcast(self, message: ToWorker) -> None:
        self.sent.append(message)

    def when_confirmed(self, action: Callable[[], None]) -> None:
        self.unconfirmed.append(action)

    def confirm(self) -> None:
        """Every worker has heard everything."""
        while self.unconfirmed:
            self.unconfirmed.popleft()()

    def notify(self, event: JobEvent) -> None:
        self.told.append(event)

    def last_commit_done(self, kind: str) -> None:
        self.last_commits.append(kind)


class Link:
    """Implements ``CoordinatorLink``: what is sent and what arrives are lists."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, ToWorker]] = []
        self.arrived: deque[bytes] = deque()
        self.wakes = 0

    def send(self, worker: int, message: bytes) -> None:
        self.sent.append((worker, decode_to_worker(message)))

    def receive(self) -> Iterator[bytes]:
        while self.arrived:
            yield self.arrived.popleft()

    def wake(self) -> None:
        self.wakes += 1

    def arrive(self, message: ToCoordinator) -> None:
        self.arrived.append(encode(message))

    def to(self, worker: int, kind: type) -> list:
        return [m for w, m in self.sent if w == worker and isinstance(m, kind)]


class WorkerLink:
    """Implements ``WorkerTransport``: the test is everybody else."""

    endpoint = "ipc://me"
    public_key = ""
    near = NearEndpoint(directory="/near/me", proof="p")
    reorder_max = 0

    def __init__(self) -> None:
        self.said: list[ToCoordinator] = []
        self.frames: list[tuple[int, bytes, Buffer]] = []
        self.control: deque[bytes] = deque()
        self.data: deque[tuple[bytes, Buffer]] = deque()
        self.peers: list[str] = []
        self.seen = Connections()
        self.wakes = 0

    def connect_peers(self, peers: Iterable[Peer]) -> None:
        self.peers = [peer.endpoint for peer in peers]

    def send(self, peer: int, header: bytes, payload: Buffer) -> None:
        self.frames.append((peer, header, payload))

    def receive(self) -> Iterator[tuple[Buffer, Buffer]]:
        while self.data:
            yield self.data.popleft()

    def send_control(self, message: bytes) -> None:
        self.said.append(decode_to_coordinator(message))

    def send_alive(self, message: bytes) -> None:
        self.said.append(decode_to_coordinator(message))

    def receive_control(self) -> Iterator[bytes]:
        while self.control:
            yield self.control.popleft()

    def connections(self) -> Connections:
        return self.seen

    def wait(self, timeout_ms: float) -> None:
        raise NotImplementedError(timeout_ms)

    def wake(self) -> None:
        self.wakes += 1

    def close(self) -> None:
        raise NotImplementedError

    def arrive(self, *messages: ToWorker) -> None:
        self.control.extend(encode(message) for message in messages)

    def heard(self, kind: type) -> list:
        return [message for message in self.said if isinstance(message, kind)]
