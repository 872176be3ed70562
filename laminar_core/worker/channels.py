"""Channels: an output queue at the sender, an input queue at the receiver, credit in between.

A batch needs one credit to leave its output queue, and the receiver returns it after taking the
batch out of its input queue. The sender knows how large the batches are for which no credit came
back, and lets no more bytes out than the channel's share of the receiver's memory; one batch may
always leave. So data waits only in these two queues, both are bounded, and a receiver can always
accept what is sent to it. All other elements need no credit, but keep their place among the
batches. Consecutive watermarks become one, in both queues, because a stream whose
rows are all filtered out sends only watermarks.

An unaligned barrier takes the head of the output queue, and the elements that it overtakes are
copied in the same step (PROTOCOL section 1). In-flight data of a restored checkpoint starts in
these queues again.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import islice
from typing import TypeGuard

import pyarrow as pa

from laminar_core.codec.inflight import InflightElement
from laminar_core.errors import ErrorCode, ProtocolError
from laminar_core.link.wire import ArrowElement
from laminar_core.protocol.types import (
    Batch,
    ChannelId,
    CheckpointBarrier,
    CheckpointId,
    EndOfInput,
    Idle,
    Watermark,
)

CREDITS_PER_CHANNEL = 4
"""Batches that may be under way or queued at the receiver, per channel."""

RECEIVE_BYTES_MAX = 256 << 20
"""Bytes that may be under way to a worker or queued there, of all its channels together."""

OUTPUT_QUEUE_BATCHES = 2
"""Batches that may wait at the sender before it stops working; one step may overshoot it."""

_IN_FLIGHT = Batch, Watermark, Idle  # A tuple: a union would be built for every element asked.


class OutputChannel:
    """The sender's end. ``deliver`` hands one element to the transport or the local receiver.

    ``bytes_max``: bytes that may be under way or queued at the receiver. A batch that is larger by
    itself leaves when nothing else is out.
    """

    def __init__(
        self, deliver: Callable[[ArrowElement], None], bytes_max: int = RECEIVE_BYTES_MAX
    ) -> None:
        self._deliver = deliver
        self._bytes_max = bytes_max
        self._sizes_out: deque[int] = deque()
        """Bytes of each batch for which no credit came back, the oldest first."""
        self._bytes_out = 0
        self.may_send: Callable[[], bool] | None = None
        """Returns whether an element may leave; None: always. Credit bounds only batches, and the
        other end of a connection that is down confirms nothing."""
        self._queue: deque[ArrowElement] = deque()
        self._batches = 0
        self._ended = False
        self.credits = CREDITS_PER_CHANNEL
        self._taken = 0
        self.batches_put = 0
        """Batches enqueued since the start."""

    @property
    def has_room(self) -> bool:
        """Whether the sender may produce more for this channel."""
        return self._batches < OUTPUT_QUEUE_BATCHES

    def put(self, element: ArrowElement) -> None:
        """Append; a watermark replaces one that waits right before it."""
        if isinstance(element, Batch):
            self._batches += 1
            self.batches_put += 1
        elif isinstance(element, EndOfInput):
            self._ended = True
        _append(self._queue, element)

    def put_barrier(self, barrier: CheckpointBarrier, *, overtake: bool) -> list[InflightElement]:
        """Append a barrier, or put it at the head and return a copy of what it passed.

        Behind the end of the channel nothing follows, so the barrier stays before it; an end that
        has left stands for the barrier.
        """
        if self._ended and not self._queue:
            return []
        if overtake:
            return self._put_first(barrier)
        behind_it = self._queue.pop() if self._ended else None
        self._queue.append(barrier)
        if behind_it is not None:
            self._queue.append(behind_it)
        return []

    def waits(self, checkpoint_id: CheckpointId) -> bool:
        """Return whether the barrier is still in the queue."""
        return self._place_of(checkpoint_id) is not None

    def time_out(self, checkpoint_id: CheckpointId) -> list[InflightElement]:
        """Move a waiting barrier to the head; return the elements it overtook (PROTOCOL section 3).

        Empty if the barrier has left: it overtook nothing.
        """
        place = self._place_of(checkpoint_id)
        if place is None:
            return []
        waiting = self._queue[place]
        assert isinstance(waiting, CheckpointBarrier)
        passed = [e for e in islice(self._queue, place) if _is_in_flight(e)]
        del self._queue[place]
        self._queue.appendleft(replace(waiting, unaligned=True))
        return passed

    def restore(self, elements: Iterable[ArrowElement]) -> None:
        """Queue what waited here at the cut; it needs credit like anything else."""
        for element in elements:
            self.put(element)

    def _put_first(self, barrier: CheckpointBarrier) -> list[InflightElement]:
        passed = [e for e in self._queue if _is_in_flight(e)]
        self._queue.appendleft(barrier)
        return passed

    def _place_of(self, checkpoint_id: CheckpointId) -> int | None:
        for place, element in enumerate(self._queue):
            if isinstance(element, CheckpointBarrier) and element.checkpoint_id == checkpoint_id:
                return place
        return None

    def give(self, batches: int) -> None:
        """Return credits for batches that the receiver has taken.

        Raises:
            ProtocolError: the number exceeds the credits that are out.
        """
        out = CREDITS_PER_CHANNEL - self.credits
        if not 0 < batches <= out:
            raise ProtocolError(
                ErrorCode.ILLEGAL_EVENT, f"{batches} credits came back and {out} are out"
            )
        self.credits += batches
        self._taken += batches
        self._bytes_out -= sum(self._sizes_out.popleft() for _ in range(batches))

    def give_up_to(self, taken: int) -> None:
        """Return credits up to this total of batches that the receiver has taken since the start.

        A total makes up for lost messages; late or repeated ones change nothing.

        Raises:
            ProtocolError: the total exceeds the number of batches sent.
        """
        if taken > self._taken:
            self.give(taken - self._taken)

    def flush(self) -> bool:
        """Send as many elements as credit allows; return whether any was sent."""
        sent = False
        while self._queue:
            if self.may_send is not None and not self.may_send():
                break
            element = self._queue[0]
            if isinstance(element, Batch):
                if not self._lets_out(element):
                    break
                self._batches -= 1
            self._queue.popleft()
            self._deliver(element)
            sent = True
        return sent

    def _lets_out(self, batch: Batch[pa.RecordBatch]) -> bool:
        """Take a credit for the batch, and room for its bytes; False: there is none."""
        if self.credits == 0:
            return False
        size_bytes = batch.data.nbytes
        if self._sizes_out and self._bytes_out + size_bytes > self._bytes_max:
            return False
        self.credits -= 1
        self._sizes_out.append(size_bytes)
        self._bytes_out += size_bytes
        return True

    @property
    def empty(self) -> bool:
        """Whether all elements have been sent."""
        return not self._queue

    def close(self) -> None:
        """Drop the queue."""
        self._queue.clear()


class InputChannel:
    """The receiver's end. ``grant`` gives credit back to the sender."""

    def __init__(self, channel: ChannelId, grant: Callable[[int], None]) -> None:
        self.channel = channel
        self._grant = grant
        self._queue: deque[ArrowElement] = deque()
        self._consumed = 0
        self._restored = 0
        self.batches_restored = 0
        self.batches_replayed = 0
        self.batches_taken = 0
        """Whole batches taken since the start."""

    @property
    def replays(self) -> bool:
        """Whether restored elements are still queued."""
        return self._restored > 0

    @property
    def batches_queued(self) -> int:
        """Batches that have arrived and were not taken."""
        return sum(isinstance(element, Batch) for element in self._queue)

    def __len__(self) -> int:
        return len(self._queue)

    def arrive(self, element: ArrowElement) -> None:
        """Enqueue an element; never refuses, because the sender had the credit."""
        _append(self._queue, element)

    def restore(self, elements: Iterable[ArrowElement]) -> None:
        """Queue what was in flight at the cut. No sender waits for credit for it."""
        for element in elements:
            self._restored += isinstance(element, Batch)
            self.arrive(element)
        self.batches_restored = self._restored

    def ahead_of(self, checkpoint_id: CheckpointId) -> list[InflightElement]:
        """Return a copy of the queued elements that are in flight at this checkpoint's cut."""
        ahead: list[InflightElement] = []
        for element in self._queue:
            if isinstance(element, CheckpointBarrier) and element.checkpoint_id == checkpoint_id:
                break
            if _is_in_flight(element):
                ahead.append(element)
        return ahead

    @property
    def first(self) -> ArrowElement:
        """The element that ``take`` returns, or a part of."""
        return self._queue[0]

    def take(self, rows_max: int | None = None) -> ArrowElement:
        """Dequeue an element; a batch's credit is returned by the next ``give_back``.

        If a batch has more than ``rows_max`` rows, only these are taken, and the rest stays first.
        """
        element = self._queue.popleft()
        if isinstance(element, Batch):
            if rows_max is not None and element.data.num_rows > rows_max:
                self._queue.appendleft(Batch(element.data.slice(rows_max)))
                return Batch(element.data.slice(0, rows_max))
            self.batches_taken += 1
            if self._restored:
                self._restored -= 1
                self.batches_replayed += 1
            else:
                self._consumed += 1
        return element

    def give_back(self) -> None:
        """Return the credit of what was taken."""
        if self._consumed:
            self._grant(self._consumed)
            self._consumed = 0


def _is_in_flight(element: ArrowElement) -> TypeGuard[InflightElement]:
    """Return whether the element belongs to channel state; markers and the end do not."""
    return isinstance(element, _IN_FLIGHT)


def _append(queue: deque[ArrowElement], element: ArrowElement) -> None:
    """Of watermarks that wait in a row only the highest one matters."""
    last = queue[-1] if queue else None
    if isinstance(element, Watermark) and isinstance(last, Watermark):
        queue[-1] = Watermark(max(last.time_us, element.time_us))
    else:
        queue.append(element)
