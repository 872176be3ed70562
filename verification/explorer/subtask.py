"""One subtask of a small world, moved one step at a time, with every state seen of it.

A task's behaviour depends on its own state only, so every step is executed once, by the real task,
and stored; the search then combines stored steps.
"""

# A default of an empty dictionary has no type of its own.
# pyright: reportUnknownArgumentType=false

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

from laminar_core.errors import LaminarError
from laminar_core.link.wire import ArrowElement
from laminar_core.protocol.types import (
    NO_CHECKPOINT,
    Batch,
    CancelMarker,
    ChannelId,
    CheckpointBarrier,
    CheckpointId,
)
from verification.explorer.memento import Memento, Saved
from verification.explorer.parts import Committable, Message, Part
from verification.explorer.records import (
    CountingOperator,
    MeetingOperator,
    NumberedReader,
    ViolationError,
    record_of,
    render,
)
from verification.explorer.tasks import Builder, Classes, ExploredSink, elements_of
from verification.explorer.topology import Node, World

MARKERS = (CheckpointBarrier, CancelMarker)

Key = tuple[Any, ...]
"""A state's number, and what happens in it."""


class Outcome(NamedTuple):
    """The result of a step."""

    local: int
    """Number of the next state."""
    sent: tuple[Message, ...]
    said: str
    problem: str | None


class Subtask:
    """One subtask with all the states that were seen of it; a state is a number."""

    def __init__(self, world: World, node: Node, using: Classes) -> None:
        self.node = node
        self._world = world
        self._senders = [link.sender for _, _, link in world.inputs_of(node.name)]
        self.turns = range(max(1, len(self._senders)))
        """Inputs that a turn can belong to; a source has one."""
        self._builder = Builder(world, node, using)
        self._live = self._builder.build(None, NO_CHECKPOINT)
        self._memento = Memento(self._live)
        self._numbers: dict[Saved, int] = {}
        self._states: list[Saved] = []
        self._starts: dict[tuple[Part | None, CheckpointId], Outcome] = {}
        self._outcomes: dict[Key, Outcome | None] = {}
        self._pending: dict[int, tuple[CheckpointId, ...]] = {}
        self._calm: dict[int, bool] = {}

    # --- steps ----------------------------------------------------------------------------------

    def start(self, restored: Part | None, newest_id: CheckpointId) -> Outcome:
        """Start, or start again from a checkpoint."""
        key = (restored, newest_id)
        if key not in self._starts:
            live = self._builder.build(restored, newest_id)
            live.task.flush()
            sent, _ = live.listener.take()
            number = self._number(Memento(live).save())
            self._starts[key] = Outcome(number, sent, "", None)
        return self._starts[key]

    def work(self, local: int, channel: int) -> Outcome | None:
        """Take from an input (or the source), or None if that is not possible now."""
        return self._step((local, "work", channel), lambda: self._work(channel))

    def arrive(self, local: int, channel: int, element: ArrowElement) -> Outcome | None:
        """Deliver an element."""
        key = (local, "arrive", channel, key_of(element))
        return self._step(key, lambda: self._arrive(channel, element))

    def credit(self, local: int, output: int, batches: int) -> Outcome | None:
        """Deliver credit for batches that the receiver took."""
        return self._step((local, "credit", output, batches), lambda: self._credit(output, batches))

    def deliver(self, local: int, kind: str, content: Any) -> Outcome | None:  # noqa: ANN401
        """Deliver a message of the coordinator, or of the store: see ``_deliver``."""
        return self._step((local, kind, content), lambda: self._deliver(kind, content))

    def _step(self, key: Key, act: Callable[[], str | None]) -> Outcome | None:
        if key not in self._outcomes:
            self._outcomes[key] = self._take(key[0], act)
        return self._outcomes[key]

    def _take(self, local: int, act: Callable[[], str | None]) -> Outcome | None:
        self._memento.load(self._states[local])
        said, problem = "fails", None
        try:
            done = act()
            if done is None:
                return None
            said = done
            self._live.task.flush()
            if self._live.task.nothing_pending and not self._live.listener.parts:
                self._live.task.forget_report()
        except (ViolationError, LaminarError, AssertionError, LookupError) as error:
            problem = f"{type(error).__name__}: {error}"
        sent, notes = self._live.listener.take()
        after = local if problem else self._number(self._memento.save())
        if said or notes:
            said = f"{self.node.name} {', '.join(filter(None, [said, *notes]))}"
        return Outcome(after, sent, said, problem)

    def _number(self, saved: Saved) -> int:
        if saved not in self._numbers:
            self._numbers[saved] = len(self._states)
            self._states.append(saved)
        return self._numbers[saved]

    def _work(self, channel: int) -> str | None:
        task = self._live.task
        if task.parts.source is not None:
            reader = task.parts.source.reader
            assert isinstance(reader, NumberedReader)
            said = f"emits {self.node.name}{reader.next_row}"
            if not task.work_on(0):
                return None
            return "ends" if task.finished else said
        element = task.would_take(channel)
        if element is None:
            return None
        said = f"takes {render(element)} of {self._senders[channel]}"
        return said if task.work_on(channel) else None

    def _arrive(self, channel: int, element: ArrowElement) -> str:
        self._live.task.arrived(ChannelId(channel), element)
        return f"receives {render(element)} from {self._senders[channel]}"

    def _credit(self, output: int, batches: int) -> str:
        channel = self._live.task.parts.outputs[output].channels[0]
        channel.give(batches)
        if channel.credits > self._world.credits:
            raise ViolationError(f"{self.node.name} has credit that it never spent")
        return ""

    def _deliver(self, kind: str, content: Any) -> str:  # noqa: ANN401 - a barrier or an id
        task, listener = self._live.task, self._live.listener
        match kind:
            case "trigger":
                assert isinstance(content, CheckpointBarrier)
                task.trigger(content)
                content = content.checkpoint_id
            case "timeout":
                task.time_out(content)
            case "abort":
                task.abort(content)
                listener.on_discard(content)
            case "committed":
                task.committed(content)
            case _:
                task.snapshot_failed(content, "the store does not answer")
        return f"hears: {kind} {content}"

    # --- what a state is ------------------------------------------------------------------------

    def pending(self, local: int) -> tuple[CheckpointId, ...]:
        """Return checkpoints whose part is not complete; writing any piece of them can fail."""
        if local not in self._pending:
            self._memento.load(self._states[local])
            self._pending[local] = tuple(self._live.listener.parts)
        return self._pending[local]

    def calm(self, local: int) -> bool:
        """Return whether no trace of a checkpoint is left, so that only data is passed on."""
        if local not in self._calm:
            self._memento.load(self._states[local])
            task = self._live.task
            queues = [*task.parts.inputs, *(output.channels[0] for output in task.parts.outputs)]
            markers = any(isinstance(e, MARKERS) for queue in queues for e in elements_of(queue))
            self._calm[local] = task.nothing_pending and not markers and not self.pending(local)
        return self._calm[local]

    def rows(self, local: int, visible: frozenset[Committable]) -> list[str]:
        """Return the rows of the sink that are not ``visible`` yet."""
        self._memento.load(self._states[local])
        sink = self._live.task.parts.sink
        assert isinstance(sink, ExploredSink)
        waiting = [c for c in sink.uncommitted() if c not in visible]
        return [*sink.staged(), *(row for _, rows in waiting for row in rows)]

    def due_rows(self) -> list[str]:
        """Return the complete output of the sink."""
        return [
            f"{self.node.rename(path)}{number}"
            for path, count in self._world.answer[self.node.name].items()
            for number in range(count)
        ]

    def _counts(self) -> dict[str, int]:
        operators = [operator for _, operator in self._live.task.parts.operators]
        counting = [o.counting if isinstance(o, MeetingOperator) else o for o in operators]
        return next((o.counts for o in counting if isinstance(o, CountingOperator)), {})

    def left_over(self, local: int) -> str | None:
        """Return what is wrong with a final state, or None."""
        self._memento.load(self._states[local])
        task, name = self._live.task, self.node.name
        waiting = [render(elements_of(i)[0]) for i in task.parts.inputs if len(i)]
        counts = self._counts()
        if not task.nothing_pending or self._live.listener.parts:
            return f"{name} waits for ever for a checkpoint to complete"
        if waiting:
            return f"{name} never takes {', '.join(waiting)}"
        if not all(output.channels[0].empty for output in task.parts.outputs):
            return f"{name} never sends what waits in an output queue"
        if counts != self._world.answer[name]:
            return f"{name} has processed {counts} and not {self._world.answer[name]}"
        if self._world.ends and not task.finished:
            return f"{name} never finishes"
        return None


def key_of(element: ArrowElement) -> Hashable:
    """Return an element as a hashable key."""
    return record_of(element.data) if isinstance(element, Batch) else element
