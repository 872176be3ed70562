"""Frames between two workers, and the reaction to broken connections.

``protocol/links.py`` decides; this module sends the frames and raises the errors.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from laminar_core.errors import ErrorCode, LinkBrokenError, ProtocolError
from laminar_core.link.transport import WorkerTransport
from laminar_core.link.wire import ArrowElement, Buffer, ElementCodec, FrameKind, Header
from laminar_core.protocol.fifo import Broken
from laminar_core.protocol.links import LinkWatch, Overdue, RollCall


class RemoteDelivery:
    """The sender's end of a channel to another worker. Every frame has the next number."""

    def __init__(self, transport: WorkerTransport, codec: ElementCodec, header: Header) -> None:
        self._transport = transport
        self._codec = codec
        self._header = header
        self._sequence = 0

    def __call__(self, element: ArrowElement) -> None:
        """Send one element."""
        self._send(*self._codec.encode(element))

    def mark(self) -> None:
        """Show the receiver how many frames there are.

        Where frames may overtake each other the first mark may do so, too. The last one of as many
        as that plus one cannot have overtaken a frame that is still missing.
        """
        for _ in range(self._transport.reorder_max + 1):
            self._send(FrameKind.MARK, b"")

    def _send(self, kind: FrameKind, payload: Buffer) -> None:
        header = replace(self._header, kind=kind, sequence=self._sequence)
        self._sequence += 1
        self._transport.send(header.receiver, header.encode(), payload)


class RemoteGrant:
    """The receiver's end of a channel from another worker: gives credit back."""

    def __init__(self, transport: WorkerTransport, header: Header) -> None:
        self._transport = transport
        self._header = header
        self._taken = 0

    def __call__(self, batches: int) -> None:
        """Grant credit for this many more batches."""
        self._taken += batches
        self.repeat()

    def repeat(self) -> None:
        """Send the total; an earlier one may be lost."""
        header = replace(self._header, kind=FrameKind.CREDIT, sequence=self._taken)
        self._transport.send(header.sender, header.encode(), b"")


class Links:
    """The connections of one worker to the others, in one generation."""

    def __init__(self, me: int, generation: int) -> None:
        self._me = me
        self._generation = generation
        self._deliveries: defaultdict[int, list[RemoteDelivery]] = defaultdict(list)
        self._grants: defaultdict[int, list[RemoteGrant]] = defaultdict(list)
        self._transport: WorkerTransport | None = None
        self._hosts: Sequence[str] = ()
        self._watch = LinkWatch(())

    def deliver_to(self, receiver: int, delivery: RemoteDelivery) -> RemoteDelivery:
        """Remember a channel to another worker."""
        self._deliveries[receiver].append(delivery)
        return delivery

    def grant_to(self, sender: int, grant: RemoteGrant) -> RemoteGrant:
        """Remember a channel from another worker."""
        self._grants[sender].append(grant)
        return grant

    def begin(self, transport: WorkerTransport, hosts: Sequence[str]) -> None:
        """Start watching; ``hosts`` are the hosts of all workers, in order."""
        self._transport, self._hosts = transport, hosts
        self._watch = LinkWatch(n for n in range(len(hosts)) if n != self._me)

    def turn(self, now_ms: float) -> None:
        """Check the connections, and call the roll if one was renewed.

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

    def hear(self, header: Header) -> None:
        """Note that a frame arrived from the other end of its channel."""
        backwards = header.kind is FrameKind.CREDIT
        self._watch.hear(header.receiver if backwards else header.sender)

    def answer(self, caller: int) -> None:
        """Answer a roll call: mark each channel to the caller, and repeat its credit."""
        for delivery in self._deliveries[caller]:
            delivery.mark()
        for grant in self._grants[caller]:
            grant.repeat()

    def missing(self, broken: Broken, channel: int, sender: int) -> LinkBrokenError | ProtocolError:
        """Return the error for a missing frame: a broken connection, or else a bug of Laminar."""
        told = broken.error(channel)
        if self._transport is None or not self._watch.broken(self._transport.connections()):
            return told
        return LinkBrokenError(
            ErrorCode.LINK_BROKEN,
            f"the connection from worker {self._named(sender)} to worker {self._named(self._me)} "
            f"broke and frames were lost: {told}",
        )

    def _call_the_roll(self, transport: WorkerTransport) -> None:
        for peer in range(len(self._hosts)):
            if peer != self._me:
                header = Header(self._generation, 0, self._me, peer, FrameKind.ROLL_CALL, 0)
                transport.send(peer, header.encode(), b"")
                self.answer(peer)

    def _overdue(self, down_ms: float, silent: Sequence[int]) -> LinkBrokenError:
        those = ", ".join(self._named(peer) for peer in silent)
        whose = f"worker {those}" if len(silent) == 1 else f"one of the workers {those}"
        return LinkBrokenError(
            ErrorCode.LINK_BROKEN,
            f"worker {self._named(self._me)} has had no connection from {whose} for "
            f"{down_ms / 1000:.0f} s: the address of each worker's host has to be reachable from "
            "all others",
        )

    def _named(self, worker: int) -> str:
        host = self._hosts[worker]
        return f"{worker} on {host}" if host else str(worker)
