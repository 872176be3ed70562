"""An element that completes much: in pieces, whole before a cut, nothing in between."""

from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa

from laminar_core.protocol.types import WATERMARK_END_US, EndOfInput, Watermark
from laminar_core.worker.channels import OUTPUT_QUEUE_BATCHES
from laminar_core.worker.inflight import SnapshotLimits
from laminar_core.worker.operator_chain import RESULTS_AT_ONCE
from tests.worker.task_bench import Bench, Sum, barrier, batch, rows, unaligned

PIECES = 3 * OUTPUT_QUEUE_BATCHES


class Window(Sum):
    """A watermark completes many batches; making one takes ``piece_ms``."""

    def __init__(self, bench: Bench, piece_ms: float = 0) -> None:
        super().__init__()
        self.bench = bench
        self.piece_ms = piece_ms
        self.made = 0

    def on_watermark(self, watermark_us: int) -> Iterable[pa.RecordBatch]:
        self.watermarks.append(watermark_us)
        count = PIECES if watermark_us != WATERMARK_END_US else 1
        return (self._piece() for _ in range(count))

    def _piece(self) -> pa.RecordBatch:
        self.made += 1
        self.bench.clock.wait_ms(self.piece_ms)
        return batch(1)


class Firing(Bench):
    """One input, and an operator whose window is large."""

    def __init__(self, piece_ms: float = 0) -> None:
        self.window = Window(self, piece_ms)
        super().__init__(inputs=1, parts={"operators": [("sum", self.window)]})


def test_it_stops_where_the_output_is_full_and_goes_on_when_there_is_room() -> None:
    bench = Firing()
    bench.arrive(0, Watermark(5), rows(7))
    bench.output.credits = 0
    while bench.task.work():
        pass
    assert bench.window.made == OUTPUT_QUEUE_BATCHES, "no more than there is room for"
    assert len(bench.channels[0]) == 1, "nothing else is taken meanwhile"
    bench.work()
    assert bench.trace() == " ".join(["1"] * PIECES) + " w5 7"


def test_a_unit_of_it_is_short_so_that_the_worker_can_look_after_its_queues() -> None:
    bench = Firing(piece_ms=25)
    bench.arrive(0, Watermark(5))
    bench.flush()
    assert bench.task.work()
    assert bench.window.made == 1, "until 20 ms are over"
    bench.work()
    assert bench.trace().endswith("1 w5")
    assert bench.window.made == PIECES


def test_an_aligned_cut_waits_for_it_like_for_any_element() -> None:
    bench = Firing(piece_ms=9)
    bench.arrive(0, Watermark(5), barrier(1))
    bench.work()
    assert bench.trace() == " ".join(["1"] * PIECES) + " w5 B1"


def test_what_is_left_at_an_overtaking_cut_is_before_it() -> None:
    """Its rows have left the state, so they have to be in the output, or be captured there."""
    bench = Firing(piece_ms=9)
    bench.arrive(0, Watermark(5))
    bench.output.credits = 0
    assert bench.task.work()
    assert bench.window.made < PIECES
    bench.arrive(0, unaligned(1))
    assert bench.window.made == PIECES
    bench.work()
    assert bench.trace() == "U1 " + " ".join(["1"] * PIECES) + " w5"
    assert bench.inflight()["output 0"].split() == ["1"] * PIECES + ["w5", "!"]


def test_the_end_waits_until_it_is_over() -> None:
    bench = Firing(piece_ms=9)
    bench.arrive(0, Watermark(5), EndOfInput())
    bench.output.credits = 0
    while bench.task.work():
        pass
    assert not bench.task.finished
    bench.work()
    assert bench.task.finished
    assert bench.trace().endswith("1 w5 1 wEND END")


def test_what_ends_at_an_overtaking_cut_takes_it_and_had_not_finished_before() -> None:
    bench = Firing(piece_ms=9)
    bench.arrive(0, *[rows(2)] * (OUTPUT_QUEUE_BATCHES - 1), EndOfInput())
    bench.output.credits = 0
    while bench.task.work():
        pass
    assert not bench.task.finished, "no room for what the end completes"
    bench.task.trigger(unaligned(1))
    assert bench.task.finished
    bench.work()
    ((_, alignment),) = bench.completed
    assert (alignment.finished, alignment.mode) == (False, "unaligned")
    assert bench.trace() == " ".join(["U1", *["2"] * (OUTPUT_QUEUE_BATCHES - 1), "1 wEND END"])


class Many(Sum):
    """A batch of one number becomes so many batches; making one takes ``piece_ms``."""

    def __init__(self, bench: Bench, piece_ms: float) -> None:
        super().__init__()
        self.bench = bench
        self.piece_ms = piece_ms

    def process(self, rows: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        for _ in range(rows.column("n")[0].as_py()):
            self.bench.clock.wait_ms(self.piece_ms)
            yield batch(1)


class ManyResults(Bench):
    """One input, and an operator that makes many batches of one."""

    def __init__(self, piece_ms: float = 0) -> None:
        super().__init__(inputs=1, parts={"operators": [("sum", Many(self, piece_ms))]})


def test_a_batch_with_few_results_is_done_in_one_step_whether_there_is_room_or_not() -> None:
    bench = ManyResults(piece_ms=50)
    bench.arrive(0, rows(RESULTS_AT_ONCE - 1), rows(1))
    bench.output.credits = 0
    assert bench.task.work()
    assert not bench.task.midway
    assert not bench.task.work(), "the next one waits for room"


def test_many_results_of_a_batch_wait_for_room_and_the_wait_is_not_its_work() -> None:
    bench = ManyResults(piece_ms=10)
    bench.arrive(0, rows(9, 0))
    bench.output.credits = 0
    assert bench.task.work()
    assert bench.task.midway
    assert not bench.task.work()
    bench.clock.wait_ms(60_000)
    bench.flush()
    units = 0
    while bench.task.work():
        units += 1
        bench.flush()
    assert units == 3, "two pieces of 10 ms in each"
    assert bench.trace() == " ".join("1" * 9)
    bench.arrive(0, rows(9, 0))
    bench.work()
    bench.arrive(0, rows(1, 1))
    assert bench.task.work()
    assert len(bench.channels[0]) == 1, "45 ms a row: only a part is taken at once"


def test_the_pause_at_a_cut_includes_it() -> None:
    bench = Firing(piece_ms=900)
    bench.task.parts = replace(bench.task.parts, limits=SnapshotLimits(sync_timeout_ms=1_000))
    bench.arrive(0, Watermark(5))
    bench.output.credits = 0
    assert bench.task.work()
    bench.arrive(0, unaligned(1))
    assert "the synchronous phase took" in bench.declined[0][2]
