"""An edge gives every row to whom it belongs, and everything else to everybody."""

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_core.plan.plan import Broadcast, Edge, Forward, Keyed, Partitioning, Rebalance
from laminar_core.protocol.types import Batch, EndOfInput, Watermark
from laminar_core.worker.channels import OUTPUT_QUEUE_BATCHES, OutputChannel
from laminar_core.worker.outputs import EdgeOutput, receivers_of, senders_of, splitter

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


@pytest.mark.parametrize(("feedback", "stays"), [(False, {1}), (True, {0, 1, 2})])
def test_what_stays_in_this_process_does_not_keep_the_memory_of_all_parts(
    *, feedback: bool, stays: set[int]
) -> None:
    """Goal: state of the sender's own worker may keep its rows, and the queue of a loop."""
    joined = replace(edge(Keyed(("key",))), feedback=feedback)
    split = splitter(joined, 1, parallelism=3, max_parallelism=128)
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
