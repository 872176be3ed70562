"""The connections of one worker to the others: watched, and their channels marked after a loss.

``protocol/links.py`` decides; this module sends the frames and raises the errors.
"""

from collections import defaultdict
from collections.abc import Sequence

from laminar_core.errors import BrokenLink, ErrorCode, LinkBrokenError
from laminar_core.link.channel_ends import ReceivingEnd, SendingEnd
from laminar_core.link.transport import WorkerTransport
from laminar_core.link.wire import FrameKind, Header
from laminar_core.protocol.links import LINK_DOWN_MAX_MS, LinkWatch, Overdue, RollCall

_BACKWARDS = frozenset({FrameKind.CREDIT, FrameKind.RESEND})
"""Kinds of frames that a receiver sends to the sender of its channel."""

LOOK_INTERVAL_MS = 500
"""Time between two looks for channels that have to be marked."""


class Links:
    """The connections of one worker to the others, in one generation."""

    def __init__(self, me: int, generation: int, down_max_ms: float = LINK_DOWN_MAX_MS) -> None:
        self._me = me
        self._generation = generation
        self._down_max_ms = down_max_ms
        self._sending: defaultdict[int, list[SendingEnd]] = defaultdict(list)
        self._receiving: defaultdict[int, list[ReceivingEnd]] = defaultdict(list)
        self._transport: WorkerTransport | None = None
        self._hosts: Sequence[str] = ()
        self._watch = LinkWatch((), down_max_ms)
        self._next_look_ms = 0.0

    def add_sending(self, receiver: int, end: SendingEnd) -> SendingEnd:
        """Remember a channel to another worker."""
        self._sending[receiver].append(end)
        return end

    def add_receiving(self, sender: int, end: ReceivingEnd) -> ReceivingEnd:
        """Remember a channel from another worker."""
        self._receiving[sender].append(end)
        return end

    def begin(self, transport: WorkerTransport, hosts: Sequence[str]) -> None:
        """Start watching; ``hosts`` are the hosts of all workers, in order."""
        self._transport, self._hosts = transport, hosts
        peers = (n for n in range(len(hosts)) if n != self._me)
        self._watch = LinkWatch(peers, self._down_max_ms)

    def turn(self, now_ms: float) -> None:
        """Check the connections; call the roll if one was renewed, and mark what is open for long.

        Raises:
            LinkBrokenError: a peer has had no connection for too long.
        """
        if self._transport is None:
            return
        match self._watch.turn(self._transport.connections(), now_ms):
            case RollCall():
                self._call_the_roll(self._transport)
            case Overdue(down_ms, silent):
                raise self._overdue(down_ms, silent)
            case None:
                pass
        if now_ms >= self._next_look_ms:
            self._next_look_ms = now_ms + LOOK_INTERVAL_MS
            for ends in self._sending.values():
                for end in ends:
                    end.turn(now_ms)

    def hear(self, header: Header) -> None:
        """Note that a frame arrived from the other end of its channel."""
        self._watch.hear(header.receiver if header.kind in _BACKWARDS else header.sender)

    def answer(self, caller: int) -> None:
        """Answer a roll call: mark each channel to the caller, and repeat its credit."""
        assert self._transport is not None, "frames arrive once the peers are known"
        self._send(self._transport, FrameKind.PRESENT, caller)
        for sending in self._sending[caller]:
            sending.mark()
        for receiving in self._receiving[caller]:
            receiving.repeat()

    def have_broken(self) -> bool:
        """Return whether any connection to this worker has broken, so that frames may be lost."""
        return self._transport is not None and self._watch.broken(self._transport.connections())

    def _call_the_roll(self, transport: WorkerTransport) -> None:
        for peer in range(len(self._hosts)):
            if peer != self._me:
                self._send(transport, FrameKind.ROLL_CALL, peer)
                self.answer(peer)

    def _send(self, transport: WorkerTransport, kind: FrameKind, peer: int) -> None:
        header = Header(self._generation, 0, self._me, peer, kind, 0)
        transport.send(peer, header.encode(), b"")

    def _overdue(self, down_ms: float, silent: Sequence[int]) -> LinkBrokenError:
        those = ", ".join(self._named(peer) for peer in silent)
        whose = f"worker {those}" if len(silent) == 1 else f"one of the workers {those}"
        return LinkBrokenError(
            ErrorCode.LINK_BROKEN,
            f"worker {self._named(self._me)} has had no connection from {whose} for "
            f"{down_ms / 1000:.0f} s: the address of each worker's host has to be reachable from "
            "all others",
            tuple(
                BrokenLink(peer, self._hosts[peer], self._me, self._hosts[self._me])
                for peer in silent
            ),
        )

    def _named(self, worker: int) -> str:
        host = self._hosts[worker]
        return f"{worker} on {host}" if host else str(worker)
