"""A recorded state is one that the system could have been in, on any topology."""

from collections import Counter, deque
from dataclasses import dataclass, field

import hypothesis.strategies as st
from hypothesis import given, settings

from laminar_core.protocol.types import ChannelId
from tests.sampling import drawn
from verification.chandy_lamport import (
    ChannelRecorded,
    Completion,
    DiscardPart,
    MarkerReceived,
    MessageReceived,
    PartComplete,
    RecordState,
    SendMarkers,
    SnapshotAborted,
    SnapshotId,
    SnapshotInitiated,
    initial,
    step,
    unreached,
)

TOKENS = 3
"""Each process starts with so many; they are passed on, and none is made or lost."""


@dataclass(frozen=True)
class Marker:
    snapshot_id: SnapshotId


@dataclass
class Global:
    """Tokens held by each process, and tokens under way on each channel."""

    edges: list[tuple[int, int]]
    held: list[set[str]]
    under_way: list[deque[str]]

    def apply(self, move: tuple[str, int, str]) -> None:
        """A send or a receipt; asserts that it is possible."""
        kind, channel, token = move
        if kind == "send":
            self.held[self.edges[channel][0]].remove(token)
            self.under_way[channel].append(token)
        else:
            assert self.under_way[channel].popleft() == token
            self.held[self.edges[channel][1]].add(token)


@dataclass
class Recorded:
    """One snapshot, as it is put together from the effects."""

    states: dict[int, frozenset[str]] = field(default_factory=dict)
    at: dict[int, int] = field(default_factory=dict)
    """Length of the process's own history when it recorded."""
    channels: dict[int, tuple[str, ...]] = field(default_factory=dict)
    parts: list[int] = field(default_factory=list)
    discarded: set[int] = field(default_factory=set)


class System:
    """Processes with real channels in between; the machines see every event."""

    def __init__(self, processes: int, edges: list[tuple[int, int]]) -> None:
        self.edges = edges
        self.now = self.start(processes)
        self.channels: list[deque[str | Marker]] = [deque() for _ in edges]
        self.machines = [
            initial(ChannelId(c) for c, (_, receiver) in enumerate(edges) if receiver == p)
            for p in range(processes)
        ]
        self.history: list[tuple[int, tuple[str, int, str]]] = []
        self.snapshots: dict[SnapshotId, Recorded] = {}

    def start(self, processes: int) -> Global:
        held = [{f"{p}.{n}" for n in range(TOKENS)} for p in range(processes)]
        return Global(self.edges, held, [deque() for _ in self.edges])

    def send(self, channel: int) -> None:
        sender = self.edges[channel][0]
        token = min(self.now.held[sender])
        self._happens(sender, ("send", channel, token))
        self.channels[channel].append(token)

    def receive(self, channel: int) -> None:
        receiver = self.edges[channel][1]
        item = self.channels[channel].popleft()
        if isinstance(item, Marker):
            self.on(receiver, MarkerReceived(ChannelId(channel), item.snapshot_id))
        else:
            self.on(receiver, MessageReceived(ChannelId(channel), item))
            self._happens(receiver, ("receive", channel, item))

    def _happens(self, process: int, move: tuple[str, int, str]) -> None:
        self.now.apply(move)
        self.history.append((process, move))

    def on(self, process: int, event) -> None:
        self.machines[process], effects = step(self.machines[process], event)
        for effect in effects:
            recorded = self.snapshots.setdefault(effect.snapshot_id, Recorded())
            match effect:
                case RecordState():
                    assert process not in recorded.states, "recorded once (I2)"
                    recorded.states[process] = frozenset(self.now.held[process])
                    recorded.at[process] = sum(p == process for p, _ in self.history)
                case SendMarkers(snapshot_id):
                    for channel, (sender, _) in enumerate(self.edges):
                        if sender == process:
                            self.channels[channel].append(Marker(snapshot_id))
                case ChannelRecorded(_, channel, messages):
                    assert channel not in recorded.channels, "closed once (I2)"
                    recorded.channels[channel] = messages
                case PartComplete():
                    recorded.parts.append(process)
                case DiscardPart():
                    recorded.discarded.add(process)

    def reachable(self, recorded: Recorded) -> Global:
        """Carry out only what each process did before it recorded: is that possible, and where to?

        The order of the real history is kept, so every receipt must find its message (theorem 1).
        """
        state, done = self.start(len(self.machines)), Counter()
        for process, move in self.history:
            if done[process] < recorded.at[process]:
                done[process] += 1
                state.apply(move)
        return state

    def possible(self) -> list[tuple[str, int]]:
        sends = [("send", c) for c, (p, _) in enumerate(self.edges) if self.now.held[p]]
        return sends + [("receive", c) for c, queue in enumerate(self.channels) if queue]

    def drain(self) -> None:
        while any(self.channels):
            for channel, queue in enumerate(self.channels):
                if queue:
                    self.receive(channel)


@st.composite
def topologies(draw):
    """Up to 4 processes; any channels, also cycles, parallel ones and to oneself."""
    processes = draw(st.integers(1, 4))
    one = st.integers(0, processes - 1)
    edges = draw(st.lists(st.tuples(one, one), max_size=6))
    initiators = set(draw(st.lists(one, min_size=1, max_size=3)))
    names = [str(p) for p in range(processes)]
    named = [(str(sender), str(receiver)) for sender, receiver in edges]
    missed = unreached(names, named, map(str, initiators))
    return processes, edges, initiators | {int(p) for p in missed}


def run(data, system: System, starts: list[tuple[int, SnapshotId]]) -> None:
    """Draw moves and starts; what is not drawn in time happens at the end."""
    for _ in range(data.draw(st.integers(0, 25), label="moves")):
        moves = system.possible() + [("start", n) for n in range(len(starts))]
        if not moves:
            break
        kind, which = data.draw(st.sampled_from(moves))
        match kind:
            case "send":
                system.send(which)
            case "receive":
                system.receive(which)
            case _:
                process, snapshot_id = starts.pop(which)
                system.on(process, SnapshotInitiated(snapshot_id))
    for process, snapshot_id in starts:
        system.on(process, SnapshotInitiated(snapshot_id))
    system.drain()


@settings(max_examples=drawn(500), deadline=None)
@given(st.data(), topologies(), st.integers(1, 2))
def test_what_is_recorded_is_a_reachable_global_state(data, topology, snapshots) -> None:
    """Goal: I1, I2 and I3, with several initiators and overlapping snapshots.

    Method: hypothesis draws sends, receipts and starts; afterwards the history up to the cut is
    carried out alone, and must lead to what was recorded.
    """
    processes, edges, initiators = topology
    ids = [SnapshotId(n + 1) for n in range(snapshots)]
    system = System(processes, edges)
    run(data, system, [(p, n) for n in ids for p in sorted(initiators)])
    for snapshot_id in ids:
        recorded = system.snapshots[snapshot_id]
        completion = Completion(snapshot_id, frozenset(map(str, range(processes))))
        for part in recorded.parts:
            completion = completion.with_part(snapshot_id, str(part))
        assert completion.complete
        assert len(recorded.parts) == processes
        reached = system.reachable(recorded)
        assert [recorded.states[p] for p in range(processes)] == reached.held
        assert [recorded.channels[c] for c in range(len(edges))] == [*map(tuple, reached.under_way)]
        tokens = sum(map(len, recorded.states.values())) + sum(map(len, recorded.channels.values()))
        assert tokens == processes * TOKENS


@settings(max_examples=drawn(150), deadline=None)
@given(st.data(), topologies())
def test_a_snapshot_that_is_given_up_leaves_nothing_and_harms_no_other(data, topology) -> None:
    processes, edges, initiators = topology
    system = System(processes, edges)
    starts = [(p, SnapshotId(n)) for n in (1, 2) for p in sorted(initiators)]
    aborts = data.draw(st.permutations(range(processes)), label="order of the notices")
    told = data.draw(st.integers(0, processes), label="notices before the run")
    for process in aborts[:told]:
        system.on(process, SnapshotAborted(SnapshotId(1)))
    run(data, system, starts)
    for process in aborts[told:]:
        system.on(process, SnapshotAborted(SnapshotId(1)))
    system.drain()
    given_up, kept = (
        system.snapshots.get(SnapshotId(1), Recorded()),
        system.snapshots[SnapshotId(2)],
    )
    assert given_up.states.keys() <= given_up.discarded
    assert [machine.open for machine in system.machines] == [()] * processes
    assert [kept.states[p] for p in range(processes)] == system.reachable(kept).held
