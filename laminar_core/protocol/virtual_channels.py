"""Merge the event time of several old channels that continue as one: the minimum counts.

After a restore with another parallelism, the queue of one new channel holds the in-flight data of
several old ones, its *virtual channels*, one after the other. Each of them is in order, but
together they are not: a watermark of one does not cover the rows that wait in another. So every
virtual channel keeps its own watermark here. The output consists of ordinary elements of the new
channel, with a watermark only where the minimum over all rises. Once these elements are processed
no work is left, and a checkpoint that is taken meanwhile needs no special content.

Source: PROTOCOL sections 9 and 10; Flink's ``DemultiplexingRecordDeserializer`` does it at runtime.
"""

from collections.abc import Iterator, Sequence
from typing import TypeVar

from laminar_core.protocol.types import Batch, Idle, Watermark

B = TypeVar("B")

ChannelTime = tuple[int | None, bool]
"""(last watermark in microseconds of event time, idle)."""


class VirtualChannels:
    """Virtual channels by their number, from their event time at the cut on."""

    def __init__(self, at_cut: Sequence[ChannelTime]) -> None:
        assert at_cut, "an edge has senders"
        self._watermarks = [watermark_us for watermark_us, _ in at_cut]
        self._idle = [idle for _, idle in at_cut]
        self._said: ChannelTime = self.time
        """The event time that was last sent to the new channel."""

    @property
    def time(self) -> ChannelTime:
        """Combined event time: unknown until each channel has a watermark, idle if all are."""
        known = [w for w in self._watermarks if w is not None]
        if len(known) < len(self._watermarks):
            # An idle channel would not be waited for, and this one may have rows of any age.
            return None, False
        return min(known), all(self._idle)

    def take(
        self, number: int, element: Batch[B] | Watermark | Idle
    ) -> list[Batch[B] | Watermark | Idle]:
        """Take the next element of a virtual channel; return the elements for the new channel.

        A batch is returned unchanged, whichever subtask owns its rows. If it ends the idleness of
        all virtual channels, a watermark precedes it, in case none of its rows belongs to the new
        receiver.
        """
        match element:
            case Batch():
                self._idle[number] = False
                return [*self._news(), element]
            case Watermark(time_us):
                known = self._watermarks[number]
                self._watermarks[number] = time_us if known is None else max(known, time_us)
                self._idle[number] = False
            case Idle():
                self._idle[number] = True
        return [*self._news()]

    def _news(self) -> Iterator[Watermark | Idle]:
        """Yield the change of event time since the last call.

        A channel that was idle becomes active by a watermark.
        """
        if self.time == self._said:
            return
        self._said = watermark_us, idle = self.time
        if idle:
            yield Idle()
        elif watermark_us is not None:
            yield Watermark(watermark_us)
