"""In-flight data of one task at a cut: insert barriers into output queues, capture all queues.

The queues know their contents, and ``UnalignedCheckpointer`` keeps the account; this module
connects them. It runs in the task's thread, between two elements, so inserting a barrier and
copying the overtaken elements is one critical section (PROTOCOL section 1).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from laminar_core.codec.inflight import InflightElement
from laminar_core.protocol.types import (
    AlignmentMode,
    Batch,
    ChannelId,
    CheckpointBarrier,
    CheckpointId,
    ResolvedMode,
)
from laminar_core.protocol.unaligned import (
    MAX_INFLIGHT_BUFFER_BYTES,
    InFlightChannelData,
    QueueId,
    UnalignedCheckpointer,
    UnalignedCheckpointMetrics,
)
from laminar_core.records.channel_entries import EdgeRef, InflightEntry
from laminar_core.records.manifest import FileRef
from laminar_core.worker.channels import InputChannel, OutputChannel
from laminar_core.worker.outputs import EdgeOutput

MARK_BYTES = 8
"""A watermark or an idle mark, counted against the limit."""

Captured = InFlightChannelData[InflightElement]


@dataclass(frozen=True, slots=True)
class SnapshotLimits:
    """Limits for one subtask's part of a checkpoint; beyond them the checkpoint is declined."""

    max_inflight_buffer_bytes: int = MAX_INFLIGHT_BUFFER_BYTES
    """Serialised bytes per queue."""
    sync_timeout_ms: float | None = None
    """Limit for the synchronous phase of all operators together."""


@dataclass(frozen=True, slots=True)
class Queue:
    """One end of one channel: what its in-flight data is filed under."""

    queue_id: QueueId
    operator_id: str
    subtask_index: int
    edge: EdgeRef
    sender: int
    receiver: int
    schema: pa.Schema = field(compare=False)

    def entry(self, part: FileRef, offset: int, event_count: int, row_count: int) -> InflightEntry:
        """Return the manifest entry for the queue's part of a file: its path, length and digest."""
        return InflightEntry(
            path=part.path,
            offset=offset,
            size_bytes=part.size_bytes,
            sha256=part.sha256,
            operator_id=self.operator_id,
            direction=self.queue_id.direction,
            subtask_index=self.subtask_index,
            input_id=self.queue_id.number,
            edge=self.edge,
            sender=self.sender,
            receiver=self.receiver,
            event_count=event_count,
            row_count=row_count,
        )


class ElementSizes:
    """Computes the sizes of a queue's elements in an in-flight file, without their frames.

    pyarrow wraps columns anew at each access, so the dictionary columns of the newest schema are
    cached.
    """

    def __init__(self) -> None:
        self._schema: pa.Schema | None = None
        self._encoded: list[int] = []

    def __call__(self, element: InflightElement) -> int:
        """Return the size of one element."""
        if not isinstance(element, Batch):
            return MARK_BYTES
        batch = element.data
        if batch.schema is not self._schema and batch.schema != self._schema:
            self._schema = batch.schema
            types = enumerate(batch.schema.types)
            self._encoded = [n for n, column in types if pa.types.is_dictionary(column)]
        size_bytes = pa.ipc.get_record_batch_size(batch)
        for n in self._encoded:
            size_bytes += batch.column(n).dictionary.get_total_buffer_size()
        return size_bytes


class InflightRecorder:
    """Collects one task's in-flight data; ``deliver`` takes it away, piece by piece."""

    def __init__(
        self,
        inputs: Sequence[InputChannel],
        outputs: Sequence[EdgeOutput],
        max_inflight_buffer_bytes: int,
        deliver: Callable[[Captured], None],
    ) -> None:
        self._inputs: Mapping[ChannelId, InputChannel] = {i.channel: i for i in inputs}
        self._edges = outputs
        self._outputs = list(numbered_outputs(outputs))
        self._account = UnalignedCheckpointer(max_inflight_buffer_bytes, ElementSizes())
        self._deliver = deliver

    @property
    def metrics(self) -> UnalignedCheckpointMetrics:
        """Counters since the start."""
        return self._account.metrics()

    def cut(self, barrier: CheckpointBarrier, mode: AlignmentMode) -> list[Captured]:
        """Send the barrier on, and return what it overtook in the output queues.

        An aligned barrier with a budget may still be overtaken by its timeout, so these output
        queues stay open until it has left them.
        """
        overtake = mode == "unaligned"
        for edge in self._edges:
            edge.divide_collected()  # They are before the cut.
        passed = {
            number: channel.put_barrier(barrier, overtake=overtake and edge.may_overtake)
            for number, edge, channel in self._outputs
        }
        timed = not overtake and barrier.alignment_timeout_ms is not None
        waiting = [
            number
            for number, edge, channel in self._outputs
            if timed and edge.may_overtake and channel.waits(barrier.checkpoint_id)
        ]
        self._account.begin(barrier, mode, waiting)
        return [
            self._account.capture(QueueId("output", number), elements)
            for number, elements in passed.items()
            if elements
        ]

    def time_out(self, checkpoint_id: CheckpointId) -> None:
        """Let barriers in output queues overtake, because the alignment budget is spent."""
        if checkpoint_id != self._account.checkpoint_id:
            return
        for number in self._account.open_outputs:
            elements = self._outputs[number][2].time_out(checkpoint_id)
            self._deliver(self._account.capture(QueueId("output", number), elements))

    def settle(self) -> None:
        """Note the output queues that the barrier has left without overtaking."""
        for number in self._account.open_outputs:
            checkpoint_id = self._account.checkpoint_id
            assert checkpoint_id is not None, "a queue is open for a checkpoint"
            if not self._outputs[number][2].waits(checkpoint_id):
                self._account.left(number)

    def capture(self, checkpoint_id: CheckpointId, channel: ChannelId, *, recording: bool) -> None:
        """Copy what is queued on an input ahead of the barrier."""
        if checkpoint_id == self._account.checkpoint_id:
            elements = self._inputs[channel].ahead_of(checkpoint_id)
            queue = QueueId("input", channel)
            self._deliver(self._account.capture(queue, elements, recording=recording))

    def record(self, channel: ChannelId, element: InflightElement) -> None:
        """Copy what arrives on an input before its barrier."""
        if self._account.checkpoint_id is not None:
            self._deliver(self._account.record(QueueId("input", channel), element))

    def seal(self, checkpoint_id: CheckpointId, channel: ChannelId) -> None:
        """End the recording of an input, because its barrier arrived."""
        if checkpoint_id == self._account.checkpoint_id:
            self._deliver(self._account.seal(QueueId("input", channel)))

    def seal_inputs(self, checkpoint_id: CheckpointId) -> None:
        """Note that the barrier of every input arrived."""
        if checkpoint_id == self._account.checkpoint_id:
            self._account.seal_inputs()

    def discard(self, checkpoint_id: CheckpointId) -> None:
        """Drop the in-flight data of an aborted checkpoint."""
        if checkpoint_id == self._account.checkpoint_id:
            self._account.end()

    def problem(self) -> tuple[CheckpointId, str] | None:
        """Return the checkpoint that exceeds the limit, and the reason to decline it; else None."""
        checkpoint_id, reason = self._account.checkpoint_id, self._account.exceeded()
        return None if checkpoint_id is None or reason is None else (checkpoint_id, reason)

    def take_complete(self) -> tuple[CheckpointId, ResolvedMode] | None:
        """Return a checkpoint whose in-flight data is complete, once, with its mode; else None."""
        snapshot = self._account.snapshot()
        if snapshot is None or not snapshot.complete:
            return None
        self._account.end()
        return snapshot.barrier.checkpoint_id, snapshot.mode


def numbered_outputs(
    outputs: Sequence[EdgeOutput],
) -> list[tuple[int, EdgeOutput, OutputChannel]]:
    """Return the output channels of a subtask, numbered from 0 by edges and receivers."""
    pairs = [(edge, edge.channels[receiver]) for edge in outputs for receiver in edge.channels]
    return [(number, edge, channel) for number, (edge, channel) in enumerate(pairs)]
