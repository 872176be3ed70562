"""A join with a hot key: pairs in pieces, and barriers between parts of a batch."""

import pyarrow as pa
import pytest

from laminar_core.operators.joins.interval import IntervalJoin
from laminar_core.operators.joins.output import OUTPUT_ROWS_MAX
from laminar_core.operators.joins.side import JoinSide
from laminar_core.protocol.types import Batch, ChannelId
from laminar_core.worker.channels import CREDITS_PER_CHANNEL, OUTPUT_QUEUE_BATCHES
from laminar_core.worker.operator_chain import RESULTS_AT_ONCE
from tests.operators.joins.join_histories import context
from tests.worker.task_bench import Bench, barrier, unaligned

LEFT = pa.schema([("k", pa.string()), ("t", pa.timestamp("us")), ("n", pa.int64())])
RIGHT = pa.schema([("k", pa.string()), ("t", pa.timestamp("us")), ("m", pa.int64())])
SPEC = IntervalJoin("join", JoinSide("left", ("k",), "t"), JoinSide("right", ("k",), "t"), 0, 10)
HOT_ROWS = 1_000
PART_PAIRS = 500_000
"""The pairs of all hot rows are two parts."""


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laminar_core.state.arrangement.CANDIDATES_MAX", PART_PAIRS)


def hot(schema: pa.Schema, rows: int = HOT_ROWS) -> Batch:
    """Return rows of one key at one time, each with the value 1."""
    times = pa.array([5] * rows, pa.timestamp("us"))
    return Batch(pa.record_batch([["hot"] * rows, times, [1] * rows], schema=schema))


class HotJoin(Bench):
    """A join whose left side has the rows of a hot key, and whose right side is yet to come."""

    def __init__(self) -> None:
        self.join = SPEC.open(context(), LEFT, RIGHT)
        parts = {"operators": [("join", self.join)], "input_of": {ChannelId(1): 1}}
        super().__init__(inputs=2, parts=parts)
        self.arrive(0, hot(LEFT))
        self.work()
        self.output.credits = 0

    def drain(self) -> None:
        """Work and send until there is nothing left."""
        sends = True
        while self.task.work() or sends:
            self.output.credits = CREDITS_PER_CHANNEL
            sends = self.task.flush()

    @property
    def pairs_sent(self) -> list[int]:
        """The rows of each batch that was sent."""
        return [element.data.num_rows for element in self.sent if isinstance(element, Batch)]

    def right_rows(self) -> int:
        """The right rows that the join has taken."""
        return self.join.held_row_count - HOT_ROWS


def test_pairs_stop_where_the_output_is_full() -> None:
    """Goal: a hot key costs time, and not memory, and the worker serves its queues meanwhile."""
    bench = HotJoin()
    bench.arrive(1, hot(RIGHT))
    assert bench.task.work()
    assert bench.task.midway
    assert not bench.task.work(), "there is no room"
    bench.output.credits = 100
    bench.task.flush()
    assert bench.pairs_sent == [OUTPUT_ROWS_MAX] * RESULTS_AT_ONCE
    bench.drain()
    assert not bench.task.midway
    assert sum(bench.pairs_sent) == HOT_ROWS**2
    assert max(bench.pairs_sent) == OUTPUT_ROWS_MAX
    assert bench.right_rows() == HOT_ROWS


def test_an_overtaking_barrier_waits_for_a_part_of_the_batch_only() -> None:
    bench = HotJoin()
    bench.arrive(1, hot(RIGHT))
    assert bench.task.work()
    bench.arrive(0, unaligned(1))
    first = PART_PAIRS // HOT_ROWS
    assert bench.right_rows() == first < HOT_ROWS
    captured = {piece.queue.direction: piece for piece in bench.captured if piece.events}
    (rest,) = captured["input"].events
    assert rest.data.num_rows == HOT_ROWS - first, "the rest of the batch is in flight"
    assert sum(e.data.num_rows for e in captured["output"].events) == first * HOT_ROWS
    assert len(bench.cuts) == 1
    bench.arrive(1, unaligned(1))
    bench.drain()
    assert sum(bench.pairs_sent) == HOT_ROWS**2
    assert len(bench.completed) == 1


def test_a_barrier_of_the_other_input_is_looked_at_between_two_parts() -> None:
    """Goal: aligned barriers keep their place, and the cut is behind every pair before them."""
    bench = HotJoin()
    bench.arrive(1, hot(RIGHT), barrier(1))
    bench.arrive(0, barrier(1))
    bench.drain()
    assert bench.sent[-1] == barrier(1)
    assert sum(bench.pairs_sent) == HOT_ROWS**2
    assert bench.completed[0][1].mode == "aligned"


def test_what_is_cut_midway_and_restored_makes_every_pair_once() -> None:
    bench = HotJoin()
    bench.arrive(1, hot(RIGHT))
    assert bench.task.work()
    bench.arrive(0, unaligned(1))
    (part,) = bench.cuts[0].parts
    again = SPEC.open(context(), LEFT, RIGHT)
    again.restore([part.pending()])
    in_flight = [piece for piece in bench.captured if piece.events]
    pairs = sum(
        element.data.num_rows
        for piece in in_flight
        for element in piece.events
        if piece.queue.direction == "output"
    )
    for piece in in_flight:
        if piece.queue.direction == "input":
            for element in piece.events:
                pairs += sum(rows.num_rows for rows in again.process_input(1, element.data))
    assert pairs == HOT_ROWS**2


def test_room_for_few_results_is_not_asked_for() -> None:
    """Goal: a step of an ordinary operator is over when it returns, as its output may overshoot."""
    bench = HotJoin()
    rows = (RESULTS_AT_ONCE - 1) * OUTPUT_ROWS_MAX // HOT_ROWS
    bench.arrive(1, hot(RIGHT, rows))
    assert bench.task.work()
    assert not bench.task.midway
    assert RESULTS_AT_ONCE > OUTPUT_QUEUE_BATCHES
