"""Loops in a worker: the head, the feedback channel that never blocks, and the counters.

The head logs and forwards (PROTOCOL section 8, FLIP-16): at each cut the alignment machine records
the feedback channels until the barrier comes back on them. So elements on their way back are
channel state like any other, and are processed all the same. Inside the loop no barrier overtakes.
"""

from collections.abc import Callable, Iterable, Sequence

from laminar_core.codec.inflight import InflightElement
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.link.wire import ArrowElement
from laminar_core.protocol.alignment_events import EndReached
from laminar_core.protocol.termination import LoopCounts
from laminar_core.protocol.types import (
    Batch,
    ChannelId,
    CheckpointBarrier,
    CheckpointId,
    EndOfInput,
    Idle,
    Watermark,
)
from laminar_core.worker.channels import RECEIVE_BYTES_MAX, InputChannel, OutputChannel
from laminar_core.worker.spill import SpillQueue
from laminar_core.worker.task import Task


class HeadTask(Task):
    """The first vertex of a loop: it ends by ``end_loop``, not when its inputs do.

    Feedback goes before new input, so that a full loop holds its input back instead of growing.
    Only while a checkpoint waits for the head's barrier do they take turns.

    Event time stays outside, because circulating rows are older than any watermark from outside.
    """

    def end_loop(self) -> None:
        """Flush the operators behind the head and end the body, because the loop is empty."""
        if not self.finished:
            self._end()

    def work(self) -> bool:
        """Do one unit; after the end, also take the end of the body from the feedback."""
        return self._work_on_input() if self.finished else super().work()

    def _in_turn(self) -> Sequence[InputChannel]:
        in_turn = super()._in_turn()
        feedback = [i for i in in_turn if i.channel in self.parts.feedback]
        if self._barrier_due() and not any(channel.replays for channel in feedback):
            return in_turn
        return [*feedback, *(i for i in in_turn if i.channel not in self.parts.feedback)]

    def _barrier_due(self) -> bool:
        gate = self._aligner.state.gate
        return gate.triggered is not None and gate.triggered.checkpoint_id > gate.newest_id

    def _take(self, channel: ChannelId, element: ArrowElement) -> None:
        match element:
            case EndOfInput():
                self._on(EndReached(channel))
            case Batch() if self.finished:
                raise ConfigurationError(
                    ErrorCode.INVALID_PIPELINE,
                    f"rows came back to loop {self.parts.vertex_id} after its end: an operator in "
                    "it keeps rows until the end of its input, so put it behind the loop",
                )
            case _:
                super()._take(channel, element)

    def _advance(self, watermark_us: int | None, *, ends: bool = False) -> None:
        """Event time stays outside."""


class FeedbackChannel(OutputChannel):
    """The way back: it always has room, or the loop would wait for itself (ERRATA 2.7).

    No barrier overtakes here, so it never has anything to capture: what waits comes back before
    the barrier does, and is logged by the head.
    """

    def __init__(
        self,
        deliver: Callable[[ArrowElement], None],
        queue: SpillQueue,
        bytes_max: int = RECEIVE_BYTES_MAX,
    ) -> None:
        super().__init__(deliver, bytes_max)
        self._waiting = queue

    @property
    def has_room(self) -> bool:
        """Return True always: what exceeds the memory goes to disk."""
        return True

    @property
    def empty(self) -> bool:
        """Whether all elements have been sent."""
        return not len(self._waiting)

    def put(self, element: ArrowElement) -> None:
        """Append; event time does not travel back.

        Raises:
            StorageUnavailable: the disk is full.
        """
        if isinstance(element, Watermark | Idle):
            return
        if isinstance(element, Batch):
            self.batches_put += 1
        elif isinstance(element, EndOfInput):
            self._ended = True
        self._waiting.put(element)

    def put_barrier(self, barrier: CheckpointBarrier, *, overtake: bool) -> list[InflightElement]:
        """Append a barrier; the end of the channel stands for every later one."""
        assert not overtake, "inside a loop barriers stay in their places"
        if not self._ended:
            self._waiting.put(barrier)
        return []

    def waits(self, checkpoint_id: CheckpointId) -> bool:
        """Return False: barriers never overtake here."""
        del checkpoint_id
        return False

    def time_out(self, checkpoint_id: CheckpointId) -> list[InflightElement]:
        """Return no elements: inside a loop barriers never overtake."""
        del checkpoint_id
        return []

    def flush(self) -> bool:
        """Send as many elements as credit allows; return whether any was sent."""
        sent = False
        while len(self._waiting):
            if self.may_send is not None and not self.may_send():
                break
            first = self._waiting.first
            if isinstance(first, Batch) and not self._lets_out(first):
                break
            self._deliver(self._waiting.take())
            sent = True
        return sent

    def close(self) -> None:
        """Release the disk space."""
        self._waiting.close()


def loop_counts(tasks: Iterable[Task]) -> dict[str, LoopCounts]:
    """Return the counters of one worker's loops, taken between two units of work."""
    counts: dict[str, LoopCounts] = {}
    for task in tasks:
        if task.parts.loop is None:
            continue
        mine = _counts(task)
        other = counts.get(task.parts.loop, LoopCounts(outside_ended=True, produced=0, consumed=0))
        counts[task.parts.loop] = LoopCounts(
            mine.outside_ended and other.outside_ended,
            mine.produced + other.produced,
            mine.consumed + other.consumed,
        )
    return counts


def _counts(task: Task) -> LoopCounts:
    inputs = [i for i in task.parts.inputs if i.channel in task.parts.inside]
    inside = (output for output in task.parts.outputs if output.in_loop)
    outputs = [channel for output in inside for channel in output.channels.values()]
    return LoopCounts(
        outside_ended=task.open_inputs <= task.parts.inside,
        produced=sum(o.batches_put for o in outputs) + sum(i.batches_restored for i in inputs),
        consumed=sum(i.batches_taken for i in inputs) - int(task.timed.has_more_to_do()),
    )
