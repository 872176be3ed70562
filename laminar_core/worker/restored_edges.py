"""The input edges of a subtask after a restore: queued elements, and event time.

With the same parallelism each channel continues where it was. With another one, the queues of the
old channels that a new receiver takes over (``state.rescaling``) become one queue, the first
sender's: first the elements that had arrived at the old receiver, then those that the old sender
still had to send, each row only at its new owner. The old channels are read and filtered one after
the other, so memory holds one of them beside the result.

Event time of the other new channels begins at the combined event time of the edge, because rows of
a new sender derive from rows that no old sender had sent.

Source: PROTOCOL sections 9 and 10.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from laminar_core.codec.inflight import InflightElement
from laminar_core.plan.plan import Broadcast, Edge, Forward, Keyed, Plan, Rebalance
from laminar_core.protocol.types import Batch, ChannelId
from laminar_core.protocol.virtual_channels import ChannelTime, VirtualChannels
from laminar_core.protocol.watermarks import WatermarkGate
from laminar_core.records.channel_entries import AlignmentEntry
from laminar_core.state.rescaling import Exchange, Own, Rescaling
from laminar_core.worker.inflight import ElementSizes, SnapshotLimits
from laminar_core.worker.outputs import numbered_inputs, senders_of

ReadChannel = Callable[[int, int], Iterable[InflightElement]]
"""Returns the in-flight elements of an old channel, given sender and receiver, in order."""

UNKNOWN: ChannelTime = (None, False)


@dataclass(frozen=True, slots=True)
class RestoredEdge:
    """One new receiver's end of an edge, by new sender; senders that are missing begin anew."""

    queues: Mapping[int, Sequence[InflightElement]] = field(
        default_factory=dict[int, Sequence[InflightElement]]
    )
    times: Mapping[int, ChannelTime] = field(default_factory=dict[int, ChannelTime])


class EventTimes:
    """Event time of every old channel and subtask at the cut."""

    def __init__(self, plan: Plan, parallelism: int, alignment: Iterable[AlignmentEntry]) -> None:
        self._combined: dict[tuple[str, int], int | None] = {}
        self._channels: dict[tuple[int, int, int], ChannelTime] = {}
        for entry in alignment:
            self._combined[entry.vertex_id, entry.subtask_index] = entry.watermark_us
            known = {ChannelId(c.input_id): (c.watermark_us, c.idle) for c in entry.channels}
            here = numbered_inputs(plan, entry.vertex_id, entry.subtask_index, parallelism)
            for edge, sender, channel in here:
                if channel in known:
                    key = edge.edge_id, sender, entry.subtask_index
                    self._channels[key] = known[channel]

    def of_channel(self, edge: Edge, sender: int, receiver: int) -> ChannelTime:
        """Return the event time of the elements that the receiver had processed."""
        return self._channels.get((edge.edge_id, sender, receiver), UNKNOWN)

    def of_subtasks(self, vertex_id: str, subtasks: Iterable[int]) -> int | None:
        """Return the minimal combined watermark of these subtasks; unknown if one has none."""
        found = [self._combined.get((vertex_id, subtask)) for subtask in subtasks]
        known = [watermark_us for watermark_us in found if watermark_us is not None]
        return min(known, default=None) if len(known) == len(found) else None


def same_edge(
    edge: Edge, receiver: int, parallelism: int, times: EventTimes, read: ReadChannel
) -> RestoredEdge:
    """Restore every channel; elements that waited at the sender wait there again.

    ``read`` returns only the elements of the receiver's queue.
    """
    senders = senders_of(edge, receiver, parallelism)
    return RestoredEdge(
        {sender: list(read(sender, receiver)) for sender in senders},
        {sender: times.of_channel(edge, sender, receiver) for sender in senders},
    )


def rescaled_edge(
    edge: Edge, receiver: int, rescaling: Rescaling, times: EventTimes, read: ReadChannel
) -> RestoredEdge:
    """Restore old channels as virtual ones in the queue of the first new sender."""
    old = [
        (sender, origin)
        for origin in rescaling.origins_of_receiver(exchange_of(edge), receiver)
        for sender in senders_of(edge, origin, rescaling.before)
    ]
    channels = VirtualChannels([times.of_channel(edge, *channel) for channel in old])
    at_cut = channels.time
    queue: list[InflightElement] = []
    for number, channel in enumerate(old):
        own = _owner(edge, receiver, rescaling)
        for element in read(*channel):
            for carried in channels.take(number, element):
                if not isinstance(carried, Batch):
                    queue.append(carried)
                elif (rows := own(carried.data)) is not None:
                    queue.append(Batch(rows))
    first, *others = senders_of(edge, receiver, rescaling.after)
    return RestoredEdge({first: queue}, {first: at_cut} | dict.fromkeys(others, channels.time))


def restored_gate(
    inputs: Sequence[tuple[Edge, int, ChannelId]],
    restored: Mapping[int, RestoredEdge],
    combined_us: int | None,
) -> WatermarkGate:
    """Return a gate that continues event time from the cut; feedback channels are not part of it.

    ``inputs``: (edge, sender, channel); ``restored``: by edge id.
    """
    timed = [
        (restored[e.edge_id], sender, channel) for e, sender, channel in inputs if not e.feedback
    ]
    gate = WatermarkGate(channel for _, _, channel in timed)
    times = [(channel, *edge.times.get(sender, UNKNOWN)) for edge, sender, channel in timed]
    gate.restore(times, combined_us)
    return gate


def wide_enough(limits: SnapshotLimits, restored: Iterable[RestoredEdge]) -> SnapshotLimits:
    """Allow as much more in flight as is being replayed in the fullest queue.

    What several queues held may be in one now. A checkpoint of it would be given up each time, and
    after some of these the job would start again, with the same queue.
    """
    sizes = [sum(map(ElementSizes(), queue)) for edge in restored for queue in edge.queues.values()]
    allowed = limits.max_inflight_buffer_bytes + max(sizes, default=0)
    return replace(limits, max_inflight_buffer_bytes=allowed)


def exchange_of(edge: Edge) -> Exchange:
    """Return the rule by which the edge divides its rows."""
    match edge.partitioning:
        case Keyed():
            return "keyed"
        case Rebalance():
            return "rebalance"
        case Broadcast():
            return "broadcast"
        case Forward():
            return "forward"


def _owner(edge: Edge, receiver: int, rescaling: Rescaling) -> Own:
    match edge.partitioning:
        case Keyed(columns):
            return rescaling.owned_by(columns, receiver)
        case Rebalance():
            return rescaling.dealt_to(receiver)
        case Broadcast() | Forward():
            return _nobody


def _nobody(batch: pa.RecordBatch) -> None:
    raise AssertionError(f"{batch.num_rows} rows in flight on an edge where no barrier overtakes")
