"""The sending side of an edge: who gets which rows."""

from collections.abc import Callable, Iterable, Mapping

import pyarrow as pa

from laminar_core.codec.key_groups import partition
from laminar_core.link.wire import ArrowElement
from laminar_core.plan.plan import Broadcast, Edge, Forward, Keyed, Plan, Rebalance
from laminar_core.protocol.types import Batch, ChannelId
from laminar_core.records.manifest import EdgeEntry, EdgeRef
from laminar_core.worker.channels import OutputChannel

Split = Callable[[pa.RecordBatch], Iterable[tuple[int, pa.RecordBatch]]]


def receivers_of(edge: Edge, sender: int, parallelism: int) -> range:
    """Subtasks that ``sender`` has a channel to."""
    if isinstance(edge.partitioning, Forward):
        return range(sender, sender + 1)
    return range(parallelism)


def senders_of(edge: Edge, receiver: int, parallelism: int) -> range:
    """Subtasks that have a channel to ``receiver``: the same relation, seen from the other end."""
    return receivers_of(edge, receiver, parallelism)


def numbered_inputs(
    plan: Plan, vertex_id: str, receiver: int, parallelism: int
) -> list[tuple[Edge, int, ChannelId]]:
    """(edge, sender, channel), channels dense from 0 in the order of edges and senders."""
    pairs = [
        (edge, sender)
        for edge in plan.inputs_of(vertex_id)
        for sender in senders_of(edge, receiver, parallelism)
    ]
    return [(edge, sender, ChannelId(number)) for number, (edge, sender) in enumerate(pairs)]


def edge_ref(plan: Plan, edge: Edge) -> EdgeRef:
    """The edge as a checkpoint names it."""
    return EdgeRef(
        upstream=edge.upstream,
        downstream=edge.downstream,
        input_index=plan.input_index(edge),
        feedback=edge.feedback,
    )


def edge_entry(plan: Plan, edge: Edge) -> EdgeEntry:
    """The edge as a manifest lists it."""
    ref = edge_ref(plan, edge)
    return EdgeEntry(**dict(ref), partitioning=edge.partitioning.kind, loop=edge.loop)


def splitter(edge: Edge, sender: int, parallelism: int, max_parallelism: int) -> Split:
    """How ``sender`` divides a batch among the receivers of the edge."""
    match edge.partitioning:
        case Keyed(columns):
            return lambda batch: partition(batch, columns, max_parallelism, parallelism)
        case Forward():
            return lambda batch: ((sender, batch),)
        case Broadcast():
            return lambda batch: ((receiver, batch) for receiver in range(parallelism))
        case Rebalance():
            return _round_robin(sender, parallelism)


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
    ) -> None:
        self._split = split
        self.channels = channels
        self.may_overtake = may_overtake
        self.in_loop = in_loop
        """Both ends are in one loop."""

    @property
    def has_room(self) -> bool:
        """May more be produced? Any full channel holds the subtask back."""
        return all(channel.has_room for channel in self.channels.values())

    def send(self, batch: pa.RecordBatch) -> None:
        """Divide the rows among the receivers."""
        for receiver, part in self._split(batch):
            if part.num_rows:
                self.channels[receiver].put(Batch(part))

    def broadcast(self, element: ArrowElement) -> None:
        """Send a watermark, barrier, marker or end to every receiver, behind what waits."""
        for channel in self.channels.values():
            channel.put(element)

    def flush(self) -> bool:
        """Send as far as credit allows."""
        return sum(channel.flush() for channel in self.channels.values()) > 0
