"""The real task of one subtask, built as in a worker, with turns chosen by the search.

``Task`` and everything below it are real: the alignment machine, the account of in-flight data, the
queues of both ends, watermarks, the head of a loop, the committing sink. ``build`` does the work of
``worker/wiring.py``: state first, then in-flight data of the inputs, then of the outputs.
"""

# It steps what is inside of a task.
# pyright: reportPrivateUsage=false

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from laminar_core.host.clock import ManualClock
from laminar_core.link.wire import ArrowElement
from laminar_core.operators.base import AnySubtask, Snapshot
from laminar_core.protocol.alignment import BarrierAligner
from laminar_core.protocol.alignment_events import Event
from laminar_core.protocol.alignment_state import Idle as NothingPending
from laminar_core.protocol.types import (
    AlignmentMode,
    ChannelId,
    CheckpointBarrier,
    CheckpointId,
)
from laminar_core.protocol.watermarks import WatermarkGate
from laminar_core.worker.channels import InputChannel, OutputChannel
from laminar_core.worker.inflight import InflightRecorder
from laminar_core.worker.loops import FeedbackChannel, HeadTask
from laminar_core.worker.outputs import EdgeOutput
from laminar_core.worker.pacing import PacedSource
from laminar_core.worker.sinks import CommittingSink
from laminar_core.worker.task import Task, TaskParts
from verification.explorer.parts import (
    Committable,
    Listener,
    Message,
    Part,
    committable_of,
    replay,
)
from verification.explorer.records import (
    CountingOperator,
    MeetingOperator,
    NumberedReader,
    StagingWriter,
    TimingOperator,
    ViolationError,
    record_of,
)
from verification.explorer.topology import Link, Node, World


@dataclass(frozen=True)
class Classes:
    """The explored classes: the product's own, or a test's replacements."""

    aligner: type[BarrierAligner] = BarrierAligner
    recorder: type[InflightRecorder] = InflightRecorder
    input_channel: type[InputChannel] = InputChannel
    output_channel: type[OutputChannel] = OutputChannel
    gate: type[WatermarkGate] = WatermarkGate
    task: "type[ExploredTask] | None" = None
    """For every subtask but the head of a loop."""


class ExploredTask(Task):
    """A task whose turns are chosen by the search."""

    _given_up: frozenset[CheckpointId] = frozenset()
    """Checkpoints that this task gave up before the current event."""

    def _on(self, event: Event) -> None:
        self._given_up = self._aligner.state.gate.abort_notices
        super()._on(event)
        self._given_up = frozenset()

    def _cut(self, barrier: CheckpointBarrier, mode: AlignmentMode) -> None:
        if barrier.checkpoint_id in self._given_up:
            raise ViolationError(f"{self.parts.vertex_id} cuts what it was told to give up")
        super()._cut(barrier, mode)

    def use(self, using: Classes) -> None:
        """Put other machines in the place of the product's."""
        self._aligner.__class__ = using.aligner
        self._inflight.__class__ = using.recorder

    def would_take(self, channel: int) -> ArrowElement | None:
        """Return the element that is taken in this input's turn, if it comes from this input."""
        self._turn = channel
        offered = (i for i in self._in_turn() if len(i) and not self._aligner.holds(i.channel))
        first = next(offered, None)
        self._turn = 0
        mine = self.parts.inputs[channel]
        return elements_of(mine)[0] if first is mine else None

    def work_on(self, channel: int) -> bool:
        """Do one unit of work, as if it were this input's turn."""
        self._turn = channel
        worked = self.work()
        self._turn = 0
        return worked

    @property
    def nothing_pending(self) -> bool:
        """Whether no checkpoint is under way here."""
        return isinstance(self._aligner.state, NothingPending)

    def forget_report(self) -> None:
        """Drop data kept only for repeated reports, which would distinguish equal states."""
        self._alignment = None


class ExploredHead(ExploredTask, HeadTask):
    """The head of a loop; feedback goes first, so not every turn is possible."""


class ExploredSink(CommittingSink):
    """A sink that exposes its contents."""

    def staged(self) -> list[str]:
        """Return the rows staged since the last cut."""
        assert isinstance(self.writer, StagingWriter)
        return list(self.writer.staged)

    def uncommitted(self) -> list[Committable]:
        """Return committables that are not known to be visible."""
        return [committable_of(c) for cs in self._uncommitted.values() for c in cs]


class _WayBack:
    """Stands in for the queue that can go to disk: here it never has to."""

    def __init__(self) -> None:
        self._queue: deque[ArrowElement] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def first(self) -> ArrowElement:
        return self._queue[0]

    def put(self, element: ArrowElement) -> None:
        self._queue.append(element)

    def take(self) -> ArrowElement:
        return self._queue.popleft()

    def close(self) -> None:
        self._queue.clear()


class Live:
    """The objects of one subtask."""

    def __init__(self, task: ExploredTask, listener: Listener) -> None:
        self.task = task
        self.listener = listener


class Builder:
    """Builds one subtask, new or from its part of a checkpoint."""

    def __init__(self, world: World, node: Node, using: Classes) -> None:
        self._world = world
        self._node = node
        self._using = using

    def build(self, restored: Part | None, newest_id: CheckpointId) -> Live:
        """Build it; what is restored waits in the queues."""
        world, node, name = self._world, self._node, self._node.name
        inputs, outputs = world.inputs_of(name), world.outputs_of(name)
        listener = Listener(name, len(inputs), len(outputs))
        feedback = frozenset(channel for channel, _, link in inputs if link.feedback)
        gate = self._using.gate(channel for channel, _, _ in inputs if channel not in feedback)
        entry = None if restored is None else restored.alignment
        if entry is not None:
            channels = [(ChannelId(c.input_id), c.watermark_us, c.idle) for c in entry.channels]
            gate.restore(channels, entry.watermark_us)
        parts = TaskParts(
            vertex_id=name,
            subtask_index=0,
            source=self._source(restored),
            inputs=[self._input(listener, *joined) for joined in inputs],
            operators=self._operators(restored),
            input_of={channel: link.feeds for channel, _, link in inputs},
            source_id="source",
            sink=self._sink(restored) if node.sink else None,
            sink_id="sink",
            outputs=[self._output(listener, *joined) for joined in outputs],
            gate=gate,
            newest_id=newest_id,
            aligned_only=frozenset(c for c, _, link in inputs if not link.may_overtake) - feedback,
            feedback=feedback,
            finished=node.record_count is not None and entry is not None and entry.finished,
        )
        self._restore_queues(parts, restored)
        kind = ExploredHead if feedback else self._using.task or ExploredTask
        task = kind(parts, listener, ManualClock())
        task.use(self._using)
        return Live(task, listener)

    def _restore_queues(self, parts: TaskParts, restored: Part | None) -> None:
        """In-flight data of the inputs, then of the outputs, before anything else."""
        if restored is None:
            return
        for channel, elements in zip(parts.inputs, restored.inputs, strict=True):
            channel.restore(replay(elements))
        for output, elements in zip(parts.outputs, restored.outputs, strict=True):
            output.channels[0].restore(replay(elements))

    def _source(self, restored: Part | None) -> PacedSource | None:
        count = self._node.record_count
        if count is None:
            return None
        offset = 0 if restored is None or restored.offset is None else restored.offset
        reader = NumberedReader(self._node.name, count, offset, ends=self._world.ends)
        return PacedSource(reader, ManualClock(), None, None)

    def _operators(self, restored: Part | None) -> Sequence[tuple[str, AnySubtask]]:
        node = self._node
        if node.record_count is not None:
            return [("time", TimingOperator())] if node.timed else []
        counting = self._counting(restored)
        meets = MeetingOperator(counting, node.input_names) if node.input_names else counting
        return [("state", meets)]

    def _counting(self, restored: Part | None) -> CountingOperator:
        operator = CountingOperator(self._node.name, self._node.rename)
        if restored is not None:
            operator.restore([Snapshot(properties=dict(restored.counts))])
        return operator

    def _sink(self, restored: Part | None) -> ExploredSink:
        sink = ExploredSink(StagingWriter())
        if restored is not None:
            sink.restore([Snapshot()])
        return sink

    def _input(self, listener: Listener, channel: ChannelId, link: int, _: Link) -> InputChannel:
        grant = _tell(listener, "credit", link)
        return self._using.input_channel(channel, grant)

    def _output(self, listener: Listener, link: int, joined: Link) -> EdgeOutput:
        deliver = _tell(listener, "send", link)
        if joined.feedback:
            channel: OutputChannel = FeedbackChannel(deliver, _WayBack())  # pyright: ignore[reportArgumentType] - it stands in for a SpillQueue
        else:
            channel = self._using.output_channel(deliver)
        channel.credits = self._world.credits

        def split(batch: Any) -> Any:  # noqa: ANN401 - a record batch, and pairs of them
            return ((0, batch),) if joined.accepts(record_of(batch).path) else ()

        may_overtake = joined.may_overtake and not joined.feedback
        return EdgeOutput(split, {0: channel}, may_overtake=may_overtake)


def elements_of(channel: InputChannel | OutputChannel) -> Sequence[ArrowElement]:
    """Return the queued elements, for reading only."""
    return channel._queue  # noqa: SLF001 - nobody but the explorer looks inside


def _tell(listener: Listener, kind: str, link: int) -> Callable[[Any], None]:
    return lambda content: listener.sent.append(Message(kind, link, content))
