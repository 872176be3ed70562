"""One worker's tasks: who has a channel to whom, what crosses, and what is restored."""

from typing import Any

import pyarrow as pa
import pytest

from laminar_core.connectors.discovery import first_splits
from laminar_core.errors import ErrorCode, ProtocolError
from laminar_core.host.clock import ManualClock
from laminar_core.link.transport import CoordinatorAddress
from laminar_core.link.wire import (
    ElementCodec,
    FrameKind,
    Header,
    decode_header,
    encode_arrived,
)
from laminar_core.plan.plan import Broadcast, Forward, Keyed, Partitioning, Rebalance
from laminar_core.protocol.kept_frames import FRAMES_MAX
from laminar_core.protocol.links import Connections
from laminar_core.protocol.types import (
    Batch,
    CheckpointBarrier,
    CheckpointId,
    DeclineCause,
    EndOfInput,
    Generation,
    Watermark,
)
from laminar_core.records.channel_entries import AlignmentEntry, ChannelEntry
from laminar_core.records.manifest import CheckpointManifest, fingerprint_of
from laminar_core.worker.channels import CREDITS_PER_CHANNEL
from laminar_core.worker.deployment import Deployment, RestoredState
from laminar_core.worker.restored_part import RestoredPart
from laminar_core.worker.wiring import Wiring, wire
from tests.driver.hosts import WorkerLink
from tests.plan.plans import SCHEMA, SOURCE, small_plan
from tests.records.manifests import manifest, subtask
from tests.store.stores import open_job

GENERATION = 4


class Listener:
    """Nobody cuts in these tests."""

    def on_operator(self, operator_id: str) -> None:
        """Nobody watches."""

    def on_cut(self, cut: Any) -> None:
        raise NotImplementedError

    def on_discard(self, checkpoint_id: CheckpointId) -> None:
        raise NotImplementedError

    def on_decline(self, checkpoint_id: CheckpointId, cause: DeclineCause, reason: str) -> None:
        raise NotImplementedError


class Bench:
    """Worker ``me`` of ``parallelism``, wired."""

    def __init__(
        self,
        me: int = 0,
        parallelism: int = 3,
        by: Partitioning | None = None,
        restored: CheckpointManifest | None = None,
        reorder_max: int = 0,
        **options: Any,
    ) -> None:
        deployment = Deployment(
            job="payments",
            generation=Generation(GENERATION),
            parallelism=parallelism,
            plan=small_plan(by),
            store_uri="memory://",
            address=CoordinatorAddress("ipc", "ipc:///x"),
            restored=None if restored is None else RestoredPart.whole(restored),
            claim_sha256=None,
            splits={"in": first_splits(SOURCE)},
            **options,
        )
        self.link, self.wiring = WorkerLink(), Wiring(me, GENERATION)
        self.link.reorder_max = reorder_max
        deployment = list(deployment.of_workers())[me]
        state = RestoredState(deployment, me, open_job())
        wire(self.wiring, deployment, state, self.link, Listener(), ManualClock())
        self.source, self.sink = self.wiring.tasks
        self.codec = ElementCodec(SCHEMA)

    def frame(self, sender: int, element: Any, sequence: int, **changes: int) -> None:
        kind, payload = self.codec.encode(element)
        fields = {
            "generation": GENERATION,
            "edge_id": 0,
            "sender": sender,
            "receiver": self.wiring.subtask_index,
            "kind": kind,
            "sequence": sequence,
        }
        self.wiring.on_frame(Header(**fields | changes).encode(), payload)

    def credit(self, taken: int, arrived: int) -> None:
        """Let worker 2 confirm frames of the channel to it."""
        header = Header(GENERATION, 0, self.wiring.subtask_index, 2, FrameKind.CREDIT, taken)
        self.wiring.on_frame(header.encode(), encode_arrived(arrived))

    def sent(self) -> list[tuple[int, Header]]:
        return [(peer, decode_header(header)) for peer, header, _ in self.link.frames]


def rows(count: int) -> Batch:
    reader = SOURCE.open(first_splits(SOURCE))
    return Batch(reader.poll(100).rows.slice(0, count))


class TestChannels:
    @pytest.mark.parametrize("by", [Keyed(("key",)), Rebalance(), Broadcast()])
    def test_everybody_has_a_channel_to_everybody(self, by):
        bench = Bench(me=1, by=by)
        assert list(bench.wiring.inputs) == [(0, 0), (0, 1), (0, 2)]
        assert list(bench.wiring.outputs) == [(0, 0), (0, 1), (0, 2)]
        assert [channel.channel for channel in bench.sink.parts.inputs] == [0, 1, 2]

    @pytest.mark.parametrize(("by", "out"), [(Keyed(("key",)), 1), (Forward(), 4)])
    def test_channels_to_a_worker_divide_its_memory_for_rows(self, by, out):
        """Each of three channels is held back after a batch, and a single one has it all."""
        bench = Bench(me=1, by=by, receive_bytes=5 * rows(100).data.nbytes)
        channel = bench.wiring.outputs[0, 1]
        for _ in range(4):
            channel.put(rows(100))
        channel.flush()
        assert CREDITS_PER_CHANNEL - channel.credits == out

    def test_a_forward_edge_stays_in_the_worker(self):
        bench = Bench(me=1, by=Forward())
        assert list(bench.wiring.inputs) == [(0, 1)]
        assert list(bench.wiring.outputs) == [(0, 1)]

    def test_what_stays_in_the_worker_is_handed_over_as_it_is(self):
        bench = Bench(me=1, by=Forward())
        batch = rows(5)
        bench.wiring.outputs[0, 1].put(batch)
        bench.source.flush()
        assert bench.link.frames == []
        assert bench.sink.parts.inputs[0].take() is batch

    def test_what_leaves_the_worker_is_numbered_per_channel(self):
        bench = Bench(me=1)
        for receiver, element in ((0, rows(1)), (2, rows(2)), (0, Watermark(5))):
            bench.wiring.outputs[0, receiver].put(element)
            bench.source.flush()
        headers = bench.sent()
        assert [(p, h.sender, h.receiver, h.sequence) for p, h in headers] == [
            (0, 1, 0, 0),
            (2, 1, 2, 0),
            (0, 1, 0, 1),
        ]
        assert {header.generation for _, header in headers} == {GENERATION}


class TestFrames:
    def test_they_reach_the_channel_of_their_sender(self):
        bench = Bench()
        bench.frame(2, rows(3), 0)
        bench.frame(1, EndOfInput(), 0)
        assert [len(channel) for channel in bench.sink.parts.inputs] == [0, 1, 1]
        assert bench.sink.parts.inputs[2].take().data.num_rows == 3

    @pytest.mark.parametrize("generation", [GENERATION - 1, GENERATION + 1])
    def test_one_of_another_generation_is_dropped(self, generation):
        """Over plain TCP a worker that was given up can still reach whoever has its peer's port."""
        bench = Bench()
        bench.frame(2, rows(1), 0, generation=generation)
        bench.frame(2, rows(1), 7, generation=generation, edge_id=9)
        bench.frame(0, EndOfInput(), 2, generation=generation, kind=FrameKind.CREDIT, receiver=2)
        assert bench.wiring.foreign_frames == 3
        bench.frame(2, rows(3), 0)
        assert [len(channel) for channel in bench.sink.parts.inputs] == [0, 0, 1]
        assert bench.sink.parts.inputs[2].take().data.num_rows == 3

    def test_one_that_comes_twice_is_dropped(self):
        bench = Bench()
        for sequence in (0, 0, 1, 0, 1):
            bench.frame(2, rows(1), sequence)
        assert [len(channel) for channel in bench.sink.parts.inputs] == [0, 0, 2]

    def test_one_that_is_missing_ends_the_generation(self):
        bench = Bench()
        bench.frame(2, rows(1), 0)
        with pytest.raises(ProtocolError, match="channel 2 expected frame 1 and got 2") as caught:
            bench.frame(2, rows(1), 2)
        assert caught.value.code is ErrorCode.OUT_OF_ORDER

    def test_a_transport_may_say_that_it_reorders(self):
        bench = Bench(reorder_max=2)
        for sequence, count in ((2, 3), (1, 2), (0, 1), (3, 4)):
            bench.frame(2, rows(count), sequence)
        channel = bench.sink.parts.inputs[2]
        assert [channel.take().data.num_rows for _ in range(4)] == [1, 2, 3, 4]
        with pytest.raises(ProtocolError, match="expected frame 4 and got 7"):
            bench.frame(2, rows(1), 7)

    def test_a_barrier_waits_for_what_was_sent_before_it(self):
        """ERRATA 3.2: it is a frame like any other, so it cannot come early."""
        bench = Bench(reorder_max=1)
        barrier = CheckpointBarrier(CheckpointId(1))
        bench.frame(2, barrier, 1)
        assert bench.sink.parts.inputs[2].ahead_of(CheckpointId(1)) == []
        assert len(bench.sink.parts.inputs[2]) == 0
        bench.frame(2, rows(2), 0)
        assert [e.data.num_rows for e in bench.sink.parts.inputs[2].ahead_of(CheckpointId(1))] == [
            2
        ]

    def test_one_that_is_missing_behind_a_broken_connection_is_waited_for(self):
        bench = Bench()
        bench.wiring.links.begin(bench.link, ["a", "b", "c"])
        bench.link.seen = Connections(accepted=3, established=3, closed=1)
        for sequence, count in ((0, 1), (2, 3), (1, 2)):
            bench.frame(2, rows(count), sequence)
        channel = bench.sink.parts.inputs[2]
        assert [channel.take().data.num_rows for _ in range(3)] == [1, 2, 3]

    def test_a_mark_shows_a_gap_and_is_no_element(self):
        bench = Bench()
        bench.frame(2, rows(1), 0)
        bench.frame(2, EndOfInput(), 1, kind=FrameKind.MARK)
        bench.frame(2, rows(1), 1)
        assert len(bench.sink.parts.inputs[2]) == 2
        with pytest.raises(ProtocolError, match="expected frame 2 and got 3"):
            bench.frame(2, EndOfInput(), 3, kind=FrameKind.MARK)

    def test_a_roll_call_is_answered_on_every_channel_of_the_caller(self):
        bench = Bench(me=1)
        bench.wiring.links.begin(bench.link, ["a", "b", "c"])
        bench.frame(2, EndOfInput(), 0, kind=FrameKind.ROLL_CALL)
        assert [(p, h.kind, h.sequence) for p, h in bench.sent()] == [
            (2, FrameKind.PRESENT, 0),
            (2, FrameKind.MARK, 0),
            (2, FrameKind.CREDIT, 0),
        ]

    def test_a_request_of_another_generation_sends_nothing_again(self):
        bench = Bench()
        bench.wiring.outputs[0, 2].put(rows(1))
        bench.source.flush()
        assert len(bench.sent()) == 1
        for generation, sent in ((GENERATION - 1, 1), (GENERATION + 1, 1), (GENERATION, 2)):
            header = Header(generation, 0, 0, 2, FrameKind.RESEND, 0)
            bench.wiring.on_frame(header.encode(), encode_arrived(0))
            assert len(bench.sent()) == sent

    def test_elements_without_credit_wait_while_too_many_are_not_confirmed(self):
        """A connection that is down for long must not fill the memory with watermarks."""
        bench = Bench()
        channel, end = bench.wiring.outputs[0, 2], bench.wiring.sending[0, 2]
        for time_us in range(FRAMES_MAX + 10):
            channel.put(Watermark(time_us))
            bench.source.flush()
        assert end.kept == FRAMES_MAX
        bench.credit(0, FRAMES_MAX)
        bench.source.flush()
        assert (end.kept, channel.empty) == (1, True)

    @pytest.mark.parametrize("totals", [[1, 3], [3], [2, 2, 3, 1, 3]])
    def test_credit_that_is_lost_repeated_or_late_sums_up_to_the_same(self, totals):
        bench = Bench()
        channel = bench.wiring.outputs[0, 2]
        for _ in range(CREDITS_PER_CHANNEL):
            channel.put(rows(1))
        bench.source.flush()
        for total in totals:
            bench.credit(total, total)
        assert channel.credits == 3

    def test_credit_for_what_was_never_sent_is_refused(self):
        bench = Bench()
        with pytest.raises(ProtocolError, match="1 credits came back and 0 are out"):
            bench.credit(1, 1)

    def test_credit_comes_back_to_its_channel(self):
        bench = Bench()
        channel = bench.wiring.outputs[0, 2]
        for _ in range(3):
            channel.put(rows(1))
        bench.source.flush()
        assert channel.credits == CREDITS_PER_CHANNEL - 3
        bench.credit(2, 2)
        assert channel.credits == CREDITS_PER_CHANNEL - 1

    def test_credit_goes_back_to_the_sender_of_what_was_taken(self):
        bench = Bench()
        bench.frame(2, rows(1), 0)
        bench.frame(2, rows(1), 1)
        while bench.sink.work():
            pass
        bench.sink.flush()
        ((peer, header),) = bench.sent()
        assert (peer, header.kind, header.sender, header.receiver) == (2, FrameKind.CREDIT, 2, 0)
        assert header.sequence == 2

    def test_credit_of_the_own_channel_needs_no_frame(self):
        bench = Bench(me=0)
        bench.wiring.outputs[0, 0].put(rows(1))
        bench.source.flush()
        assert bench.wiring.outputs[0, 0].credits == CREDITS_PER_CHANNEL - 1
        bench.sink.work()
        bench.sink.flush()
        assert bench.wiring.outputs[0, 0].credits == CREDITS_PER_CHANNEL
        assert bench.link.frames == []


class TestState:
    def restored(
        self,
        *channels: ChannelEntry,
        watermark_us: int | None = None,
        parallelism: int = 2,
        me: int = 0,
    ) -> Bench:
        entry = AlignmentEntry(
            vertex_id="time",
            subtask_index=0,
            mode="aligned",
            start_delay_ms=0.0,
            alignment_ms=0.0,
            watermark_us=watermark_us,
            channels=channels,
        )
        operators = ["in", "keep", "time", "out"]
        parts = [
            subtask(operator, n, properties={"newest_us": 9} if operator == "time" else {})
            for operator in operators
            for n in (0, 1)
        ]
        descriptions = {operator: {"kind": operator} for operator in operators}
        found = manifest(
            subtasks=tuple(parts),
            parallelism=dict.fromkeys(operators, 2),
            operators_description=descriptions,
            fingerprint={o: fingerprint_of(d) for o, d in descriptions.items()},
            alignment=(entry,),
        )
        return Bench(me=me, parallelism=parallelism, restored=found)

    def test_each_worker_reads_its_own_splits(self):
        splits = [
            Bench(me=n).source.parts.source.reader.position().column("split_id").to_pylist()
            for n in range(3)
        ]
        assert splits == [[0], [1], [2]]

    def test_watermarks_are_where_they_were_before_anything_arrives(self):
        bench = self.restored(
            ChannelEntry(input_id=0, watermark_us=5, idle=False),
            ChannelEntry(input_id=1, watermark_us=8, idle=True),
            watermark_us=5,
        )
        assert bench.sink.parts.gate.channels() == [(0, 5, False), (1, 8, True)]
        assert bench.wiring.watermark_us() == 5

    @pytest.mark.parametrize(
        ("parallelism", "me", "known_us", "announced_us"),
        [(2, 0, None, None), (4, 0, 5, 5), (4, 1, 5, 5), (4, 2, None, None), (1, 0, None, None)],
    )
    def test_new_senders_say_what_they_know(self, parallelism, me, known_us, announced_us):
        """The knowledge of old receiver 0 goes only to the subtasks that take over from it."""
        bench = self.restored(
            ChannelEntry(input_id=0, watermark_us=5, idle=False),
            ChannelEntry(input_id=1, watermark_us=8, idle=True),
            watermark_us=5,
            parallelism=parallelism,
            me=me,
        )
        assert bench.sink.parts.announced_us == announced_us
        if parallelism > 2:
            expected = [(n, known_us, False) for n in range(parallelism)]
            assert bench.sink.parts.gate.channels() == expected
            assert bench.wiring.watermark_us() == known_us

    def test_a_channel_is_replayed_after_those_of_earlier_senders_of_its_edge(self):
        assert Bench(by=Keyed(("key",))).sink.parts.replay_edges == [[0, 1, 2]]

    def test_barriers_of_the_restored_checkpoint_and_before_are_stale(self):
        bench = self.restored()
        assert bench.sink.parts.newest_id == 7
        assert bench.source.parts.newest_id == 7

    def test_operators_get_their_snapshots_and_a_fresh_start_none(self):
        fresh, restored = Bench(), self.restored()
        time = dict(restored.sink.parts.operators)["time"]
        assert time.snapshot(CheckpointId(8))().properties == {"newest_us": 9}
        time = dict(fresh.sink.parts.operators)["time"]
        assert time.snapshot(CheckpointId(8))().properties == {"newest_us": None}


def test_rows_are_counted_over_all_tasks() -> None:
    bench = Bench()
    while bench.source.work():
        bench.source.flush()
        while bench.sink.work():
            bench.sink.flush()
    counts = bench.wiring.counts()
    read = first_splits(SOURCE).column("rows_total").to_pylist()[0]
    assert counts.rows_in == read
    assert bench.wiring.flowing()
    assert not Bench().wiring.flowing()
    own = pa.Table.from_batches(bench.sink.parts.sink.writer.collected())
    assert counts.rows_out == own.num_rows
