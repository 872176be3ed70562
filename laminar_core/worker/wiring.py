"""Build one worker's tasks and connect them: channels, state, and routing of frames."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from laminar_core.codec.inflight import InflightElement
from laminar_core.host.calls import Calls, ThreadCalls
from laminar_core.host.clock import Clock
from laminar_core.link.channel_ends import ReceivingEnd, SendingEnd
from laminar_core.link.greeter import Greeter
from laminar_core.link.links import Links
from laminar_core.link.messages import SourceProgress
from laminar_core.link.sockets import Buffer
from laminar_core.link.transport import WorkerTransport
from laminar_core.link.wire import ArrowElement, ElementCodec, FrameKind, Header, decode_header
from laminar_core.operators.base import AnySubtask, makes_event_time, redistribution_of
from laminar_core.plan.plan import Edge, Forward, SinkNode, SourceNode, Vertex
from laminar_core.protocol.links import LINK_DOWN_MAX_MS
from laminar_core.protocol.types import WATERMARK_END_US, ChannelId
from laminar_core.protocol.unaligned import (
    Direction,
    QueueId,
    UnalignedCheckpointMetrics,
)
from laminar_core.protocol.watermarks import WatermarkGate
from laminar_core.records.bad_rows import BadRowTotals
from laminar_core.records.sink_outputs import columns_of
from laminar_core.state.chunks import MemoryBackend, StateBackend
from laminar_core.worker.bad_rows import BadRowGate
from laminar_core.worker.channels import InputChannel, OutputChannel
from laminar_core.worker.deployment import Deployment, RestoredState
from laminar_core.worker.inflight import Queue
from laminar_core.worker.loops import FeedbackChannel, HeadTask
from laminar_core.worker.outputs import (
    EdgeOutput,
    channel_count,
    collector_of,
    edge_ref,
    numbered_inputs,
    receivers_of,
    splitter,
)
from laminar_core.worker.pacing import PacedSource
from laminar_core.worker.restored_edges import restored_gate, wide_enough
from laminar_core.worker.sinks import CommittingSink
from laminar_core.worker.spill import SpillQueue
from laminar_core.worker.task import Task, TaskListener, TaskParts

ChannelKey = tuple[int, int]
"""(edge id, index of the subtask at the other end)."""


@dataclass(frozen=True, slots=True)
class RowCounts:
    """Rows of one worker, over the whole history of the job."""

    rows_in: int
    rows_out: int
    rows_late: int
    bad_rows: BadRowTotals


@dataclass(slots=True)
class Wiring:
    """The tasks of one worker, and the tables that incoming frames are looked up in."""

    subtask_index: int
    generation: int
    tasks: list[Task] = field(default_factory=list[Task])
    inputs: dict[ChannelKey, tuple[Task, InputChannel]] = field(
        default_factory=dict[ChannelKey, tuple[Task, InputChannel]]
    )
    outputs: dict[ChannelKey, OutputChannel] = field(
        default_factory=dict[ChannelKey, OutputChannel]
    )
    codecs: dict[int, ElementCodec] = field(default_factory=dict[int, ElementCodec])
    sending: dict[ChannelKey, SendingEnd] = field(default_factory=dict[ChannelKey, SendingEnd])
    """Ends of the channels to other workers."""
    receiving: dict[ChannelKey, ReceivingEnd] = field(
        default_factory=dict[ChannelKey, ReceivingEnd]
    )
    """Ends of the channels from other workers."""
    queues: dict[tuple[str, QueueId], Queue] = field(
        default_factory=dict[tuple[str, QueueId], Queue]
    )
    """By vertex: where in-flight data is filed."""
    backend: StateBackend = field(default_factory=MemoryBackend)
    calls: Calls = field(default_factory=ThreadCalls)
    link_down_max_ms: float = LINK_DOWN_MAX_MS
    links: Links = field(init=False)
    """The connections to the other workers."""
    greeter: Greeter = field(init=False)
    foreign_frames: int = 0
    """Frames of other generations that were dropped."""

    def __post_init__(self) -> None:
        self.links = Links(self.subtask_index, self.generation, self.link_down_max_ms)
        self.greeter = Greeter(self.subtask_index, self.generation)

    def on_frame(self, header_bytes: Buffer, payload: Buffer) -> None:
        """Route an incoming frame, once all frames before it have arrived.

        A frame of another generation is dropped: a worker that was replaced may still be sending,
        and its channels may differ from the current ones (ERRATA 3.23).

        Raises:
            ProtocolError: the transport delivered an invalid frame, or a frame is missing although
                no connection has broken (OUT_OF_ORDER).
        """
        header = decode_header(header_bytes)
        if header.generation != self.generation:
            self.foreign_frames += 1
            return
        self.links.hear(header)
        match header.kind:
            case FrameKind.CREDIT | FrameKind.RESEND:
                key = header.edge_id, header.receiver
                self.outputs[key].give_up_to(header.sequence)
                self.sending[key].confirmed(header, payload)
            case FrameKind.ROLL_CALL:
                self.links.answer(header.sender)
            case FrameKind.GREETING:
                self.greeter.hear(header.sender)
            case FrameKind.PRESENT:
                pass
            case FrameKind.MARK:
                self.receiving[header.edge_id, header.sender].marked(header.sequence)
            case _:
                self._on_numbered(header, payload)

    def _on_numbered(self, header: Header, payload: Buffer) -> None:
        key = header.edge_id, header.sender
        task, channel = self.inputs[key]
        codec = self.codecs[header.edge_id]
        for kind, data in self.receiving[key].receive(header, payload):
            task.arrived(channel.channel, codec.decode(kind, data))

    def counts(self) -> RowCounts:
        """Return the rows that sources read, sinks wrote and operators dropped as late."""
        sources = [t.parts.source for t in self.tasks if t.parts.source is not None]
        sinks = [t.parts.sink for t in self.tasks if t.parts.sink is not None]
        operators = [operator for t in self.tasks for _, operator in t.parts.operators]
        return RowCounts(
            rows_in=sum(s.rows_before + s.rows_since_start for s in sources),
            rows_out=sum(s.rows_written for s in sinks),
            rows_late=sum(getattr(o, "late_row_count", 0) for o in operators),
            bad_rows=BadRowTotals.total(s.gate.totals for s in sources),
        )

    def flowing(self) -> bool:
        """Return whether any row was read or replayed since the start."""
        return any(
            (task.parts.source is not None and task.parts.source.rows_since_start > 0)
            or any(channel.batches_replayed > 0 for channel in task.parts.inputs)
            for task in self.tasks
        )

    def drained(self) -> bool:
        """Return whether every input has ended and everything is flushed."""
        return all(task.finished for task in self.tasks)

    def sources(self) -> dict[str, SourceProgress]:
        """Return how far the sources are."""
        return {
            task.parts.source_id: SourceProgress(
                rows_unread=source.rows_unread,
                splits_added=source.splits_added,
                numbers=source.numbers,
                slowest_us=source.slowest_us,
            )
            for task in self.tasks
            if (source := task.parts.source) is not None and task.parts.source_id is not None
        }

    def collected(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield the rows that sinks collected for the driver: (sink, batch)."""
        for task in self.tasks:
            if task.parts.sink is not None and task.parts.sink_id is not None:
                for batch in task.parts.sink.writer.collected():
                    yield task.parts.sink_id, batch

    def unaligned(self) -> UnalignedCheckpointMetrics:
        """Return the metrics of unaligned cuts over all tasks."""
        return UnalignedCheckpointMetrics.total(task.unaligned for task in self.tasks)

    def watermark_us(self) -> int | None:
        """Return the minimal event time of vertices with inputs; None until all know it.

        Vertices in a loop have none.
        """
        timed = [t for t in self.tasks if t.parts.inputs and t.parts.loop is None]
        gates = [t.parts.gate.combined_us for t in timed]
        known = [w for w in gates if w is not None]
        return min(known) if known and len(known) == len(gates) else None


class _Builder:
    def __init__(
        self,
        deployment: Deployment,
        restored: RestoredState,
        transport: WorkerTransport,
        listener: TaskListener,
        clock: Clock,
        wiring: Wiring,
    ) -> None:
        self.deployment = deployment
        self.restored = restored
        self.transport = transport
        self.listener = listener
        self.clock = clock
        self.wiring = wiring
        self.me = wiring.subtask_index
        self.channels_to = [
            channel_count(deployment.plan, receiver, deployment.parallelism)
            for receiver in range(deployment.parallelism)
        ]

    def build(self) -> None:
        """From the sinks up, so that a local receiver exists before its sender.

        But for feedback: its receiver is looked up when there is something to deliver.
        """
        for edge in self.deployment.plan.edges:
            self.wiring.codecs[edge.edge_id] = ElementCodec(edge.schema)
        for vertex in reversed(self.deployment.plan.vertices):
            parts = self._parts(vertex)
            task = (HeadTask if parts.feedback else Task)(parts, self.listener, self.clock)
            self.wiring.tasks.insert(0, task)
            for edge, sender, channel in self._numbered_inputs(vertex):
                found = next(i for i in task.parts.inputs if i.channel == channel)
                self.wiring.inputs[edge.edge_id, sender] = (task, found)

    def _parts(self, vertex: Vertex) -> TaskParts:
        numbered = self._numbered_inputs(vertex)
        plan = self.deployment.plan
        restored = {e.edge_id: self.restored.edge(e) for e in plan.inputs_of(vertex.vertex_id)}
        inputs = [
            self._input(edge, sender, channel, restored[edge.edge_id].queues.get(sender, ()))
            for edge, sender, channel in numbered
        ]
        outputs = [self._output(edge) for edge in plan.outputs_of(vertex.vertex_id)]
        self._file_queues(vertex)
        feedback = frozenset(c for edge, _, c in numbered if edge.feedback)
        gate = restored_gate(numbered, restored, self.restored.event_time_us(vertex.vertex_id))
        return TaskParts(
            vertex_id=vertex.vertex_id,
            subtask_index=self.me,
            source=None if vertex.source is None else self._source(vertex.source, vertex),
            inputs=inputs,
            operators=self._operators(vertex),
            source_id=None if vertex.source is None else vertex.source.operator_id,
            sink=None if vertex.sink is None else self._sink(vertex, vertex.sink),
            sink_id=None if vertex.sink is None else vertex.sink.operator_id,
            outputs=outputs,
            gate=gate,
            newest_id=self.deployment.newest_id,
            limits=wide_enough(self.deployment.limits, restored.values()),
            incremental=self.deployment.state.incremental,
            aligned_only=frozenset(c for e, _, c in numbered if not e.may_overtake) - feedback,
            feedback=feedback,
            loop=plan.loops().get(vertex.vertex_id),
            inside=frozenset(c for edge, _, c in numbered if edge.loop is not None),
            finished=vertex.source is not None and self.restored.finished(vertex.vertex_id),
            replay_edges=[
                [channel for edge, _, channel in numbered if edge.edge_id == one.edge_id]
                for one in plan.inputs_of(vertex.vertex_id)
                if one.loop is None
            ],
            input_of={channel: edge.feeds for edge, _, channel in numbered},
            senders={channel: (edge.upstream, sender) for edge, sender, channel in numbered},
            announced_us=self._announced_us(vertex, gate),
            passes_idleness=all(
                isinstance(edge.partitioning, Forward) and not edge.feedback
                for edge, _, _ in numbered
            ),
        )

    def _announced_us(self, vertex: Vertex, gate: WatermarkGate) -> int | None:
        """Return the watermark that receivers hear of first.

        After a change of parallelism all senders are new to them; and so is one that has a new
        receiver.
        """
        ended = gate.combined_us == WATERMARK_END_US
        known = self.deployment.rescaling is None and not self.restored.has_new_receiver(
            vertex.vertex_id
        )
        return None if known or ended else gate.combined_us

    def _numbered_inputs(self, vertex: Vertex) -> list[tuple[Edge, int, ChannelId]]:
        plan, parallelism = self.deployment.plan, self.deployment.parallelism
        return numbered_inputs(plan, vertex.vertex_id, self.me, parallelism)

    # --- the inside of a vertex -----------------------------------------------------------------

    def _source(self, node: SourceNode, vertex: Vertex) -> PacedSource:
        pace = node.rows_per_second
        reader = node.source.open(self.restored.splits(node.operator_id))
        parts = self.restored.snapshots(node.operator_id, "split")
        paced = PacedSource(
            reader,
            self.clock,
            None if pace is None else pace / self.deployment.parallelism,
            node.idle_timeout_ms,
            BadRowGate(
                node.operator_id,
                node.bad_rows,
                reader.position,
                skip=self.deployment.skip_bad,
                before=BadRowTotals.total(
                    BadRowTotals.of_properties(part.properties) for part in parts
                ),
            ),
            grows=node.operator_id in self.deployment.growing,
        )
        paced.gathers = gathers(node, vertex)
        paced.properties = node.source.properties
        if node.source.reading == "parallel":
            paced.watch_splits(node.max_drift_us)
        return paced

    def _operators(self, vertex: Vertex) -> Sequence[tuple[str, AnySubtask]]:
        opened: list[tuple[str, AnySubtask]] = []
        for spec, inputs in vertex.operators_with_inputs():
            context = self.deployment.context(spec.operator_id, self.me)
            context = replace(
                context,
                backend=self.wiring.backend,
                clock=self.clock,
                calls=self.wiring.calls,
            )
            subtask = spec.open(context, *inputs)
            if snapshots := self.restored.snapshots(spec.operator_id, redistribution_of(spec)):
                subtask.restore(snapshots)
            opened.append((spec.operator_id, subtask))
        return opened

    def _sink(self, vertex: Vertex, node: SinkNode) -> CommittingSink:
        context = self.deployment.context(node.operator_id, self.me)
        context = replace(context, staging=self.restored.staging(node.operator_id))
        schema = vertex.output_schema()
        columns = columns_of(schema) if self.me == 0 else ()
        sink = CommittingSink(node.sink.open(context, schema), columns)
        if snapshots := self.restored.snapshots(node.operator_id, "split"):
            sink.restore(snapshots)
        return sink

    # --- channels -------------------------------------------------------------------------------

    def _input(
        self, edge: Edge, sender: int, channel: ChannelId, queued: Sequence[InflightElement]
    ) -> InputChannel:
        created = InputChannel(channel, self._grant(edge, sender, channel))
        created.restore(queued)
        return created

    def _output(self, edge: Edge) -> EdgeOutput:
        parallelism = self.deployment.parallelism
        channels: dict[int, OutputChannel] = {}
        for receiver in receivers_of(edge, self.me, parallelism):
            deliver = self._local(edge) if receiver == self.me else self._remote(edge, receiver)
            channel = (
                FeedbackChannel(deliver, SpillQueue(edge.schema), self._share(receiver))
                if edge.feedback
                else OutputChannel(deliver, self._share(receiver))
            )
            if isinstance(deliver, SendingEnd):
                channel.may_send = deliver.has_room
            channel.restore(self.restored.outgoing(edge, receiver))
            channels[receiver] = self.wiring.outputs[edge.edge_id, receiver] = channel
        split = splitter(edge, self.me, parallelism, self.deployment.plan.max_parallelism)
        return EdgeOutput(
            split,
            channels,
            may_overtake=edge.may_overtake,
            in_loop=edge.loop is not None,
            side=edge.side,
            timed=edge.timed,
            collector=collector_of(edge, parallelism, self.clock),
        )

    def _share(self, receiver: int) -> int:
        """Return how many bytes each channel may have out to this worker."""
        return self.deployment.receive_bytes // self.channels_to[receiver]

    def _file_queues(self, vertex: Vertex) -> None:
        """Assign each queue the operator under which its in-flight data is stored."""
        plan, ids = self.deployment.plan, list(vertex.operator_ids())
        inputs = [(edge, sender, self.me) for edge, sender, _ in self._numbered_inputs(vertex)]
        outputs = [
            (edge, self.me, receiver)
            for edge in plan.outputs_of(vertex.vertex_id)
            for receiver in receivers_of(edge, self.me, self.deployment.parallelism)
        ]
        queues: tuple[tuple[Direction, str, list[tuple[Edge, int, int]]], ...] = (
            ("input", ids[0], inputs),
            ("output", ids[-1], outputs),
        )
        for direction, operator_id, channels in queues:
            for number, (edge, sender, receiver) in enumerate(channels):
                queue_id = QueueId(direction, number)
                self.wiring.queues[vertex.vertex_id, queue_id] = Queue(
                    queue_id,
                    operator_id,
                    self.me,
                    edge_ref(plan, edge),
                    sender,
                    receiver,
                    edge.schema,
                )

    def _local(self, edge: Edge) -> "_LocalDelivery":
        return _LocalDelivery(self.wiring, (edge.edge_id, self.me))

    def _remote(self, edge: Edge, receiver: int) -> SendingEnd:
        codec = self.wiring.codecs[edge.edge_id]
        header = Header(self.wiring.generation, edge.edge_id, self.me, receiver, FrameKind.BATCH, 0)
        end = SendingEnd(self.transport, codec, header)
        self.wiring.sending[edge.edge_id, receiver] = end
        return self.wiring.links.add_sending(receiver, end)

    def _grant(self, edge: Edge, sender: int, channel: ChannelId) -> "ReceivingEnd | _LocalGrant":
        if sender == self.me:
            return _LocalGrant(self.wiring, (edge.edge_id, self.me))
        header = Header(self.wiring.generation, edge.edge_id, sender, self.me, FrameKind.CREDIT, 0)
        links = self.wiring.links
        end = ReceivingEnd(self.transport, header, channel, links.have_broken)
        self.wiring.receiving[edge.edge_id, sender] = end
        return links.add_receiving(sender, end)


class _LocalDelivery:
    """Both ends live in this worker."""

    def __init__(self, wiring: Wiring, key: ChannelKey) -> None:
        self._wiring = wiring
        self._key = key

    def __call__(self, element: ArrowElement) -> None:
        task, channel = self._wiring.inputs[self._key]
        task.arrived(channel.channel, element)


class _LocalGrant:
    """Gives credit back to a sender in this worker."""

    def __init__(self, wiring: Wiring, key: ChannelKey) -> None:
        self._wiring = wiring
        self._key = key

    def __call__(self, batches: int) -> None:
        self._wiring.outputs[self._key].give(batches)


def gathers(node: SourceNode, vertex: Vertex) -> bool:
    """Return whether small batches of the source become one; see ``Source.gathers``."""
    return node.source.gathers and not any(map(makes_event_time, vertex.operators))


def wire(
    wiring: Wiring,
    deployment: Deployment,
    restored: RestoredState,
    transport: WorkerTransport,
    listener: TaskListener,
    clock: Clock,
) -> None:
    """Build the tasks of one worker and restore their state.

    Raises:
        CorruptCheckpointError: a state file contradicts the manifest.
        DataError: a source cannot be opened.
    """
    _Builder(deployment, restored, transport, listener, clock, wiring).build()
