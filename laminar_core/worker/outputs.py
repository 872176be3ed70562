"""The sending side of an edge: the distribution of rows to receivers."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import pyarrow as pa

from laminar_core.codec.key_groups import partition
from laminar_core.link.wire import ArrowElement
from laminar_core.plan.plan import Broadcast, Edge, Forward, Keyed, Plan, Rebalance, SideOutput
from laminar_core.protocol.types import Batch, ChannelId
from laminar_core.records.manifest import EdgeEntry, EdgeRef
from laminar_core.worker.channels import OutputChannel

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


def _by_key(
    edge: Edge, columns: Sequence[str], sender: int, parallelism: int, max_parallelism: int
) -> Split:
    def split(batch: pa.RecordBatch) -> Iterable[tuple[int, pa.RecordBatch]]:
        for receiver, part in partition(batch, columns, max_parallelism, parallelism):
            # Parts share the memory of all. What is sent is copied; what stays in this process
            # may be kept for long, in state or in the queue of a loop.
            stays = edge.feedback or receiver == sender
            yield receiver, pa.concat_batches([part]) if stays and part is not batch else part

    return split


def _round_robin(first: int, parallelism: int) -> Split:
    turn = first

    def split(batch: pa.RecordBatch) -> Iterable[tuple[int, pa.RecordBatch]]:
        nonlocal turn
        receiver, turn = turn, (turn + 1) % parallelism
        return ((receiver, batch),)

    return split


class EdgeOutput:
    """One subtask's sending side of one edge."""

    def __init__(
        self,
        split: Split,
        channels: Mapping[int, OutputChannel],
        *,
        may_overtake: bool,
        in_loop: bool = False,
        side: SideOutput | None = None,
    ) -> None:
        self._split = split
        self.channels = channels
        self.may_overtake = may_overtake
        self.in_loop = in_loop
        """Whether both ends are in one loop."""
        self.side = side
        """The side output that it sends; None: the rows of the whole chain."""

    @property
    def has_room(self) -> bool:
        """Whether more rows may be produced. Any full channel holds the subtask back."""
        return all(channel.has_room for channel in self.channels.values())

    def send(self, batch: pa.RecordBatch) -> None:
        """Divide the rows among the receivers and enqueue them."""
        for receiver, part in self._split(batch):
            if part.num_rows:
                self.channels[receiver].put(Batch(part))

    def broadcast(self, element: ArrowElement) -> None:
        """Send a watermark, barrier, marker or end to every receiver, behind what waits."""
        for channel in self.channels.values():
            channel.put(element)

    def flush(self) -> bool:
        """Send as many elements as credit allows; return whether any was sent."""
        return sum(channel.flush() for channel in self.channels.values()) > 0
