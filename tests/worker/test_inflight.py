"""Unaligned cuts of one subtask: what is captured of which queue, and when it is complete."""

import pyarrow as pa
import pytest

from laminar_core.protocol.types import (
    Batch,
    CancelMarker,
    ChannelId,
    CheckpointBarrier,
    CheckpointId,
    CheckpointKind,
    DeclineCause,
    EndOfInput,
    Idle,
    Watermark,
)
from laminar_core.worker.inflight import MARK_BYTES, ElementSizes, SnapshotLimits
from laminar_core.worker.slicing import SLOW_BATCHES
from tests.worker.task_bench import Bench, barrier, batch, rows, timed, unaligned, word

ONE = CheckpointId(1)


def modes(bench: Bench) -> list[tuple[int, str]]:
    return [(checkpoint_id, entry.mode) for checkpoint_id, entry in bench.completed]


class TestInputs:
    def test_what_is_queued_ahead_of_the_barrier_is_captured_and_processed_all_the_same(self):
        bench = Bench(inputs=1)
        bench.arrive(0, rows(1), Watermark(5), Idle(), rows(2), unaligned(1), rows(4))
        assert bench.inflight() == {"input 0": "1 w5 idle 2 !"}
        assert bench.totals() == [(1, 0)]
        bench.work()
        assert bench.trace() == "U1 1 w5 2 4"
        assert bench.sum.total == 7
        assert modes(bench) == [(1, "unaligned")]

    def test_a_channel_is_recorded_until_its_barrier_arrives_not_until_it_is_reached(self):
        bench = Bench(inputs=2)
        bench.arrive(1, rows(10))
        bench.arrive(0, unaligned(1))
        bench.work()
        bench.arrive(1, rows(20), Watermark(7))
        assert bench.completed == []
        bench.arrive(1, unaligned(1), rows(40))
        assert bench.inflight() == {"input 0": "!", "input 1": "10 20 w7 !"}
        assert modes(bench) == [(1, "unaligned")]
        bench.work()
        assert bench.sum.total == 70

    def test_a_timeout_carries_the_aligned_channels_over_and_captures_the_others(self):
        bench = Bench(inputs=3)
        bench.arrive(0, rows(1), timed(1), rows(2))
        bench.work()
        bench.arrive(1, rows(10), timed(1))
        bench.arrive(2, rows(100))
        bench.task.time_out(ONE)
        assert bench.inflight() == {"input 1": "10 !", "input 2": "100"}
        bench.arrive(2, rows(200), timed(1))
        assert bench.inflight() == {"input 1": "10 !", "input 2": "100 200 !"}
        assert bench.totals() == [(1, 1)]
        bench.work()
        assert (bench.sum.total, modes(bench)) == (313, [(1, "switched")])

    def test_a_barrier_that_comes_after_the_budget_switches_on_arrival(self):
        bench = Bench(inputs=2)
        bench.task.time_out(ONE)
        bench.arrive(0, rows(1), timed(1))
        assert (bench.inflight(), bench.totals()) == (
            {"input 0": "1 !", "input 1": ""},
            [(1, 0)],
        )

    def test_aligned_in_time_is_aligned_and_captures_nothing(self):
        bench = Bench(inputs=2)
        bench.arrive(0, timed(1))
        bench.arrive(1, rows(1), timed(1))
        bench.work()
        bench.task.time_out(ONE)
        assert (bench.inflight(), modes(bench)) == ({}, [(1, "aligned")])

    def test_a_savepoint_never_switches(self):
        bench = Bench(inputs=2)
        bench.arrive(0, barrier(1, CheckpointKind.SAVEPOINT))
        bench.work()
        bench.task.time_out(ONE)
        bench.arrive(1, rows(1), barrier(1, CheckpointKind.SAVEPOINT))
        bench.work()
        assert (bench.totals(), modes(bench)) == ([(1, 1)], [(1, "aligned")])

    def test_the_end_of_a_channel_closes_its_recording(self):
        bench = Bench(inputs=2)
        bench.arrive(0, unaligned(1))
        bench.arrive(1, rows(1), EndOfInput())
        assert bench.inflight() == {"input 0": "!", "input 1": "1 !"}
        assert modes(bench) == [(1, "unaligned")]

    def test_markers_are_no_channel_state(self):
        bench = Bench(inputs=2)
        bench.arrive(1, timed(1), rows(1), CancelMarker(ONE))
        bench.arrive(0, unaligned(2))
        bench.arrive(1, CancelMarker(ONE), unaligned(2))
        assert bench.inflight()["input 1"] == "1 !"

    def test_on_a_channel_that_nothing_overtakes_the_cut_waits_for_what_is_ahead(self):
        bench = Bench(inputs=2, parts={"aligned_only": frozenset({ChannelId(1)})})
        bench.arrive(1, rows(10), unaligned(1))
        bench.arrive(0, rows(1), unaligned(1))
        assert bench.cuts == []
        bench.work()
        assert bench.totals() == [(1, 11)]
        assert bench.inflight() in ({}, {"input 0": "!"})

    def test_an_abort_while_recording_drops_it_and_the_next_checkpoint_is_whole(self):
        bench = Bench(inputs=2)
        bench.arrive(0, unaligned(1))
        bench.arrive(1, rows(1))
        bench.task.abort(ONE)
        bench.captured.clear()
        bench.arrive(1, rows(2), unaligned(1), rows(4))
        assert (bench.captured, bench.completed, bench.discarded) == ([], [], [1])
        bench.arrive(0, unaligned(2))
        bench.arrive(1, unaligned(2))
        assert bench.inflight() == {"input 0": "!", "input 1": "1 2 4 !"}
        assert modes(bench) == [(2, "unaligned")]


class TestOutputs:
    def blocked(self, *elements, **parts) -> Bench:
        """A task whose output waits for credit."""
        bench = Bench(inputs=1, parts=parts)
        bench.output.credits = 0
        bench.arrive(0, *elements)
        while bench.task.work():
            bench.task.flush()
        return bench

    def test_the_barrier_takes_the_head_and_what_it_passes_is_captured(self):
        bench = self.blocked(rows(1), Watermark(5), rows(2))
        bench.arrive(0, unaligned(1))
        assert bench.inflight() == {"input 0": "!", "output 0": "1 w5 2 !"}
        assert modes(bench) == [(1, "unaligned")]
        bench.task.flush()
        assert bench.trace() == "U1"
        bench.work()
        assert bench.trace() == "U1 1 w5 2"

    def test_an_edge_that_may_not_be_overtaken_keeps_its_order(self):
        bench = self.blocked(rows(1))
        bench.task.parts.outputs[0].may_overtake = False
        bench.arrive(0, unaligned(1))
        bench.work()
        assert bench.trace() == "1 U1"
        assert (bench.inflight(), modes(bench)) == ({"input 0": "!"}, [(1, "unaligned")])

    def test_a_barrier_that_waits_when_the_budget_is_spent_moves_to_the_head(self):
        bench = self.blocked(rows(1), rows(2), timed(1), rows(4))
        assert (bench.totals(), bench.completed) == ([], []), "the full output holds it back"
        bench.output.credits = 1
        bench.task.flush()
        bench.task.work()
        assert bench.totals() == [(1, 3)]
        assert bench.completed == [], "it may still be overtaken"
        bench.task.time_out(ONE)
        assert (bench.inflight(), modes(bench)) == ({"output 0": "2 !"}, [(1, "switched")])
        bench.work()
        assert bench.trace() == "1 U1 2 4"

    def test_a_barrier_that_left_in_its_place_has_overtaken_nothing(self):
        bench = self.blocked(rows(1), timed(1))
        bench.task.work()
        assert bench.completed == []
        bench.work()
        assert (bench.inflight(), modes(bench)) == ({}, [(1, "aligned")])
        bench.task.time_out(ONE)
        assert modes(bench) == [(1, "aligned")]

    def test_an_abort_while_the_barrier_waits_ends_it(self):
        bench = self.blocked(rows(1), timed(1))
        bench.task.work()
        bench.task.abort(ONE)
        bench.task.time_out(ONE)
        bench.work()
        assert (bench.inflight(), bench.completed) == ({}, [])

    @pytest.mark.parametrize(
        ("marker", "sent"), [(unaligned(1), "U1 1 1 wEND END"), (barrier(1), "1 1 wEND B1 END")]
    )
    def test_the_end_that_waits_lets_a_barrier_before_it(self, marker, sent):
        bench = self.blocked(rows(1))
        bench.arrive(0, EndOfInput())
        bench.task.work()
        bench.task.trigger(marker)
        bench.work()
        assert bench.trace() == sent
        assert len(bench.completed) == 1

    def test_the_end_that_left_stands_for_the_barrier(self):
        bench = Bench(inputs=1)
        bench.arrive(0, EndOfInput())
        bench.work()
        bench.task.trigger(unaligned(1))
        bench.work()
        assert bench.trace() == "0 wEND END"
        assert (bench.inflight(), modes(bench)) == ({}, [(1, "unaligned")])
        assert bench.completed[0][1].finished


class TestSlowOperators:
    def test_a_barrier_waits_for_a_slice_and_the_rest_of_the_batch_is_captured(self):
        bench = Bench(inputs=1)
        process = bench.sum.process

        def slow(batch):
            bench.clock.wait_ms(10 * batch.num_rows)
            return process(batch)

        bench.sum.process = slow
        bench.arrive(0, *[rows(1, 1, 1, 1)] * SLOW_BATCHES)
        bench.work()
        bench.arrive(0, rows(2, 2, 2, 2))
        bench.task.work()
        bench.arrive(0, unaligned(1))
        assert bench.totals() == [(1, 12)]
        assert bench.inflight() == {"input 0": "4 !", "output 0": "4 !"}
        assert bench.granted == [SLOW_BATCHES], "its credit comes back with its last row"
        bench.work()
        assert (bench.sum.total, bench.granted) == (16, [SLOW_BATCHES + 1])


class TestLimits:
    def test_more_than_allowed_declines_the_checkpoint_and_drops_no_row(self):
        limit = SnapshotLimits(max_inflight_buffer_bytes=ElementSizes()(rows(1)))
        bench = Bench(inputs=2, parts={"limits": limit})
        bench.arrive(0, unaligned(1))
        bench.arrive(1, rows(1))
        assert bench.declined == []
        bench.arrive(1, rows(2))
        (declined,) = bench.declined
        assert declined[0] == 1
        assert declined[1] is DeclineCause.FAILED
        assert "max_inflight_buffer_bytes" in declined[2]
        bench.arrive(1, unaligned(1))
        bench.work()
        assert (bench.completed, bench.sum.total) == ([], 3)
        assert bench.trace() == "U1 X1 1 2"

    def test_the_limit_counts_each_queue_and_each_checkpoint_for_itself(self):
        limit = SnapshotLimits(max_inflight_buffer_bytes=ElementSizes()(rows(1)))
        bench = Bench(inputs=2, parts={"limits": limit})
        for n in (1, 2):
            bench.arrive(0, rows(1), unaligned(n))
            bench.arrive(1, rows(1), unaligned(n))
            bench.work()
        assert (modes(bench), bench.declined) == ([(1, "unaligned"), (2, "unaligned")], [])

    def test_an_overtaken_output_counts_too(self):
        limit = SnapshotLimits(max_inflight_buffer_bytes=ElementSizes()(rows(1)))
        bench = Bench(inputs=1, parts={"limits": limit})
        bench.output.credits = 0
        bench.arrive(0, rows(1), rows(2))
        while bench.task.work():
            bench.task.flush()
        bench.arrive(0, unaligned(1))
        assert [n for n, _, _ in bench.declined] == [1]
        bench.work()
        assert bench.trace() == "U1 1 2 X1"

    def test_a_synchronous_phase_that_takes_too_long_declines_the_checkpoint(self):
        bench = Bench(inputs=1, parts={"limits": SnapshotLimits(sync_timeout_ms=50)})
        snapshot = bench.sum.snapshot

        def slow(checkpoint_id: CheckpointId):
            bench.clock.wait_ms(60 if checkpoint_id == ONE else 10)
            return snapshot(checkpoint_id)

        bench.sum.snapshot = slow
        bench.arrive(0, barrier(1), rows(1), barrier(2))
        bench.work()
        assert [(n, cause) for n, cause, _ in bench.declined] == [(1, DeclineCause.FAILED)]
        assert "60 ms" in bench.declined[0][2]
        assert (modes(bench), bench.trace()) == ([(2, "aligned")], "B1 X1 1 B2")

    def test_an_unaligned_cut_that_takes_too_long_captures_nothing_more(self):
        bench = Bench(inputs=2, parts={"limits": SnapshotLimits(sync_timeout_ms=50)})
        snapshot = bench.sum.snapshot

        def slow(checkpoint_id: CheckpointId):
            bench.clock.wait_ms(60)
            return snapshot(checkpoint_id)

        bench.sum.snapshot = slow
        bench.arrive(0, rows(1), unaligned(1))
        bench.arrive(1, rows(2), unaligned(1))
        bench.work()
        assert [n for n, _, _ in bench.declined] == [1]
        assert (bench.captured, bench.completed, bench.sum.total) == ([], [], 3)

    def test_sizes_are_those_of_the_file(self):
        assert ElementSizes()(Watermark(5)) == ElementSizes()(Idle()) == MARK_BYTES
        plain = batch(*range(1000))
        assert ElementSizes()(Batch(plain)) == plain.serialize().size
        words = pa.array(["a" * 500, "b" * 500]).dictionary_encode()
        encoded = pa.record_batch({"w": words})
        assert ElementSizes()(Batch(encoded)) >= 1000
        assert ElementSizes()(Batch(plain.slice(0, 10))) < 1000


class TestRestored:
    def test_restored_rows_come_first_and_nobody_gets_credit_for_them(self):
        bench = Bench(inputs=1)
        bench.channels[0].restore([rows(1), Watermark(3), rows(2)])
        bench.arrive(0, rows(4))
        bench.work()
        assert bench.trace() == "1 w3 2 4"
        assert bench.granted == [1]

    def test_what_has_not_been_replayed_is_in_the_next_checkpoint(self):
        bench = Bench(inputs=1)
        bench.channels[0].restore([rows(1), rows(2)])
        bench.output.restore([rows(8)])
        bench.arrive(0, rows(4), unaligned(1))
        assert bench.inflight() == {"input 0": "1 2 4 !", "output 0": "8 !"}

    def test_an_aligned_barrier_stays_behind_what_is_replayed(self):
        bench = Bench(inputs=1)
        bench.channels[0].restore([rows(1)])
        bench.output.restore([rows(8)])
        bench.arrive(0, barrier(1))
        bench.work()
        assert (bench.trace(), bench.totals()) == ("8 1 B1", [(1, 1)])

    def test_a_source_that_had_ended_is_not_read_again(self):
        tables = [pa.table({"n": [1, 2]})]
        bench = Bench(tables=tables, parts={"finished": True})
        bench.output.restore([])
        bench.work()
        assert (bench.trace(), bench.sum.total) == ("END", 0)
        bench.task.trigger(barrier(1))
        assert bench.completed[0][1].finished

    def test_the_words_of_a_barrier_tell_its_mode(self):
        assert [word(b) for b in (barrier(1), timed(2), unaligned(3))] == ["B1", "B2", "U3"]
        assert isinstance(unaligned(3), CheckpointBarrier)
