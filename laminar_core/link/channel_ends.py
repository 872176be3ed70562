"""The two ends of a channel between two workers: frames are numbered, confirmed, and sent again.

``protocol/kept_frames.py`` and ``protocol/fifo.py`` decide; these classes send what they say.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from laminar_core.link.sockets import Buffer
from laminar_core.link.wire import (
    ArrowElement,
    ElementCodec,
    FrameKind,
    Header,
    decode_arrived,
    encode_arrived,
)
from laminar_core.protocol.fifo import Broken, Delivered, Dropped, FifoChannel
from laminar_core.protocol.kept_frames import CONFIRM_EVERY, FRAMES_MAX, KeptFrames
from laminar_core.protocol.types import Generation

Frame = tuple[FrameKind, Buffer]
"""An element that has arrived and is not decoded yet."""


class FrameTransport(Protocol):
    """The part of a worker's transport that the ends of its channels use."""

    @property
    def reorder_max(self) -> int:
        """Largest number of a peer's frames that a later one may overtake."""
        ...

    def send(self, peer: int, header: bytes, payload: Buffer) -> None:
        """Send one frame."""
        ...


class SendingEnd:
    """The sender's end. It keeps references to encoded frames until they are confirmed."""

    def __init__(self, transport: FrameTransport, codec: ElementCodec, header: Header) -> None:
        self._transport = transport
        self._codec = codec
        self._header = header
        self._kept = KeptFrames[tuple[bytes, Buffer]]()

    @property
    def kept(self) -> int:
        """The number of frames that the receiver has not confirmed."""
        return len(self._kept)

    def has_room(self) -> bool:
        """Return whether one more element may be sent."""
        return self._kept.has_room

    def __call__(self, element: ArrowElement) -> None:
        """Send one element."""
        kind, payload = self._codec.encode(element)
        header = replace(self._header, kind=kind, sequence=self._kept.next_sequence).encode()
        self._kept.add((header, payload), batch=kind is FrameKind.BATCH)
        self._transport.send(self._header.receiver, header, payload)

    def confirmed(self, header: Header, payload: Buffer) -> None:
        """Take a ``CREDIT`` or ``RESEND`` of the receiver; send again what it asks for.

        Raises:
            ProtocolError: it confirms what was never sent.
        """
        arrived = decode_arrived(payload)
        self._kept.confirm(arrived, taken=header.sequence)
        if header.kind is FrameKind.RESEND:
            for kept_header, kept_payload in self._kept.lacking(arrived):
                self._transport.send(self._header.receiver, kept_header, kept_payload)

    def mark(self) -> None:
        """Tell the receiver how many frames there are; it answers with what it has."""
        header = replace(self._header, kind=FrameKind.MARK, sequence=self._kept.next_sequence)
        self._transport.send(header.receiver, header.encode(), b"")

    def turn(self, now_ms: float) -> None:
        """Mark the channel if something has been open for long."""
        if self._kept.mark_is_due(now_ms):
            self.mark()


class ReceivingEnd:
    """The receiver's end: puts frames in order, confirms them, and gives credit.

    ``channel`` names the channel in errors. ``has_broken`` returns whether any connection to this
    worker has broken: only then may frames be lost.
    """

    def __init__(
        self,
        transport: FrameTransport,
        header: Header,
        channel: object,
        has_broken: Callable[[], bool],
    ) -> None:
        self._transport = transport
        self._header = header
        self._channel = channel
        self._has_broken = has_broken
        self.order = FifoChannel[Frame](Generation(header.generation), FRAMES_MAX)
        self._taken = 0
        self._told = 0
        """How many frames the last confirmation named."""

    def receive(self, header: Header, payload: Buffer) -> Sequence[Frame]:
        """Take a numbered frame; return the frames that are due now, in order.

        Raises:
            ProtocolError: a frame before it is missing, and no connection has broken.
        """
        frame = header.kind, payload
        match self.order.receive(Generation(header.generation), header.sequence, frame):
            case Delivered(frames):
                if not frames:
                    self._has_lost(header.sequence)
                elif self.order.expected - self._told >= CONFIRM_EVERY:
                    self.repeat()
                return frames
            case Broken() as broken:
                raise broken.error(self._channel)
            case Dropped():
                return ()

    def marked(self, sent: int) -> None:
        """Answer a mark: confirm what has arrived, and ask for what is missing.

        Raises:
            ProtocolError: a frame is missing, and no connection has broken.
        """
        self._confirm(FrameKind.RESEND if self._has_lost(sent) else FrameKind.CREDIT)

    def __call__(self, batches: int) -> None:
        """Grant credit for this many more batches."""
        self._taken += batches
        self.repeat()

    def repeat(self) -> None:
        """Send both totals; earlier ones may be lost."""
        self._confirm(FrameKind.CREDIT)

    def _has_lost(self, sequence: int) -> bool:
        """Return whether frames before this number are lost, and not merely overtaken.

        Raises:
            ProtocolError: they are lost, and no connection has broken.
        """
        expected = self.order.expected
        if sequence <= expected:
            return False
        if self._has_broken():
            return True
        if sequence - expected > self._transport.reorder_max:
            raise Broken(expected, sequence).error(self._channel)
        return False

    def _arrived(self) -> int:
        """Return how many frames may be confirmed: those that nothing is missing before."""
        return self.order.expected

    def _confirm(self, kind: FrameKind) -> None:
        self._told = self._arrived()
        header = replace(self._header, kind=kind, sequence=self._taken)
        self._transport.send(header.sender, header.encode(), encode_arrived(self._told))
