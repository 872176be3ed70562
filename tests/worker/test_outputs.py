"""An edge gives every row to whom it belongs, and everything else to everybody."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_core.host.clock import ManualClock
from laminar_core.plan.plan import Broadcast, Edge, Forward, Keyed, Partitioning, Rebalance
from laminar_core.protocol.types import (
    AlignmentMode,
    Batch,
    CancelMarker,
    CheckpointBarrier,
    CheckpointId,
    EndOfInput,
    Idle,
    Watermark,
)
from laminar_core.worker.channels import CREDITS_PER_CHANNEL, OUTPUT_QUEUE_BATCHES, OutputChannel
from laminar_core.worker.collecting import COLLECTED_MS_MAX, RowCollector
from laminar_core.worker.inflight import InflightRecorder
from laminar_core.worker.outputs import (
    EdgeOutput,
    collector_of,
    receivers_of,
    senders_of,
    splitter,
)

SCHEMA = pa.schema([("key", pa.int64())])
PARTITIONINGS = (Forward(), Keyed(("key",)), Rebalance(), Broadcast())


def edge(partitioning: Partitioning) -> Edge:
    return Edge(0, "up", "down", partitioning, SCHEMA)


def rows(*keys: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"key": list(keys)}, SCHEMA)


class Receivers:
    """Everybody at the other end of one sender's edge, and what each was sent."""

    def __init__(self, partitioning: Partitioning, sender: int = 0, parallelism: int = 3) -> None:
        self.sent: dict[int, list] = {n: [] for n in receivers_of(edge(partitioning), sender, 3)}
        channels = {n: OutputChannel(sent.append) for n, sent in self.sent.items()}
        split = splitter(edge(partitioning), sender, parallelism, max_parallelism=128)
        self.output = EdgeOutput(split, channels, may_overtake=True)

    def keys(self) -> dict[int, list[list[int]]]:
        return {
            n: [e.data.column("key").to_pylist() for e in sent if isinstance(e, Batch)]
            for n, sent in self.sent.items()
        }


@pytest.mark.parametrize("partitioning", PARTITIONINGS, ids=str)
@pytest.mark.parametrize("parallelism", [1, 2, 5])
def test_both_ends_agree_on_the_channels(partitioning: Partitioning, parallelism: int) -> None:
    subtasks = range(parallelism)
    seen_by_senders = {
        (s, r) for s in subtasks for r in receivers_of(edge(partitioning), s, parallelism)
    }
    seen_by_receivers = {
        (s, r) for r in subtasks for s in senders_of(edge(partitioning), r, parallelism)
    }
    assert seen_by_senders == seen_by_receivers
    assert {s for s, _ in seen_by_senders} == {r for _, r in seen_by_senders} == set(subtasks)


@pytest.mark.parametrize(
    ("partitioning", "arrived"),
    [
        (Forward(), {1: [[1, 2], [3]]}),
        (Rebalance(), {0: [], 1: [[1, 2]], 2: [[3]]}),
        (Broadcast(), {0: [[1, 2], [3]], 1: [[1, 2], [3]], 2: [[1, 2], [3]]}),
    ],
    ids=str,
)
def test_batches_go_where_the_partitioning_says(partitioning: Partitioning, arrived) -> None:
    receivers = Receivers(partitioning, sender=1)
    for batch in (rows(1, 2), rows(3)):
        receivers.output.send(batch)
    assert receivers.output.flush()
    assert receivers.keys() == arrived


def test_round_robin_begins_with_another_receiver_for_each_sender() -> None:
    """Otherwise the first batches of all senders meet in one place."""
    firsts = []
    for sender in range(3):
        receivers = Receivers(Rebalance(), sender)
        receivers.output.send(rows(1))
        receivers.output.flush()
        firsts += [n for n, batches in receivers.keys().items() if batches]
    assert firsts == [0, 1, 2]


@given(st.lists(st.lists(st.integers(0, 50), max_size=9), max_size=6))
def test_every_row_has_one_owner_whoever_sends_it(batches: list[list[int]]) -> None:
    owners: dict[int, set[int]] = {}
    for sender in range(3):
        receivers = Receivers(Keyed(("key",)), sender)
        for keys in batches:
            receivers.output.send(rows(*keys))
            receivers.output.flush()
            for channel in receivers.output.channels.values():
                if out := 4 - channel.credits:
                    channel.give(out)
        arrived = receivers.keys()
        everything = [key for parts in arrived.values() for part in parts for key in part]
        assert sorted(everything) == sorted(key for keys in batches for key in keys)
        for receiver, parts in arrived.items():
            for key in {key for part in parts for key in part}:
                owners.setdefault(key, set()).add(receiver)
    assert all(len(found) == 1 for found in owners.values())


@pytest.mark.parametrize(("feedback", "stays"), [(False, {1}), (True, set(range(8)))])
def test_what_stays_in_this_process_does_not_keep_the_memory_of_all_parts(
    *, feedback: bool, stays: set[int]
) -> None:
    """Goal: state of the sender's own worker may keep its rows, and the queue of a loop."""
    joined = replace(edge(Keyed(("key",))), feedback=feedback)
    split = splitter(joined, 1, parallelism=8, max_parallelism=128)
    parts = dict(split(rows(*range(3_000))))
    compact = {n for n, part in parts.items() if part.get_total_buffer_size() == part.nbytes}
    assert compact == stays


@pytest.mark.parametrize("partitioning", PARTITIONINGS, ids=str)
def test_empty_batches_are_not_sent(partitioning: Partitioning) -> None:
    receivers = Receivers(partitioning)
    receivers.output.send(rows())
    assert not receivers.output.flush()


@pytest.mark.parametrize("partitioning", PARTITIONINGS, ids=str)
def test_what_is_no_batch_reaches_everybody_behind_the_rows(partitioning: Partitioning) -> None:
    receivers = Receivers(partitioning)
    receivers.output.send(rows(*range(40)))
    receivers.output.broadcast(Watermark(1))
    receivers.output.broadcast(EndOfInput())
    receivers.output.flush()
    for sent in receivers.sent.values():
        assert sent[-2:] == [Watermark(1), EndOfInput()]
        assert all(isinstance(element, Batch) for element in sent[:-2])


def test_one_full_channel_holds_the_sender_back() -> None:
    receivers = Receivers(Rebalance())
    full = receivers.output.channels[2]
    for _ in range(OUTPUT_QUEUE_BATCHES):
        assert receivers.output.has_room
        full.put(Batch(rows(1)))
    assert not receivers.output.has_room


# --- batches that are collected -----------------------------------------------------------------

BARRIER = CheckpointBarrier(CheckpointId(1))


class Collecting:
    """An edge to three receivers, who take batches only when told to."""

    def __init__(self, *, frame_rows: int = 4, collects: bool = True) -> None:
        self.clock = ManualClock()
        self.sent: dict[int, list] = {n: [] for n in range(3)}
        self.collector = RowCollector(3, self.clock, frame_rows=frame_rows) if collects else None
        self.output = EdgeOutput(
            splitter(edge(Keyed(("key",))), 0, 3, max_parallelism=128),
            {n: OutputChannel(sent.append) for n, sent in self.sent.items()},
            may_overtake=True,
            collector=self.collector,
        )
        self.recorder = InflightRecorder([], [self.output], 1 << 20, lambda _: None)

    @property
    def collected(self) -> int:
        return 0 if self.collector is None else self.collector.row_count

    def fill(self) -> None:
        """Send until rows wait for credit on each channel."""
        while any(channel.empty for channel in self.output.channels.values()):
            self.output.send(rows(*range(40)))
            self.output.flush()

    def take(self, receiver: int) -> None:
        """Return all credit of a channel."""
        channel = self.output.channels[receiver]
        if out := CREDITS_PER_CHANNEL - channel.credits:
            channel.give(out)

    def drain(self) -> None:
        self.output.flush()
        while not all(channel.empty for channel in self.output.channels.values()):
            for receiver in self.output.channels:
                self.take(receiver)
            self.output.flush()

    def flat(self) -> dict[int, list]:
        """Return per receiver the keys it was sent, and the last of watermarks in a row."""
        return {n: list(flattened(sent)) for n, sent in self.sent.items()}


def flattened(elements) -> Iterator[Any]:
    waiting = None
    for element in elements:
        if isinstance(element, Watermark):
            waiting = element
            continue
        if waiting is not None:
            yield waiting
            waiting = None
        if isinstance(element, Batch):
            yield from element.data.column("key").to_pylist()
        else:
            yield element
    if waiting is not None:
        yield waiting


STEPS = st.one_of(
    st.lists(st.integers(0, 30), max_size=20).map(lambda keys: ("send", keys)),
    st.integers(0, 99).map(lambda time_us: ("broadcast", Watermark(time_us))),
    st.sampled_from([("broadcast", Idle()), ("broadcast", CancelMarker(CheckpointId(1)))]),
    st.just(("flush", None)),
    st.integers(0, 2).map(lambda receiver: ("take", receiver)),
    st.sampled_from([10.0, 100.0]).map(lambda ms: ("wait", ms)),
)


@settings(deadline=None)
@given(st.lists(STEPS, max_size=40), st.integers(0, 40), st.sampled_from(["aligned", "unaligned"]))
def test_collecting_changes_nothing_but_the_sizes_of_batches(
    steps: list[tuple[str, Any]], cut_at: int, mode: AlignmentMode
) -> None:
    """Goal: per channel the same rows, marks and barrier in the same order, and the same cut.

    Method: the same steps with and without a collector. Rows before the barrier, and those that it
    overtook, are those before the cut: no more, no fewer.
    """
    edges = Collecting(), Collecting(collects=False)
    cuts: list[dict[int, list]] = []
    for each in edges:
        each.fill()
        overtaken: dict[int, list] = {n: [] for n in range(3)}
        time_us, turn_sent = 0, 0
        for number, (kind, what) in enumerate(steps):
            if number == cut_at:
                for captured in each.recorder.cut(BARRIER, mode):
                    overtaken[captured.queue.number] = list(captured.events)
                assert each.collected == 0
            if kind == "send":
                each.output.send(rows(*what))
                turn_sent += len(what)
            elif kind == "broadcast":
                time_us += what.time_us if isinstance(what, Watermark) else 0
                each.output.broadcast(Watermark(time_us) if isinstance(what, Watermark) else what)
                assert each.collected == 0
            elif kind == "flush":
                each.output.flush()
                waits = any(not channel.empty for channel in each.output.channels.values())
                assert not each.collected or (waits and turn_sent), "nothing is held back idly"
                turn_sent = 0
            elif kind == "take":
                each.take(what)
            else:
                each.clock.wait_ms(what)
        each.output.broadcast(EndOfInput())
        each.drain()
        cuts.append(
            {
                n: list(flattened([*before(sent), *overtaken[n]]))
                for n, sent in each.sent.items()
                if BARRIER in sent
            }
        )
    assert cuts[0] == cuts[1]
    assert keys_and_marks(edges[0]) == keys_and_marks(edges[1])


def before(sent: list) -> list:
    return sent[: sent.index(BARRIER)]


def keys_and_marks(collecting: Collecting) -> dict[int, list]:
    """Return ``flat`` without the barrier, which may overtake more or fewer frames."""
    return {n: [e for e in flat if e != BARRIER] for n, flat in collecting.flat().items()}


def test_a_batch_is_divided_at_once_while_receivers_keep_up() -> None:
    """Goal: no latency is added where nothing waits."""
    collecting = Collecting()
    for key in range(50):
        collecting.output.send(rows(key))
        assert collecting.collected == 0
        collecting.output.flush()
        for receiver in range(3):
            collecting.take(receiver)
    assert sum(len(sent) for sent in collecting.sent.values()) == 50


def test_small_batches_make_larger_frames_while_rows_wait() -> None:
    collecting = Collecting()
    collecting.fill()
    for first in range(0, 12, 2):
        collecting.output.send(rows(first, first + 1))
        collecting.output.flush()
    assert collecting.collected == 0, "there are twelve rows, four for each receiver"
    collecting.drain()
    keys = [len(sent[-1].data) for sent in collecting.sent.values()]
    assert sum(keys) == 12, "the last frames have all of them"


@pytest.mark.parametrize("reason", ["nothing was added", "the time is over", "nothing waits"])
def test_collected_rows_go_at_the_next_turn_in_which(reason: str) -> None:
    collecting = Collecting()
    collecting.fill()
    collecting.output.send(rows(1))
    collecting.output.flush()
    assert collecting.collected == 1
    if reason != "nothing was added":
        collecting.output.send(rows(2))
    if reason == "the time is over":
        collecting.clock.wait_ms(COLLECTED_MS_MAX)
    if reason == "nothing waits":
        for receiver in range(3):
            collecting.take(receiver)
    collecting.output.flush()
    assert collecting.collected == 0


def test_large_batches_are_never_collected_and_go_behind_collected_rows() -> None:
    collecting = Collecting()
    collecting.fill()
    collecting.output.send(rows(1))
    collecting.output.send(rows(*range(100, 112)))
    assert collecting.collected == 0
    collecting.drain()
    owner = next(flat for flat in collecting.flat().values() if 1 in flat)
    behind = [key for key in owner if key >= 100]
    assert owner[-1 - len(behind) :] == [1, *behind]


@pytest.mark.parametrize(
    ("partitioning", "loop", "collects"),
    [
        (Keyed(("key",)), None, True),
        (Keyed(("key",)), "head", False),
        (Rebalance(), None, False),
        (Broadcast(), None, False),
        (Forward(), None, False),
    ],
    ids=str,
)
def test_only_keyed_edges_outside_of_loops_collect(
    partitioning: Partitioning, loop: str | None, *, collects: bool
) -> None:
    joined = replace(edge(partitioning), loop=loop)
    assert (collector_of(joined, 3, ManualClock()) is not None) == collects


def test_an_edge_whose_rows_have_no_event_time_sends_everything_but_watermarks() -> None:
    sent: list = []
    output = EdgeOutput(
        splitter(edge(Forward()), 0, 1, max_parallelism=128),
        {0: OutputChannel(sent.append)},
        may_overtake=True,
        timed=False,
    )
    for element in (Watermark(1), BARRIER, Watermark(2), Idle(), EndOfInput()):
        output.broadcast(element)
    output.flush()
    assert sent == [BARRIER, Idle(), EndOfInput()]
