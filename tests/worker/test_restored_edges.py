"""Rows in flight survive a change of workers: every row once, in order, in time."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import product
from random import Random

import pyarrow as pa
import pytest

from laminar_core.codec.inflight import InflightElement
from laminar_core.plan.plan import (
    Broadcast,
    Edge,
    Forward,
    Keyed,
    Partitioning,
    Plan,
    Rebalance,
    Vertex,
)
from laminar_core.protocol.types import Batch, ChannelId, Idle, Watermark
from laminar_core.protocol.watermarks import WatermarkGate
from laminar_core.records.channel_entries import AlignmentEntry, ChannelEntry
from laminar_core.state.rescaling import Rescaling
from laminar_core.worker.outputs import numbered_inputs, splitter
from laminar_core.worker.restored_edges import (
    EventTimes,
    RestoredEdge,
    exchange_of,
    rescaled_edge,
    restored_gate,
    same_edge,
)

SCHEMA = pa.schema([("key", pa.int64()), ("n", pa.int64()), ("at", pa.int64())])
KEY_GROUPS = 16
KEYED, REBALANCE = Keyed(("key",)), Rebalance()
PAIRS = list(product((1, 2, 3, 5), repeat=2))


def plan_of(*partitionings: Partitioning) -> Plan:
    ups = tuple(Vertex(f"up-{n}", (SCHEMA,)) for n, _ in enumerate(partitionings))
    edges = tuple(Edge(n, f"up-{n}", "down", p, SCHEMA) for n, p in enumerate(partitionings))
    return Plan((*ups, Vertex("down", (SCHEMA,))), edges, KEY_GROUPS)


@dataclass
class Past:
    """Rows that old senders sent on an edge, and each old receiver's progress at the cut."""

    edge: Edge
    before: int
    dice: Random
    in_flight: dict[tuple[int, int], list[InflightElement]] = field(init=False)
    alignment: list[AlignmentEntry] = field(init=False)
    said_us: dict[int, int | None] = field(init=False)
    """The last watermark of each sender: whatever follows is not older."""

    def __post_init__(self) -> None:
        sent: defaultdict[tuple[int, int], list[InflightElement]] = defaultdict(list)
        self.said_us = {s: self._send(s, sent) for s in range(self.before)}
        self.in_flight, gates = {}, [self._gate() for _ in range(self.before)]
        for (sender, receiver), elements in sent.items():
            processed = self.dice.randrange(len(elements) + 1)
            for element in elements[:processed]:
                if isinstance(element, Watermark):
                    gates[receiver].advance(ChannelId(sender), element.time_us)
            self.in_flight[sender, receiver] = elements[processed:]
        self.alignment = [entry(r, gate) for r, gate in enumerate(gates)]

    def _gate(self) -> WatermarkGate:
        return WatermarkGate(ChannelId(s) for s in range(self.before))

    def _send(self, sender: int, sent: dict[tuple[int, int], list[InflightElement]]) -> int | None:
        """Rows never older than the watermark before them, and up to 9 newer."""
        said_us = None
        split = splitter(self.edge, sender, self.before, KEY_GROUPS)
        for number in range(self.dice.randrange(12)):
            at = [(said_us or 0) + self.dice.randrange(10) for _ in range(4)]
            keys = [self.dice.randrange(20) for _ in at]
            numbers = [1_000 * sender + 10 * number + n for n, _ in enumerate(at)]
            for receiver, part in split(pa.record_batch([keys, numbers, at], schema=SCHEMA)):
                sent[sender, receiver].append(Batch(part))
            if self.dice.random() < 0.7:
                said_us = (said_us or 0) + self.dice.randrange(1, 9)
                for receiver in range(self.before):
                    sent[sender, receiver].append(Watermark(said_us))
        return said_us

    def read(self, sender: int, receiver: int) -> list[InflightElement]:
        return self.in_flight.get((sender, receiver), [])


def entry(receiver: int, gate: WatermarkGate) -> AlignmentEntry:
    return AlignmentEntry(
        vertex_id="down",
        subtask_index=receiver,
        mode="unaligned",
        start_delay_ms=0.0,
        alignment_ms=0.0,
        watermark_us=gate.combined_us,
        channels=tuple(
            ChannelEntry(input_id=c, watermark_us=w, idle=i) for c, w, i in gate.channels()
        ),
    )


class Restored:
    """New receivers that continue a past, row by row."""

    def __init__(self, partitioning: Partitioning, before: int, after: int, seed: int) -> None:
        self.plan = plan_of(partitioning)
        self.edge = self.plan.edges[0]
        self.past = Past(self.edge, before, Random(seed))
        times = EventTimes(self.plan, before, self.past.alignment)
        rescaling = Rescaling(before, after, KEY_GROUPS)
        self.found = [
            rescaled_edge(self.edge, new, rescaling, times, self.past.read) for new in range(after)
        ]
        combined = [
            times.of_subtasks(
                "down", rescaling.origins_of_receiver(exchange_of(self.edge), receiver)
            )
            for receiver in range(after)
        ]
        self.gates = [
            restored_gate(numbered_inputs(self.plan, "down", new, after), {0: edge}, combined_us)
            for new, (edge, combined_us) in enumerate(zip(self.found, combined, strict=True))
        ]


@pytest.mark.parametrize("partitioning", [KEYED, REBALANCE], ids=str)
@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_every_row_has_one_owner_and_keeps_its_place(partitioning, before, after) -> None:
    for seed in range(3):
        restored = Restored(partitioning, before, after, seed)
        owners: Counter[int] = Counter()
        for new, edge in enumerate(restored.found):
            assert [s for s, queue in edge.queues.items() if queue] in ([], [0])
            of_sender: defaultdict[int, list[int]] = defaultdict(list)
            for element in edge.queues[0]:
                if isinstance(element, Batch):
                    assert element.data.num_rows
                    owners.update(element.data.column("n").to_pylist())
                    keys = element.data.column("key").to_pylist()
                    for key, n in zip(keys, element.data.column("n").to_pylist(), strict=True):
                        of_sender[n // 1_000, key if partitioning is KEYED else -1].append(n)
            if partitioning is KEYED:  # Else batches of several old receivers are alternatives.
                assert all(numbers == sorted(numbers) for numbers in of_sender.values())
            assert new < after
        in_flight = [
            n
            for elements in restored.past.in_flight.values()
            for element in elements
            if isinstance(element, Batch)
            for n in element.data.column("n").to_pylist()
        ]
        assert owners == Counter(in_flight)


@pytest.mark.parametrize("partitioning", [KEYED, REBALANCE], ids=str)
@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_no_row_is_late_and_event_time_comes_as_far_as_it_would_have(
    partitioning, before, after
) -> None:
    for seed in range(20, 30):
        restored = Restored(partitioning, before, after, seed)
        said_us = list(restored.past.said_us.values())
        comes_to_us = None if None in said_us else min(w for w in said_us if w is not None)
        for edge, gate in zip(restored.found, restored.gates, strict=True):
            seen = []
            for element in edge.queues[0]:
                if isinstance(element, Batch):
                    oldest_us = min(element.data.column("at").to_pylist())
                    assert gate.combined_us is None or oldest_us >= gate.combined_us
                elif isinstance(element, Watermark):
                    seen.append(gate.advance(ChannelId(0), element.time_us))
            assert gate.combined_us == comes_to_us
            risen = [w for w in seen if w is not None]
            assert risen == sorted(risen)


def test_a_sender_that_was_idle_is_idle_only_if_all_were() -> None:
    plan = plan_of(KEYED)
    channels = [ChannelEntry(input_id=n, watermark_us=5 + n, idle=True) for n in range(2)]
    alignment = entry(0, WatermarkGate([])).model_copy(update={"channels": tuple(channels)})
    times = EventTimes(plan, 2, [alignment, alignment.model_copy(update={"subtask_index": 1})])
    rescaling = Rescaling(2, 3, KEY_GROUPS)

    def idle(*in_flight: InflightElement) -> RestoredEdge:
        queues = {(0, 0): in_flight}
        return rescaled_edge(
            plan.edges[0], 0, rescaling, times, lambda s, r: queues.get((s, r), ())
        )

    assert idle().times == {0: (5, True), 1: (5, True), 2: (5, True)}
    woken = idle(Watermark(9))
    assert woken.times == {0: (5, True), 1: (6, False), 2: (6, False)}
    assert list(woken.queues[0]) == [Watermark(6)]
    assert list(idle(Watermark(9), Idle()).queues[0]) == [Watermark(6), Idle()]


def test_times_are_found_by_edge_whatever_the_edges_before_it() -> None:
    """Channels are numbered over all inputs; a forward edge has one, others one per sender."""
    plan = plan_of(Forward(), KEYED, Broadcast())
    edges = plan.edges
    alignment = [
        entry(receiver, WatermarkGate([])).model_copy(
            update={
                "subtask_index": receiver,
                "channels": tuple(
                    ChannelEntry(input_id=n, watermark_us=10 * receiver + n, idle=False)
                    for n in range(5)
                ),
            }
        )
        for receiver in range(2)
    ]
    times = EventTimes(plan, 2, alignment)
    assert times.of_channel(edges[0], 1, 1) == (10, False)
    assert times.of_channel(edges[1], 0, 1) == (11, False)
    assert times.of_channel(edges[2], 1, 1) == (14, False)
    assert times.of_channel(edges[0], 0, 1) == (None, False)


@pytest.mark.parametrize("partitioning", [Forward(), Broadcast()], ids=str)
@pytest.mark.parametrize(("before", "after"), [(1, 3), (2, 1), (3, 2)])
def test_without_rows_in_flight_the_least_of_all_that_was_said_goes_on(
    partitioning, before, after
) -> None:
    plan = plan_of(partitioning)
    edge = plan.edges[0]
    gates = []
    for receiver in range(before):
        inputs = numbered_inputs(plan, "down", receiver, before)
        gate = WatermarkGate(c for _, _, c in inputs)
        for _, sender, channel in inputs:
            gate.advance(channel, 20 - sender)
        gates.append(gate)
    times = EventTimes(plan, before, [entry(r, gate) for r, gate in enumerate(gates)])
    for new in range(after):
        found = rescaled_edge(edge, new, Rescaling(before, after, KEY_GROUPS), times, lambda *_: ())
        assert set(found.times.values()) == {(20 - (before - 1), False)}
        assert not any(found.queues.values())


def test_rows_where_no_barrier_overtakes_are_nobodys() -> None:
    plan = plan_of(Broadcast())
    times, rows = EventTimes(plan, 2, ()), Batch(pa.record_batch([[1], [1], [1]], schema=SCHEMA))
    with pytest.raises(AssertionError, match="1 rows in flight"):
        rescaled_edge(plan.edges[0], 0, Rescaling(2, 1, KEY_GROUPS), times, lambda *_: [rows])


def test_with_as_many_workers_every_channel_goes_on() -> None:
    past = Past(plan_of(KEYED).edges[0], 3, Random(1))
    times = EventTimes(plan_of(KEYED), 3, past.alignment)
    for receiver in range(3):
        found = same_edge(past.edge, receiver, 3, times, past.read)
        assert found.queues == {s: past.read(s, receiver) for s in range(3)}
        channels = past.alignment[receiver].channels
        assert list(found.times.values()) == [(c.watermark_us, c.idle) for c in channels]
