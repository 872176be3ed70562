"""One subtask, driven element by element: what it takes, what it holds, where it cuts."""

from dataclasses import replace
from itertools import pairwise

import pyarrow as pa

from laminar_core.protocol.types import (
    CancelMarker,
    CheckpointId,
    CheckpointKind,
    DeclineCause,
    EndOfInput,
    Idle,
    Watermark,
)
from laminar_core.worker.channels import CREDITS_PER_CHANNEL, OUTPUT_QUEUE_BATCHES
from laminar_core.worker.task import Task
from tests.worker.task_bench import Bench, barrier, rows


class TestAlignment:
    def test_rows_behind_a_barrier_wait_for_the_other_channel(self):
        bench = Bench(inputs=2)
        bench.arrive(0, rows(1), barrier(1), rows(2))
        bench.arrive(1, rows(10))
        bench.work()
        assert bench.trace() == "1 10"
        assert len(bench.channels[0]) == 1
        bench.arrive(1, rows(20), barrier(1), rows(40))
        bench.work()
        assert bench.totals() == [(1, 31)]
        assert bench.trace().startswith("1 10 20 B1")
        assert bench.sum.total == 73

    def test_the_barrier_leaves_before_anything_that_comes_after_the_cut(self):
        bench = Bench(inputs=1)
        bench.arrive(0, rows(1), barrier(1), rows(2), barrier(2))
        bench.work()
        assert bench.trace() == "1 B1 2 B2"
        assert bench.totals() == [(1, 1), (2, 3)]

    def test_watermarks_keep_their_place(self):
        bench = Bench(inputs=2)
        bench.arrive(0, Watermark(5), barrier(1), Watermark(9))
        bench.arrive(1, Watermark(7))
        bench.work()
        assert bench.sum.watermarks == [5]
        bench.arrive(1, barrier(1))
        bench.work()
        assert bench.sum.watermarks == [5, 7]
        assert bench.trace() == "w5 B1 w7"

    def test_channels_take_turns(self):
        bench = Bench(inputs=2)
        bench.arrive(0, rows(1), rows(2))
        bench.arrive(1, rows(10), rows(20))
        bench.work()
        assert bench.trace() == "1 10 2 20"

    def test_the_wait_is_measured(self):
        bench = Bench(inputs=2)
        bench.arrive(0, barrier(1))
        bench.clock.wait_ms(30)
        bench.arrive(1, barrier(1))
        bench.work()
        assert bench.completed[0][1].alignment_ms == 30

    def test_the_watermarks_at_the_cut_are_part_of_it(self):
        bench = Bench(inputs=2)
        bench.arrive(0, Watermark(5), barrier(1))
        bench.arrive(1, Watermark(7), Idle(), barrier(1))
        bench.work()
        entry = bench.completed[0][1]
        assert entry.watermark_us == 5
        assert [(c.watermark_us, c.idle) for c in entry.channels] == [(5, False), (7, True)]


class TestGivingUp:
    def test_a_cancel_marker_releases_what_was_held_and_goes_on(self):
        bench = Bench(inputs=2)
        bench.arrive(0, barrier(1), rows(1))
        bench.arrive(1, CancelMarker(CheckpointId(1)), rows(2))
        bench.work()
        assert bench.trace() == "X1 1 2"
        assert (bench.cuts, bench.discarded) == ([], [1])

    def test_an_abort_releases_what_was_held(self):
        bench = Bench(inputs=2)
        bench.arrive(0, barrier(1), rows(1))
        bench.work()
        bench.task.abort(CheckpointId(1))
        bench.arrive(1, barrier(1), rows(2))
        bench.work()
        assert bench.trace() == "X1 1 2"
        assert bench.cuts == []

    def test_a_newer_barrier_subsumes_and_that_does_not_count_as_a_failure(self):
        bench = Bench(inputs=2)
        bench.arrive(0, barrier(1))
        bench.work()
        bench.arrive(1, barrier(2))
        bench.work()
        assert bench.declined == [(1, DeclineCause.SUBSUMED, "subsumed by a newer checkpoint")]
        bench.arrive(0, barrier(2))
        bench.work()
        assert [cut.checkpoint_id for cut in bench.cuts] == [2]

    def test_a_part_that_was_not_written_declines_the_checkpoint(self):
        bench = Bench(inputs=1)
        bench.arrive(0, barrier(1))
        bench.work()
        bench.task.snapshot_failed(CheckpointId(1), "sum: no space left")
        bench.work()
        assert bench.declined == [(1, DeclineCause.FAILED, "sum: no space left")]
        assert bench.trace() == "B1 X1"

    def test_a_failure_counts_whatever_its_words_are(self):
        bench = Bench(inputs=1)
        bench.arrive(0, barrier(1))
        bench.work()
        bench.task.snapshot_failed(CheckpointId(1), "subsumed-orders: no space left")
        assert bench.declined == [(1, DeclineCause.FAILED, "subsumed-orders: no space left")]

    def test_a_stale_barrier_is_ignored(self):
        bench = Bench(inputs=2)
        bench.arrive(0, barrier(2))
        bench.arrive(1, barrier(2))
        bench.work()
        bench.arrive(0, barrier(1), rows(1))
        bench.work()
        assert bench.trace() == "B2 1"


class TestEndOfInput:
    def test_the_end_counts_as_a_barrier(self):
        bench = Bench(inputs=2)
        bench.arrive(0, rows(1), barrier(1), rows(2))
        bench.arrive(1, rows(10), EndOfInput())
        bench.work()
        assert bench.totals() == [(1, 11)]
        assert bench.trace() == "1 10 B1 2"

    def test_the_last_end_flushes_and_ends_the_outputs(self):
        bench = Bench(inputs=2)
        for channel in (0, 1):
            bench.arrive(channel, rows(1), EndOfInput())
        bench.work()
        assert bench.trace() == "1 1 2 wEND END"
        assert bench.task.finished

    def test_a_pending_checkpoint_cuts_before_the_flush(self):
        bench = Bench(inputs=2)
        bench.arrive(0, rows(1), barrier(1), EndOfInput())
        bench.arrive(1, rows(2), EndOfInput())
        bench.work()
        assert bench.trace() == "1 2 B1 3 wEND END"
        assert bench.totals() == [(1, 3)]

    def test_a_finished_task_cuts_when_it_is_told_to_and_sends_nothing_more(self):
        bench = Bench(inputs=1)
        bench.arrive(0, rows(1), EndOfInput())
        bench.work()
        sent = bench.trace()
        bench.task.trigger(barrier(1, CheckpointKind.FINAL))
        bench.work()
        assert bench.totals() == [(1, 1)]
        assert bench.trace() == sent

    def test_a_trigger_that_came_before_the_end_is_binding_after_it(self):
        bench = Bench(inputs=1)
        bench.task.trigger(barrier(1))
        bench.work()
        assert bench.cuts == []
        bench.arrive(0, rows(1), EndOfInput())
        bench.work()
        assert bench.totals() == [(1, 1)]
        assert bench.trace() == "1 B1 1 wEND END"


class TestSources:
    TABLES = (pa.table({"n": [1, 2, 3, 4]}),)

    def test_it_cuts_when_it_is_told_to_and_remembers_where_it_was(self):
        bench = Bench(tables=self.TABLES, batch_rows=1)
        bench.task.work()
        bench.task.trigger(barrier(1))
        bench.work()
        assert bench.trace() == "1 B1 2 3 4 10 wEND END"
        pending = [part.pending for part in bench.cuts[0].parts if part.operator_id == "in"]
        positions = [finish().tables[0].rows for finish in pending]
        (split,) = positions[0].to_pylist()
        assert (split["split_id"], split["offset"], split["rows_total"]) == (0, "1", 4)

    def test_a_stop_is_the_last_thing_it_sends(self):
        bench = Bench(tables=self.TABLES, batch_rows=1)
        bench.task.work()
        bench.task.trigger(barrier(1, CheckpointKind.STOP))
        bench.work()
        assert bench.trace() == "1 B1"
        assert not bench.task.finished

    def test_a_stop_that_fails_is_taken_again_where_it_stopped(self):
        bench = Bench(tables=self.TABLES, batch_rows=1)
        bench.task.work()
        for checkpoint_id in (1, 2):
            bench.task.trigger(barrier(checkpoint_id, CheckpointKind.STOP))
            bench.task.abort(CheckpointId(checkpoint_id))
            bench.work()
        assert bench.totals() == [(1, 1), (2, 1)]

    def test_silence_becomes_idleness_once(self):
        bench = Bench(tables=self.TABLES, batch_rows=2, gap_every=1, gap_polls=4, idle_ms=50)
        for _ in range(5):
            bench.clock.wait_ms(20)
            bench.task.work()
        bench.flush()
        assert bench.trace() == "3 idle"
        bench.work()
        assert bench.trace() == "3 idle 7 10 wEND END"


class TestIdleInputs:
    def test_receivers_hear_that_all_inputs_are_idle_or_have_ended(self):
        bench = Bench(inputs=2, parts={"passes_idleness": True})
        bench.arrive(0, Watermark(5), Idle())
        bench.arrive(1, rows(1), Watermark(7))
        bench.work()
        assert bench.trace() == "1 w7"
        bench.arrive(1, EndOfInput())
        bench.work()
        assert bench.trace() == "1 w7 idle"
        bench.arrive(0, rows(2), Idle())
        bench.work()
        assert bench.trace() == "1 w7 idle 2 idle"

    def test_behind_an_exchange_they_do_not(self):
        bench = Bench(inputs=1)
        bench.arrive(0, Watermark(5), Idle())
        bench.work()
        assert bench.trace() == "w5"


class TestBackpressure:
    def test_nothing_is_taken_while_an_output_has_no_room(self):
        bench = Bench(inputs=1)
        bench.output.credits = 0
        bench.arrive(0, *(rows(n) for n in range(CREDITS_PER_CHANNEL)))
        while bench.task.work():
            bench.task.flush()
        assert len(bench.channels[0]) == CREDITS_PER_CHANNEL - OUTPUT_QUEUE_BATCHES
        assert bench.granted == [OUTPUT_QUEUE_BATCHES]
        bench.work()
        assert bench.trace() == "0 1 2 3"

    def test_credit_goes_back_for_what_was_taken_and_not_before(self):
        bench = Bench(inputs=2)
        bench.arrive(0, barrier(1), rows(1))
        bench.arrive(1, rows(2))
        bench.work()
        assert bench.granted == [0, 1]

    def test_a_source_waits_for_room(self):
        bench = Bench(tables=TestSources.TABLES, batch_rows=1)
        bench.output.credits = 0
        while bench.task.work():
            bench.task.flush()
        assert bench.sum.total == 3
        bench.work()
        assert bench.trace() == "1 2 3 4 10 wEND END"


class TestReplay:
    def test_what_is_replayed_on_an_edge_goes_before_anything_new_on_it(self):
        bench = Bench(3)
        bench.channels[0].restore([rows(1), rows(2)])
        parts = replace(bench.task.parts, replay_edges=[[0, 1]])
        bench.task = Task(parts, bench, bench.clock)
        bench.arrive(1, rows(100))
        bench.arrive(2, rows(1_000))
        totals = [0]
        while bench.task.work():
            bench.flush()
            totals.append(bench.sum.total)
        taken = [after - before for before, after in pairwise(totals)]
        assert sorted(taken) == [1, 2, 100, 1_000]
        assert [of for of in taken if of != 1_000] == [1, 2, 100]

    def test_event_time_that_has_to_be_heard_of_is_the_first_that_is_sent(self):
        bench = Bench(1, parts={"announced_us": 7})
        bench.arrive(0, Watermark(9))
        bench.work()
        assert bench.sent == [Watermark(7), Watermark(9)]
