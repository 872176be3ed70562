"""Rows in a bundle are emitted before each cut, and as soon as no more of them come."""

from collections.abc import Iterable

import pyarrow as pa

from laminar_core.protocol.types import ChannelId, CheckpointId, EndOfInput, Idle, Watermark
from tests.worker.task_bench import Bench, Sum, barrier, batch, rows, unaligned


class Bundles(Sum):
    """Keeps the sum of what came; no event time completes it."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[int] = []

    @property
    def has_bundle(self) -> bool:
        return bool(self.kept)

    def process(self, rows: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        self.kept += rows.column("n").to_pylist()
        return ()

    def finish_bundle(self) -> Iterable[pa.RecordBatch]:
        kept, self.kept = self.kept, []
        yield batch(sum(kept))

    def on_watermark(self, watermark_us: int) -> Iterable[pa.RecordBatch]:
        del watermark_us
        return self.finish_bundle() if self.kept else ()

    def snapshot(self, checkpoint_id: CheckpointId):
        assert not self.kept, "they would be lost"
        return super().snapshot(checkpoint_id)


def bundling(inputs: int = 0, **more) -> Bench:
    return Bench(inputs=inputs, parts={"operators": [("sum", Bundles())], **more.pop("parts", {})},
                 **more)  # fmt: skip


def test_rows_that_are_there_are_one_bundle() -> None:
    bench = bundling(inputs=1)
    bench.arrive(0, rows(1), rows(2), rows(3))
    bench.work()
    bench.arrive(0, rows(4))
    bench.work()
    assert bench.trace() == "6 4"


def test_rows_of_a_bundle_come_before_the_mark_that_the_input_is_idle() -> None:
    bench = bundling(inputs=1, parts={"passes_idleness": True})
    bench.arrive(0, rows(1), rows(2), Idle())
    bench.work()
    assert bench.trace() == "3 idle"


def test_a_cut_comes_after_the_rows_of_a_bundle() -> None:
    bench = bundling(inputs=1)
    bench.arrive(0, rows(1), rows(2), barrier(1), rows(4))
    bench.work()
    assert bench.trace() == "3 B1 4"
    assert len(bench.cuts) == 1


def test_a_source_cuts_after_the_rows_that_it_has_read() -> None:
    table = pa.table({"n": [1, 2, 4, 8]})
    bench = bundling(tables=[table], batch_rows=1)
    bench.task.work()
    bench.task.work()
    bench.task.trigger(barrier(1))
    bench.work()
    assert bench.trace() == "3 B1 12 wEND END"


def test_an_unaligned_cut_captures_them_with_the_queue_that_they_wait_in() -> None:
    bench = bundling(inputs=1)
    bench.output.credits = 0
    bench.arrive(0, rows(1), rows(2))
    bench.task.work()
    bench.task.work()
    bench.arrive(0, unaligned(1))
    assert bench.inflight() == {"output 0": "3 !", "input 0": "!"}
    bench.work()
    assert bench.trace() == "U1 3"


def test_a_source_that_is_silent_or_paused_keeps_none() -> None:
    table = pa.table({"n": [1, 2, 4]})
    bench = bundling(tables=[table], batch_rows=2, gap_every=1, gap_polls=3, idle_ms=0)
    for _ in range(3):
        bench.clock.wait_ms(20)
        bench.task.work()
        bench.flush()
    assert bench.trace() == "3 idle", "after the idleness they would be late"
    paused = bundling(tables=[table], batch_rows=2)
    paused.task.work()
    paused.task.hold(held=True)
    paused.work()
    assert paused.trace() == "3"


def test_channels_that_a_barrier_holds_are_no_more_rows() -> None:
    bench = bundling(inputs=2)
    bench.arrive(0, rows(1), barrier(1), rows(8))
    bench.arrive(1, rows(2))
    bench.work()
    assert bench.trace() == "3"


def test_event_time_and_the_end_complete_it() -> None:
    bench = bundling(inputs=1)
    bench.arrive(0, rows(1), Watermark(5), rows(2), EndOfInput())
    bench.work()
    assert bench.trace() == "1 w5 2 wEND END"


def test_a_loop_counts_no_rows_that_wait() -> None:
    bench = bundling(
        inputs=1, parts={"loop": "v", "feedback": frozenset(), "inside": frozenset({ChannelId(0)})}
    )
    bench.arrive(0, rows(1), rows(2))
    bench.work()
    assert bench.trace() == "1 2"
