"""Watch the connections between a worker and its peers, and decide what a lost one means.

Frames that were under way on a connection that breaks are lost, and a transport that connects again
delivers only later ones. The channels send them again (``kept_frames.py``), but first both ends
have to learn that something was lost. The transport counts connections. A worker that notices that
a connection of a peer is new, or missing, calls the roll: every worker then marks each of its
channels to the caller, so that the caller can ask for what it lacks, and repeats the credit. The
caller does the same for its own channels, because a peer that lost frames to it may also have lost
its call.

The count is a second safeguard: a gap on a channel although no connection has ever broken is a bug,
which sending again would hide.

A connection that stays away is a failure, too: after ``down_max_ms`` the generation ends. The roll
is called again and again meanwhile, so those that do not answer are those that are cut off.

Invariants, checked by ``tests/protocol/test_links_model.py``:

I1  Each connection beyond the first one of each peer is followed by a roll call.
I2  Without a lost or missing connection there is neither a roll call nor an overdue peer.
I3  Fewer open connections than peers for longer than ``down_max_ms`` is always reported.
"""

from collections.abc import Iterable
from dataclasses import dataclass

SIGN_INTERVAL_MS = 1_000
"""Time between two signs of life of a worker's process."""

LINK_DOWN_MAX_MS = 30_000
"""How long fewer connections than peers are tolerated, unless the job says otherwise."""

ROLL_CALL_INTERVAL_MS = 2_000
"""Time between two roll calls while a connection is missing."""


@dataclass(frozen=True, slots=True)
class Connections:
    """Connections to one socket, or to several together, since they were opened."""

    accepted: int = 0
    established: int = 0
    """Connections that finished their handshake."""
    closed: int = 0

    def __add__(self, other: "Connections") -> "Connections":
        """Return the connections to both of two sockets."""
        return Connections(
            self.accepted + other.accepted,
            self.established + other.established,
            self.closed + other.closed,
        )

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

    def __init__(self, peers: Iterable[int], down_max_ms: float = LINK_DOWN_MAX_MS) -> None:
        self._peers = frozenset(peers)
        self._down_max_ms = down_max_ms
        self._established = len(self._peers)
        """Established connections that need no roll call any more."""
        self._down_since_ms: float | None = None
        self._next_call_ms = 0.0
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
        missing = self._is_missing(seen, now_ms)
        if self._down_since_ms is not None and now_ms - self._down_since_ms > self._down_max_ms:
            silent = self._peers - self._heard or self._peers
            return Overdue(now_ms - self._down_since_ms, tuple(sorted(silent)))
        renewed = seen.established > self._established
        self._established = max(self._established, seen.established)
        return RollCall() if renewed or missing else None

    def _is_missing(self, seen: Connections, now_ms: float) -> bool:
        """Return whether to call the roll because a connection is missing.

        At the start all of them are missing for a moment, which is no loss.
        """
        if seen.open >= len(self._peers):
            self._down_since_ms = None
            return False
        if self._down_since_ms is None:
            self._down_since_ms = now_ms
            self._heard.clear()
            self._next_call_ms = now_ms + (0 if self.broken(seen) else ROLL_CALL_INTERVAL_MS)
        if now_ms < self._next_call_ms:
            return False
        self._next_call_ms = now_ms + ROLL_CALL_INTERVAL_MS
        return True
