"""Event time of several old channels that go on as one: the least of them counts.

After a restore with another parallelism, the queue of one new channel holds what was in flight on
several old ones, its *virtual channels*, one after the other. Each of them is in order, together
they are not: a watermark of one says nothing of the rows that wait in another. So every virtual
channel keeps its own watermark here, and what comes out are ordinary elements of the new channel,
with a watermark only where the least of all rises. Nothing is left to be done when they are
processed, and a checkpoint that is taken meanwhile contains what any checkpoint does.

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
        """What the new channel knows."""

    @property
    def time(self) -> ChannelTime:
        """Of all together: unknown until each has a watermark, active if any of them is."""
        known = [w for w in self._watermarks if w is not None]
        if len(known) < len(self._watermarks):
            # An idle channel would not be waited for, and this one may have rows of any age.
            return None, False
        return min(known), all(self._idle)

    def take(
        self, number: int, element: Batch[B] | Watermark | Idle
    ) -> list[Batch[B] | Watermark | Idle]:
        """Take the next element of a virtual channel; return what the new channel carries for it.

        A batch is returned as it is, whoever owns its rows. If it ends the idleness of all, a
        watermark that says so goes ahead, in case no row of it is the new receiver's.
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
        """What the new channel does not know yet. One that was idle is active with a watermark."""
        if self.time == self._said:
            return
        self._said = watermark_us, idle = self.time
        if idle:
            yield Idle()
        elif watermark_us is not None:
            yield Watermark(watermark_us)
