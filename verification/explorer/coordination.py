"""The coordinator of a small world: the real machine, with its environment as a value.

Its clock has three readings: the trigger, the end of the alignment budget, and the end of the
checkpoint. The search moves time, so both ends come at every moment. The store answers at once, but
the answer to publishing comes back later: a crash in between finds the checkpoint.
"""

from typing import Any, NamedTuple

from laminar_core.protocol.coordinator import CoordinatorState, initial, step
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.protocol.coordinator_events import (
    AbortCheckpoint,
    Acknowledged,
    CheckpointRequested,
    CommitCheckpoint,
    Declined,
    Effect,
    Event,
    IdReserved,
    InjectBarrier,
    Published,
    PublishManifest,
    ReserveId,
    SubtaskId,
    Tick,
    TimeOutAlignment,
)
from laminar_core.protocol.types import CheckpointId, CheckpointKind
from verification.explorer.parts import Message, Part
from verification.explorer.topology import World

TIMEOUT_MS = 10


class Checkpoint(NamedTuple):
    """A completed checkpoint, as it is in the store."""

    checkpoint_id: CheckpointId
    parts: tuple[Part, ...]
    """In the order of the nodes."""


class Order(NamedTuple):
    """An effect of the coordinator on the rest of the world."""

    kind: str
    """``trigger``, ``timeout`` and ``abort`` go to every subtask; ``publish`` is durable at once;
    ``commit`` makes output visible."""
    content: Any


class Coordinator(NamedTuple):
    """Everything the coordinator's process knows."""

    machine: CoordinatorState
    now_ms: int = 0
    parts: tuple[Part, ...] = ()
    """Acknowledged, of the pending checkpoint."""
    publishing: CheckpointId | None = None
    """Durable; the store's answer is still under way."""


Moved = tuple[Coordinator, tuple[Order, ...]]


def start(world: World, highest_id: CheckpointId) -> Coordinator:
    """Return a new generation's coordinator."""
    config = CoordinatorConfig(
        interval_ms=None,
        timeout_ms=TIMEOUT_MS,
        tolerable_failures=None,
        alignment_timeout_ms=world.alignment_timeout_ms,
    )
    expected = (SubtaskId(node.name, 0) for node in world.nodes)
    return Coordinator(initial(config, expected, highest_id, 0))


def trigger(coordinator: Coordinator) -> Moved:
    """Request a checkpoint. The clock restarts, because nothing else is under way."""
    rewound = coordinator._replace(now_ms=0, parts=())
    return _take(rewound, CheckpointRequested(CheckpointKind.PERIODIC, "explorer"))


class Possible(NamedTuple):
    """Spontaneous events of the coordinator."""

    trigger: bool
    """Whether no checkpoint is under way."""
    time_out: bool
    """The alignment budget is still to be spent."""
    expire: bool
    """The pending checkpoint can still be given up."""


def possible(coordinator: Coordinator) -> Possible:
    """Return the events that are possible now."""
    pending = coordinator.machine.pending
    collects = any(p.phase == "collecting" for p in pending)
    budget_ms = coordinator.machine.config.alignment_timeout_ms or 0
    return Possible(not pending, collects and coordinator.now_ms < budget_ms, collects)


def time_out(coordinator: Coordinator) -> Moved:
    """Let the alignment budget run out."""
    budget_ms = coordinator.machine.config.alignment_timeout_ms
    assert budget_ms is not None
    return _take(coordinator._replace(now_ms=budget_ms), Tick())


def expire(coordinator: Coordinator) -> Moved:
    """Let the checkpoint expire."""
    moved, orders = _take(coordinator._replace(now_ms=TIMEOUT_MS), Tick())
    return moved._replace(parts=()), orders


def published(coordinator: Coordinator) -> Moved:
    """Deliver the store's answer."""
    assert coordinator.publishing is not None
    event = Published(coordinator.publishing)
    return _take(coordinator._replace(publishing=None, parts=()), event)


def hears_at_once(coordinator: Coordinator, message: Message) -> bool:
    """Return whether the time of this message makes no difference.

    An acknowledgement that is not the last one has no visible effect: in any order with other
    events the coordinator reaches the same state.
    """
    if message.kind != "ack":
        return False
    part: Part = message.content
    pending = next(
        (p for p in coordinator.machine.pending if p.checkpoint_id == part.checkpoint_id), None
    )
    if pending is None:
        return True
    return len(pending.acknowledged) + 1 < len(coordinator.machine.expected)


def hear(coordinator: Coordinator, message: Message) -> Moved:
    """Receive a subtask's acknowledgement or decline."""
    if message.kind == "decline":
        checkpoint_id, cause, reason = message.content
        moved, orders = _take(coordinator, Declined(checkpoint_id, cause, reason))
        return (moved if moved.machine.pending else moved._replace(parts=())), orders
    part: Part = message.content
    if any(p.checkpoint_id == part.checkpoint_id for p in coordinator.machine.pending):
        coordinator = coordinator._replace(parts=tuple(sorted({*coordinator.parts, part}, key=_of)))
    subtasks = frozenset({SubtaskId(part.node, 0)})
    return _take(coordinator, Acknowledged(part.checkpoint_id, subtasks))


def _of(part: Part) -> str:
    return part.node


def _take(coordinator: Coordinator, event: Event) -> Moved:
    machine, effects = step(coordinator.machine, event, coordinator.now_ms)
    coordinator, orders = coordinator._replace(machine=machine), ()
    for effect in effects:
        coordinator, more = _carry_out(coordinator, effect)
        orders = (*orders, *more)
    return coordinator, orders


def _carry_out(coordinator: Coordinator, effect: Effect) -> Moved:
    match effect:
        case ReserveId(checkpoint_id):
            return _take(coordinator, IdReserved(checkpoint_id))
        case InjectBarrier(barrier):
            return coordinator, (Order("trigger", barrier),)
        case TimeOutAlignment(checkpoint_id):
            return coordinator, (Order("timeout", checkpoint_id),)
        case AbortCheckpoint(checkpoint_id):
            return coordinator, (Order("abort", checkpoint_id),)
        case PublishManifest(checkpoint_id):
            durable = Checkpoint(checkpoint_id, coordinator.parts)
            return coordinator._replace(publishing=checkpoint_id), (Order("publish", durable),)
        case CommitCheckpoint(checkpoint_id):
            return coordinator, (Order("commit", checkpoint_id),)
        case _:
            return coordinator, ()  # Answers and records: nobody here reads them.
