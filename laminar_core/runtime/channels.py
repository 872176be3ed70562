"""Channels: an output queue at the sender, an input queue at the receiver, credit in between.

A batch needs one credit to leave its output queue, and the receiver gives it back when it has
taken the batch out of its input queue. So data waits nowhere but in these two queues, both are
bounded, and a receiver can always take in what is sent to it. Everything else on a channel needs
no credit, but keeps its place among the batches.
"""

from collections import deque
from collections.abc import Callable

from laminar_core.checkpoint.types import Batch, ChannelId, Watermark
from laminar_core.errors import ErrorCode, ProtocolError
from laminar_core.runtime.wire import ArrowElement

CREDITS_PER_CHANNEL = 4
"""Batches that may be under way or queued at the receiver, per channel."""

OUTPUT_QUEUE_BATCHES = 2
"""Batches that may wait at the sender before it stops working; one step may overshoot it."""


class OutputChannel:
    """The sender's end. ``deliver`` hands one element to the transport or the local receiver."""

    def __init__(self, deliver: Callable[[ArrowElement], None]) -> None:
        self._deliver = deliver
        self._queue: deque[ArrowElement] = deque()
        self._batches = 0
        self.credits = CREDITS_PER_CHANNEL

    @property
    def has_room(self) -> bool:
        """May the sender produce more for this channel?"""
        return self._batches < OUTPUT_QUEUE_BATCHES

    def put(self, element: ArrowElement) -> None:
        """Append; of watermarks that wait in a row only the last one matters."""
        if isinstance(element, Batch):
            self._batches += 1
        elif isinstance(element, Watermark) and self._ends_in_a_watermark():
            self._queue.pop()
        self._queue.append(element)

    def _ends_in_a_watermark(self) -> bool:
        return bool(self._queue) and isinstance(self._queue[-1], Watermark)

    def flush(self) -> bool:
        """Send as far as credit allows; say whether anything left."""
        sent = False
        while self._queue:
            element = self._queue[0]
            if isinstance(element, Batch):
                if self.credits == 0:
                    break
                self.credits -= 1
                self._batches -= 1
            self._queue.popleft()
            self._deliver(element)
            sent = True
        return sent

    @property
    def empty(self) -> bool:
        """Everything has been sent."""
        return not self._queue


class InputChannel:
    """The receiver's end. ``grant`` gives credit back to the sender."""

    def __init__(self, channel: ChannelId, grant: Callable[[int], None]) -> None:
        self.channel = channel
        self._grant = grant
        self._queue: deque[ArrowElement] = deque()
        self._expected_sequence = 0
        self._consumed = 0

    def __len__(self) -> int:
        return len(self._queue)

    def check_sequence(self, sequence: int) -> None:
        """Notice a transport that lost, repeated or reordered a frame.

        Raises:
            ProtocolError: the channel is not FIFO any more; the generation must end.
        """
        if sequence != self._expected_sequence:
            raise ProtocolError(
                ErrorCode.OUT_OF_ORDER,
                f"channel {self.channel} expected frame {self._expected_sequence} "
                f"and got {sequence}",
            )
        self._expected_sequence += 1

    def arrive(self, element: ArrowElement) -> None:
        """Enqueue. Never refuses: the sender had the credit."""
        self._queue.append(element)

    def take(self) -> ArrowElement:
        """Dequeue; a batch's credit goes back with the next ``give_back``."""
        element = self._queue.popleft()
        if isinstance(element, Batch):
            self._consumed += 1
        return element

    def give_back(self) -> None:
        """Return the credit of what was taken."""
        if self._consumed:
            self._grant(self._consumed)
            self._consumed = 0
