"""Watch the connections between a worker and its peers, and decide what a lost one means.

Frames that were under way on a connection that breaks are lost, and a transport that connects again
delivers only later ones. So a gap on a channel has two possible causes: a broken connection, which
a restart heals, or a bug, which it does not. The transport counts connections, and the count tells
the two apart.

A gap shows only when a later frame arrives. Behind the last frame of a channel, and behind the last
credit, no frame follows. So a worker that notices a new connection of a peer calls the roll: every
worker then sends one more numbered frame on each channel to the caller, and repeats the credit.

A connection that stays away is a failure, too: after ``DOWN_MAX_MS`` the generation ends.

Invariants, checked by ``tests/protocol/test_links_model.py``:

I1  Each connection beyond the first one of each peer is followed by a roll call.
I2  Without a lost connection there is neither a roll call nor an overdue peer.
I3  Fewer open connections than peers for longer than ``DOWN_MAX_MS`` is always reported.
"""

from collections.abc import Iterable
from dataclasses import dataclass

DOWN_MAX_MS = 30_000
"""How long fewer connections than peers are tolerated."""


@dataclass(frozen=True, slots=True)
class Connections:
    """Connections to one socket, since it was opened."""

    accepted: int = 0
    established: int = 0
    """Connections that finished their handshake."""
    closed: int = 0

    @property
    def open(self) -> int:
        """The number of connections that are open now, during or after their handshake."""
        return self.accepted - self.closed


@dataclass(frozen=True, slots=True)
class RollCall:
    """Ask every peer for a sign on each of its channels."""


@dataclass(frozen=True, slots=True)
class Overdue:
    """A peer has been disconnected for too long; ``silent`` lists the peers that it may be."""

    down_ms: float
    silent: tuple[int, ...]


class LinkWatch:
    """The connections to one worker in one generation. Pure; one thread calls it."""

    def __init__(self, peers: Iterable[int]) -> None:
        self._peers = frozenset(peers)
        self._established = len(self._peers)
        """Established connections that need no roll call any more."""
        self._down_since_ms: float | None = None
        self._heard: set[int] = set()

    def broken(self, seen: Connections) -> bool:
        """Return whether any connection has broken, so that frames may be missing."""
        return seen.closed > 0 or seen.established > len(self._peers)

    def hear(self, peer: int) -> None:
        """Note that a frame of this peer arrived, so the missing connection is not its one."""
        if self._down_since_ms is not None:
            self._heard.add(peer)

    def turn(self, seen: Connections, now_ms: float) -> RollCall | Overdue | None:
        """Decide what to do now. ``seen`` counts all connections since the start."""
        newly_down = self._watch(seen, now_ms)
        if self._down_since_ms is not None and now_ms - self._down_since_ms > DOWN_MAX_MS:
            silent = self._peers - self._heard or self._peers
            return Overdue(now_ms - self._down_since_ms, tuple(sorted(silent)))
        renewed = seen.established > self._established
        self._established = max(self._established, seen.established)
        return RollCall() if renewed or newly_down else None

    def _watch(self, seen: Connections, now_ms: float) -> bool:
        """Update the time since which a connection is missing; return whether one just broke."""
        if seen.open >= len(self._peers):
            self._down_since_ms = None
            return False
        if self._down_since_ms is not None:
            return False
        self._down_since_ms = now_ms
        self._heard.clear()
        return self.broken(seen)
