"""The sending side of an edge: the distribution of rows to receivers."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import pyarrow as pa

from laminar_core.codec.key_groups import partition
from laminar_core.host.clock import Clock
from laminar_core.link.wire import ArrowElement
from laminar_core.plan.plan import Broadcast, Edge, Forward, Keyed, Plan, Rebalance, SideOutput
from laminar_core.protocol.types import Batch, ChannelId, Watermark
from laminar_core.records.channel_entries import EdgeEntry, EdgeRef
from laminar_core.worker.channels import OutputChannel
from laminar_core.worker.collecting import RowCollector

Split = Callable[[pa.RecordBatch], Iterable[tuple[int, pa.RecordBatch]]]


def receivers_of(edge: Edge, sender: int, parallelism: int) -> range:
    """Return the subtasks that ``sender`` has a channel to."""
    if isinstance(edge.partitioning, Forward):
        return range(sender, sender + 1)
    return range(parallelism)


def senders_of(edge: Edge, receiver: int, parallelism: int) -> range:
    """Return the subtasks that have a channel to ``receiver``; the relation is symmetric."""
    return receivers_of(edge, receiver, parallelism)


def numbered_inputs(
    plan: Plan, vertex_id: str, receiver: int, parallelism: int
) -> list[tuple[Edge, int, ChannelId]]:
    """Return (edge, sender, channel); channels are numbered from 0 by edges and senders."""
    pairs = [
        (edge, sender)
        for edge in plan.inputs_of(vertex_id)
        for sender in senders_of(edge, receiver, parallelism)
    ]
    return [(edge, sender, ChannelId(number)) for number, (edge, sender) in enumerate(pairs)]


def channel_count(plan: Plan, receiver: int, parallelism: int) -> int:
    """Return how many channels lead to the tasks of a worker."""
    return sum(
        len(numbered_inputs(plan, vertex.vertex_id, receiver, parallelism))
        for vertex in plan.vertices
    )


def edge_ref(plan: Plan, edge: Edge) -> EdgeRef:
    """Return the reference to the edge for a checkpoint."""
    return EdgeRef(
        upstream=edge.upstream,
        downstream=edge.downstream,
        input_index=plan.input_index(edge),
        feedback=edge.feedback,
    )


def edge_entry(plan: Plan, edge: Edge) -> EdgeEntry:
    """Return the manifest's entry for the edge."""
    ref = edge_ref(plan, edge)
    return EdgeEntry(**dict(ref), partitioning=edge.partitioning.kind, loop=edge.loop)


def splitter(edge: Edge, sender: int, parallelism: int, max_parallelism: int) -> Split:
    """Return the function by which ``sender`` divides a batch among receivers."""
    match edge.partitioning:
        case Keyed(columns):
            return _by_key(edge, columns, sender, parallelism, max_parallelism)
        case Forward():
            return lambda batch: ((sender, batch),)
        case Broadcast():
            return lambda batch: ((receiver, batch) for receiver in range(parallelism))
        case Rebalance():
            return _round_robin(sender, parallelism)


def collector_of(edge: Edge, parallelism: int, clock: Clock) -> RowCollector | None:
    """Return where small batches wait before they are divided; None: they are divided at once.

    Only keyed edges divide batches. The counters of a loop count batches in queues, and a loop is
    over when there are none.
    """
    if isinstance(edge.partitioning, Keyed) and edge.loop is None:
        return RowCollector(parallelism, clock)
    return None


def _by_key(
    edge: Edge, columns: Sequence[str], sender: int, parallelism: int, max_parallelism: int
) -> Split:
    def split(batch: pa.RecordBatch) -> Iterable[tuple[int, pa.RecordBatch]]:
        for receiver, part in partition(batch, columns, max_parallelism, parallelism):
            # What is sent is copied anyway. What stays in this process may be kept for long, in
            # state or in the queue of a loop.
            stays = edge.feedback or receiver == sender
            yield receiver, _by_itself(part) if stays else part

    return split


def _by_itself(part: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows in memory of their own, if they keep much more than they need."""
    shares = part.get_total_buffer_size() > 2 * part.nbytes
    return pa.concat_batches([part]) if shares else part


def _round_robin(first: int, parallelism: int) -> Split:
    turn = first

    def split(batch: pa.RecordBatch) -> Iterable[tuple[int, pa.RecordBatch]]:
        nonlocal turn
        receiver, turn = turn, (turn + 1) % parallelism
        return ((receiver, batch),)

    return split


class EdgeOutput:
    """One subtask's sending side of one edge."""

    def __init__(  # noqa: PLR0913 - a configuration, by keyword
        self,
        split: Split,
        channels: Mapping[int, OutputChannel],
        *,
        may_overtake: bool,
        in_loop: bool = False,
        side: SideOutput | None = None,
        timed: bool = True,
        collector: RowCollector | None = None,
    ) -> None:
        self._split = split
        self._collector = collector
        self.channels = channels
        self.may_overtake = may_overtake
        self.in_loop = in_loop
        """Whether both ends are in one loop."""
        self.side = side
        """The side output that it sends; None: the rows of the whole chain."""
        self.timed = timed
        """Whether its receivers get watermarks; without them event time begins at the end only."""

    @property
    def has_room(self) -> bool:
        """Whether more rows may be produced. Any full channel holds the subtask back."""
        return all(channel.has_room for channel in self.channels.values())

    def send(self, batch: pa.RecordBatch) -> None:
        """Divide the rows among the receivers and enqueue them, or collect them for a while."""
        collector = self._collector
        if collector is None or not batch.num_rows:
            self._divide(batch)
            return
        if not (collector.is_small(batch) and collector.has_room_for(batch)):
            self.divide_collected()
        if collector.is_small(batch) and (collector.row_count or self._waits):
            collector.add(batch)
            if collector.is_due:
                self.divide_collected()
        else:
            self._divide(batch)

    def divide_collected(self) -> None:
        """Enqueue the collected rows, because what comes now must be behind them."""
        for batch in () if self._collector is None else self._collector.take():
            self._divide(batch)

    def broadcast(self, element: ArrowElement) -> None:
        """Send a watermark, barrier, marker or end to every receiver, behind what waits."""
        if isinstance(element, Watermark) and not self.timed:
            return
        self.divide_collected()
        for channel in self.channels.values():
            channel.put(element)

    def flush(self) -> bool:
        """Send as many elements as credit allows; return whether any was sent.

        Collected rows go, too, unless others still wait and some were added since the last call.
        """
        sent = self._flush_channels()
        collector = self._collector
        if collector is None or not collector.row_count:
            return sent
        if collector.grew() and self._waits and not collector.is_due:
            return sent
        self.divide_collected()
        return self._flush_channels() or sent

    @property
    def _waits(self) -> bool:
        """Whether rows wait for credit, at least on one channel."""
        return any(not channel.empty for channel in self.channels.values())

    def _divide(self, batch: pa.RecordBatch) -> None:
        for receiver, part in self._split(batch):
            if part.num_rows:
                self.channels[receiver].put(Batch(part))

    def _flush_channels(self) -> bool:
        return sum(channel.flush() for channel in self.channels.values()) > 0
