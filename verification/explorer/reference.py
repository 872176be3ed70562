"""The reference: the snapshot by Chandy and Lamport for the same cut.

A completed checkpoint contains the progress of every subtask. The machine of 1985 is run on the
same topology up to exactly there: every channel has carried what its sender had sent, every process
has received what it had processed, and then all processes start the snapshot. Its channel state is
the only one that makes the cut consistent (PROTOCOL section 1), so the checkpoint must have the
same, element by element.

One channel of the reference is one path on one link, because order between different paths has no
meaning.
"""

from collections import deque
from collections.abc import Iterator

from laminar_core.protocol.types import ChannelId
from verification.chandy_lamport import (
    ChannelRecorded,
    Effect,
    MarkerReceived,
    MessageReceived,
    ProcessState,
    SendMarkers,
    SnapshotId,
    SnapshotInitiated,
    initial,
    step,
)
from verification.explorer.coordination import Checkpoint
from verification.explorer.parts import Part
from verification.explorer.records import Record
from verification.explorer.topology import World

_ONE = SnapshotId(1)
_MARKER = None

Flow = tuple[int, str]
"""(link, path)."""


def compare(world: World, checkpoint: Checkpoint) -> str | None:
    """Return how the checkpoint differs from the reference, or None."""
    parts = {part.node: part for part in checkpoint.parts}
    if missing := [node.name for node in world.nodes if node.name not in parts]:
        return f"checkpoint {checkpoint.checkpoint_id} has no part of {', '.join(missing)}"
    sent = dict(_sent(world, parts))
    received = {flow: dict(parts[_receiver(world, flow)].counts).get(flow[1], 0) for flow in sent}
    for node in world.nodes:
        for path, count in parts[node.name].counts:
            if count and not any(f[1] == path and _receiver(world, f) == node.name for f in sent):
                return f"{node.name} has processed {count} of {path}, of which none was sent"
    for flow, count in sent.items():
        if received[flow] > count:
            return (
                f"{_receiver(world, flow)} has processed {received[flow]} of {flow[1]}, and "
                f"only {count} were sent: the others will come again"
            )
    return _difference(world, parts, _Reference(world, sent, received).run())


def _sent(world: World, parts: dict[str, Part]) -> Iterator[tuple[Flow, int]]:
    for number, link in enumerate(world.links):
        part = parts[link.sender]
        for path, count in world.sent(link, dict(part.counts), part.offset).items():
            yield (number, path), count


def _receiver(world: World, flow: Flow) -> str:
    return world.links[flow[0]].receiver


def _difference(
    world: World, parts: dict[str, Part], recorded: dict[Flow, tuple[Record, ...]]
) -> str | None:
    for number, link in enumerate(world.links):
        into = next(c for c, n, _ in world.inputs_of(link.receiver) if n == number)
        out = [n for n, _ in world.outputs_of(link.sender)].index(number)
        captured = [
            element
            for element in (*parts[link.receiver].inputs[into], *parts[link.sender].outputs[out])
            if isinstance(element, Record)
        ]
        paths = {r.path for r in captured} | {path for n, path in recorded if n == number}
        for path in sorted(paths):
            mine = [r for r in captured if r.path == path]
            due = list(recorded.get((number, path), ()))
            if mine != due:
                return (
                    f"channel state of {link.sender} to {link.receiver} is {_list(mine)}, and the "
                    f"cut needs {_list(due)}"
                )
    return None


def _list(records: list[Record]) -> str:
    return f"[{' '.join(map(str, records))}]"


class _Reference:
    """The machines of 1985, and channels that hold what was sent."""

    def __init__(self, world: World, sent: dict[Flow, int], received: dict[Flow, int]) -> None:
        self._world = world
        self._flows = list(sent)
        self._received = received
        self._channels = [
            deque[Record | None](Record(path, n) for n in range(sent[number, path]))
            for number, path in self._flows
        ]
        self._machines: dict[str, ProcessState] = {
            node.name: initial(
                ChannelId(c)
                for c, flow in enumerate(self._flows)
                if _receiver(world, flow) == node.name
            )
            for node in world.nodes
        }
        self._recorded: dict[Flow, tuple[Record, ...]] = {}

    def run(self) -> dict[Flow, tuple[Record, ...]]:
        """Receive what was processed, snapshot, and receive the rest."""
        for channel, flow in enumerate(self._flows):
            for _ in range(self._received[flow]):
                self._receive(channel)
        for node in self._world.nodes:
            self._on(node.name, SnapshotInitiated(_ONE))
        for channel, queue in enumerate(self._channels):
            while queue:
                self._receive(channel)
        assert not any(machine.open for machine in self._machines.values()), "complete"
        return self._recorded

    def _receive(self, channel: int) -> None:
        item = self._channels[channel].popleft()
        name = _receiver(self._world, self._flows[channel])
        if item is _MARKER:
            self._on(name, MarkerReceived(ChannelId(channel), _ONE))
        else:
            self._on(name, MessageReceived(ChannelId(channel), item))

    def _on(self, name: str, event: SnapshotInitiated | MarkerReceived | MessageReceived) -> None:
        self._machines[name], effects = step(self._machines[name], event)
        for effect in effects:
            self._carry_out(name, effect)

    def _carry_out(self, name: str, effect: Effect) -> None:
        match effect:
            case SendMarkers():
                for channel, (number, _) in enumerate(self._flows):
                    if self._world.links[number].sender == name:
                        self._channels[channel].append(_MARKER)
            case ChannelRecorded(_, channel, messages):
                kept = tuple(m for m in messages if isinstance(m, Record))
                self._recorded[self._flows[channel]] = kept
            case _:
                pass
