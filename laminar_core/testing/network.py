"""An in-memory network: FIFO per pair, with a random delay per message.

It may let data frames overtake each other, within a bound, like a transport without order. It may
lose or repeat messages between the coordinator and its workers. A connection between two workers
may break: some or all messages under way are lost, and later ones arrive. Or it may fall silent in
one direction: its sender believes in it until heartbeats are missing, and everything is lost
meanwhile.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from laminar_core.link.messages import Peer
from laminar_core.link.sockets import Buffer
from laminar_core.link.transport import RECEIVE_FRAMES_MAX
from laminar_core.link.unix_sockets import NearEndpoint
from laminar_core.protocol.links import Connections
from laminar_core.testing.world import Process, World

SILENCE_SEEN_MS = 8_000.0
"""A connection that is silent for so long is closed: interval and timeout of real heartbeats."""

_LATENCY_MS = (0.05, 0.05, 0.2, 1.0, 15.0)


@dataclass(slots=True)
class Mailbox:
    """Messages on their way to one endpoint, by sender, with the time of their arrival."""

    owner: Process
    waiting: dict[str, deque[tuple[float, int, Any]]] = field(
        default_factory=dict[str, deque[tuple[float, int, Any]]]
    )
    sent: dict[str, int] = field(default_factory=dict[str, int])
    """Messages sent so far, by sender."""
    closed: int = 0
    """Connections to this endpoint that broke."""
    renewed: int = 0
    """Connections to this endpoint that were made again."""


def _no_extra_ms(sender: str, endpoint: str) -> float:
    del sender, endpoint
    return 0.0


class Network:
    """Endpoints and what is under way between them."""

    def __init__(self, world: World, reorder_max: int = 0) -> None:
        self.reorder_max = reorder_max
        self.extra_ms: Callable[[str, str], float] = _no_extra_ms
        """By sender and endpoint, how much longer than usual a message takes now."""
        self.control_loss = self.control_repeat = 0.0
        """Shares of the messages between coordinator and workers; see ``send_control``."""
        self._world = world
        self._mailboxes: dict[str, Mailbox] = {}
        self._silent: dict[tuple[str, str], tuple[float, float]] = {}
        """By sender and endpoint: messages are lost until the first time, and wait at the sender
        until the second one."""

    def bind(self, endpoint: str, owner: Process) -> None:
        """Create a mailbox: messages to ``endpoint`` wake ``owner``."""
        self._mailboxes[endpoint] = Mailbox(owner)

    def unbind(self, endpoint: str) -> None:
        """Remove the mailbox: later messages to ``endpoint`` are lost."""
        self._mailboxes.pop(endpoint, None)

    def send(self, sender: str, endpoint: str, message: Any) -> None:  # noqa: ANN401 - carried, not looked at
        """Send a message; never blocks, never fails."""
        mailbox = self._mailboxes.get(endpoint)
        lost_until_ms, waits_until_ms = self._silent.get((sender, endpoint), (0.0, 0.0))
        if mailbox is None or self._world.now_ms < lost_until_ms:
            return
        queue = mailbox.waiting.setdefault(sender, deque())
        latest_ms = queue[-1][0] if queue else 0.0
        latency_ms = self._world.random.choice(_LATENCY_MS) * self._world.random.random()
        latency_ms += self.extra_ms(sender, endpoint)
        arrives_ms = max(latest_ms, waits_until_ms, self._world.now_ms + latency_ms)
        number = mailbox.sent[sender] = mailbox.sent.get(sender, 0) + 1
        queue.append((arrives_ms, number, message))
        mailbox.owner.wake(arrives_ms)

    def send_control(self, sender: str, endpoint: str, message: bytes) -> None:
        """Send between coordinator and worker, as well as the link can: never, once or twice."""
        times = 1
        if self.control_loss or self.control_repeat:
            times -= self._world.random.random() < self.control_loss
            times += self._world.random.random() < self.control_repeat
        for _ in range(times):
            self.send(sender, endpoint, message)

    def receive(self, endpoint: str, most: int, reorder_max: int = 0) -> Iterator[Any]:
        """Yield arrived messages, at most so many, from the senders in random order.

        A message may overtake up to ``reorder_max`` earlier ones.
        """
        mailbox = self._mailboxes.get(endpoint)
        for _ in range(most if mailbox is not None else 0):
            assert mailbox is not None
            arrived = [q for q in mailbox.waiting.values() if q and q[0][0] <= self._world.now_ms]
            if not arrived:
                break
            yield self._take(self._world.random.choice(arrived), reorder_max)
        if mailbox is not None:
            for queue in mailbox.waiting.values():
                if queue:
                    mailbox.owner.wake(queue[0][0])

    def _take(self, queue: deque[tuple[float, int, Any]], reorder_max: int) -> Any:  # noqa: ANN401
        """Take the oldest one, or one that has arrived and is not too far ahead of it."""
        place = 0
        if reorder_max:
            furthest = queue[0][1] + reorder_max
            here = sum(at <= self._world.now_ms and number <= furthest for at, number, _ in queue)
            place = self._world.random.randrange(here)
        _, _, message = queue[place]
        del queue[place]
        return message

    def break_connection(self, sender: str, endpoint: str) -> int | None:
        """Lose some of the last messages from ``sender``, and reconnect.

        Returns the number of lost messages; None if the receiver does not exist.
        """
        lost = self.lose_some(sender, endpoint)
        self.connect_again(endpoint)
        return lost

    def lose_some(self, sender: str, endpoint: str) -> int | None:
        """Lose some of the last messages under way from ``sender``; return their number.

        None if the receiver does not exist.
        """
        mailbox = self._mailboxes.get(endpoint)
        if mailbox is None:
            return None
        queue = mailbox.waiting.get(sender, deque())
        lost = self._world.random.randint(0, len(queue))
        for _ in range(lost):
            queue.pop()
        return lost

    def connect_again(self, endpoint: str) -> None:
        """Count a connection to ``endpoint`` that broke and was renewed."""
        self._count(endpoint, closed=1, renewed=1)

    def silence(self, sender: str, endpoint: str, lasts_ms: float) -> None:
        """Let nothing from ``sender`` arrive for so long, without a notice to either end.

        Once heartbeats are missing, the connection is closed; messages then wait at the sender
        for the next one.
        """
        began_ms = self._world.now_ms
        over_ms = began_ms + max(lasts_ms, SILENCE_SEEN_MS)
        self._silent[sender, endpoint] = began_ms + SILENCE_SEEN_MS, over_ms
        self.lose_some(sender, endpoint)
        self._world.later(SILENCE_SEEN_MS, lambda: self._count(endpoint, closed=1))
        self._world.later(over_ms - began_ms, lambda: self._count(endpoint, renewed=1))

    def connections(self, endpoint: str, peers: int) -> Connections:
        """Return the connections of so many peers to ``endpoint`` since it was bound."""
        mailbox = self._mailboxes.get(endpoint)
        closed, renewed = (0, 0) if mailbox is None else (mailbox.closed, mailbox.renewed)
        return Connections(peers + renewed, peers + renewed, closed)

    def _count(self, endpoint: str, closed: int = 0, renewed: int = 0) -> None:
        mailbox = self._mailboxes.get(endpoint)
        if mailbox is not None:
            mailbox.closed += closed
            mailbox.renewed += renewed
            mailbox.owner.wake()

    def lose(self, sender: str) -> None:
        """Lose the last messages of a killed sender, from a random one on."""
        for mailbox in self._mailboxes.values():
            queue = mailbox.waiting.get(sender, deque())
            for _ in range(self._world.random.randint(0, len(queue))):
                queue.pop()


class SimulatedWorkerTransport:
    """The simulated transport of a worker's loop."""

    def __init__(self, network: Network, coordinator: str, worker: int, owner: Process) -> None:
        self.public_key = ""
        self.near: NearEndpoint | None = None
        self.reorder_max = network.reorder_max
        self.endpoint = worker_endpoint(coordinator, worker)
        self._control = control_endpoint(coordinator, worker)
        self._life = f"{self.endpoint}/life"
        self._coordinator = coordinator
        self._network = network
        self._owner = owner
        self._peers: list[str] = []
        network.bind(self.endpoint, owner)
        network.bind(self._control, owner)

    def connect_peers(self, peers: Iterable[Peer]) -> None:
        """Store the peers' endpoints."""
        self._peers = [peer.endpoint for peer in peers]

    def send(self, peer: int, header: bytes, payload: Buffer) -> None:
        """Send one frame."""
        self._network.send(self.endpoint, self._peers[peer], (header, payload))

    def receive(self) -> Iterator[tuple[Buffer, Buffer]]:
        """Yield frames that have arrived."""
        yield from self._network.receive(self.endpoint, RECEIVE_FRAMES_MAX, self.reorder_max)

    def connections(self) -> Connections:
        """Return one connection per peer, plus the renewed ones."""
        return self._network.connections(self.endpoint, len(self._peers) - 1)

    def send_control(self, message: bytes) -> None:
        """Send to the coordinator."""
        self._network.send_control(self.endpoint, self._coordinator, message)

    def send_alive(self, message: bytes) -> None:
        """Send to the coordinator, as by a socket of its own."""
        self._network.send_control(self._life, self._coordinator, message)

    def receive_control(self) -> Iterator[bytes]:
        """Messages of the coordinator that have arrived."""
        yield from self._network.receive(self._control, RECEIVE_FRAMES_MAX)

    def wait(self, timeout_ms: float) -> None:
        """Raise: in a simulation a turn ends instead of waiting."""
        raise NotImplementedError

    def wake(self) -> None:
        """Schedule a turn of the worker."""
        self._owner.wake()

    def close(self) -> None:
        """Close the mailboxes; messages under way still arrive at others."""
        self._network.unbind(self.endpoint)
        self._network.unbind(self._control)


class SimulatedCoordinatorLink:
    """The simulated socket of a coordinator."""

    def __init__(self, network: Network, endpoint: str, owner: Process) -> None:
        self.endpoint = endpoint
        self._network = network
        self._owner = owner
        network.bind(endpoint, owner)

    def send(self, worker: int, message: bytes) -> None:
        """Send to one worker."""
        self._network.send_control(self.endpoint, control_endpoint(self.endpoint, worker), message)

    def receive(self) -> Iterator[bytes]:
        """Yield messages that have arrived."""
        yield from self._network.receive(self.endpoint, RECEIVE_FRAMES_MAX)

    def wake(self) -> None:
        """Schedule a turn of the coordinator."""
        self._owner.wake()

    def close(self) -> None:
        """Close the mailbox."""
        self._network.unbind(self.endpoint)


def worker_endpoint(coordinator: str, worker: int) -> str:
    """Return the endpoint where a worker receives data."""
    return f"{coordinator}/worker-{worker}"


def control_endpoint(coordinator: str, worker: int) -> str:
    """Return the endpoint where a worker receives the coordinator's messages."""
    return f"{coordinator}/worker-{worker}/control"
