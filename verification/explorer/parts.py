"""A subtask's part of a checkpoint as a value, and its assembly.

``Listener`` does the work of a worker: it collects the state, the in-flight data and the report
that nothing is missing, and acknowledges. Here everything is durable at once; the duration of
writes is represented by the latency of the acknowledgement.
"""

from typing import Any, NamedTuple

from laminar_core.link.wire import ArrowElement
from laminar_core.protocol.types import (
    NO_CHECKPOINT,
    Batch,
    CheckpointId,
    DeclineCause,
    Idle,
    Watermark,
)
from laminar_core.records.channel_entries import AlignmentEntry
from laminar_core.worker.cuts import Cut
from laminar_core.worker.inflight import Captured
from verification.explorer.records import (
    Record,
    ViolationError,
    batch_of,
    record_of,
    render,
)

InFlight = Record | Watermark | Idle
"""An element of a queue, as a checkpoint keeps it."""

Committable = tuple[int, tuple[str, ...]]
"""(checkpoint, rows)."""


class Part(NamedTuple):
    """A subtask's part of a checkpoint."""

    checkpoint_id: CheckpointId
    node: str
    counts: tuple[tuple[str, int], ...] = ()
    offset: int | None = None
    committables: tuple[Committable, ...] = ()
    alignment: AlignmentEntry | None = None
    inputs: tuple[tuple[InFlight, ...], ...] = ()
    outputs: tuple[tuple[InFlight, ...], ...] = ()


class Message(NamedTuple):
    """A message from a subtask."""

    kind: str
    """``send`` and ``credit`` along a link, ``ack`` and ``decline`` to the coordinator."""
    link: int
    content: Any


class Listener:
    """Puts a checkpoint's pieces together, as the worker does."""

    def __init__(self, node: str, inputs: int, outputs: int) -> None:
        self.parts: dict[CheckpointId, Part] = {}
        self.newest_cut = 0
        self.sent: list[Message] = []
        self.notes: list[str] = []
        self._empty = Part(NO_CHECKPOINT, node, inputs=((),) * inputs, outputs=((),) * outputs)

    def take(self) -> tuple[tuple[Message, ...], tuple[str, ...]]:
        """Return the messages, and lines for a trace, since the last call."""
        taken = tuple(self.sent), tuple(self.notes)
        self.sent, self.notes = [], []
        return taken

    def on_cut(self, cut: Cut) -> None:
        """Keep the state.

        Raises:
            ViolationError: a checkpoint is cut twice.
        """
        if cut.checkpoint_id <= self.newest_cut:
            raise ViolationError(f"{cut.vertex_id} cuts checkpoint {cut.checkpoint_id} again")
        self.newest_cut = cut.checkpoint_id
        part = self._empty._replace(checkpoint_id=cut.checkpoint_id)
        for pending in cut.parts:
            snapshot = pending.pending()
            tables = list(snapshot.rows())
            if tables:
                offset = int(tables[0].column("offset")[0].as_py())
                part = part._replace(offset=offset)
            elif pending.operator_id == "sink":
                part = part._replace(committables=tuple(map(committable_of, snapshot.committables)))
            else:
                part = part._replace(counts=tuple(snapshot.properties.items()))
        self.parts[cut.checkpoint_id] = part
        self.notes.append(f"cuts {cut.checkpoint_id}")

    def on_captured(self, vertex_id: str, captured: Captured) -> None:
        """Keep in-flight data."""
        del vertex_id
        part = self.parts.get(captured.checkpoint_id)
        if part is None or not captured.events:
            return
        number = captured.queue.number
        queues = list(part.inputs if captured.queue.direction == "input" else part.outputs)
        queues[number] = (*queues[number], *map(_keep, captured.events))
        changed = {f"{captured.queue.direction}s": tuple(queues)}
        self.parts[captured.checkpoint_id] = part._replace(**changed)
        said = ", ".join(map(render, captured.events))
        self.notes.append(f"captures {said} on {captured.queue.direction} {number}")

    def on_operator(self, operator_id: str) -> None:
        """Do nothing: operators take no time here."""

    def on_complete(self, checkpoint_id: CheckpointId, alignment: AlignmentEntry) -> None:
        """Acknowledge: everything is written the moment it is known."""
        part = self.parts.pop(checkpoint_id, None)
        if part is not None:
            self.sent.append(Message("ack", -1, part._replace(alignment=alignment)))
            self.notes.append(f"completes its part of {checkpoint_id} ({alignment.mode})")

    def on_discard(self, checkpoint_id: CheckpointId) -> None:
        """Drop the part."""
        if self.parts.pop(checkpoint_id, None) is not None:
            self.notes.append(f"drops its part of {checkpoint_id}")

    def on_decline(self, checkpoint_id: CheckpointId, cause: DeclineCause, reason: str) -> None:
        """Send the decline."""
        self.sent.append(Message("decline", -1, (checkpoint_id, cause, reason)))
        self.notes.append(f"declines {checkpoint_id}")


def committable_of(committable: Any) -> Committable:  # noqa: ANN401 - JSON
    """Return the contents of a sink's committable."""
    return committable["checkpoint"], tuple(committable["rows"])


def _keep(element: ArrowElement) -> InFlight:
    if isinstance(element, Batch):
        return record_of(element.data)
    assert isinstance(element, Watermark | Idle), "only data and watermarks are in flight"
    return element


def replay(elements: tuple[InFlight, ...]) -> list[ArrowElement]:
    """Return the elements as they are queued again."""
    return [Batch(batch_of(e)) if isinstance(e, Record) else e for e in elements]
