"""The head of a loop and the way back, element by element. Channel 1 comes back to the head."""

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from laminar_core.errors import ConfigurationError
from laminar_core.link.wire import ArrowElement
from laminar_core.protocol.termination import LoopCounts
from laminar_core.protocol.types import (
    Batch,
    CancelMarker,
    ChannelId,
    CheckpointId,
    EndOfInput,
    Idle,
    Watermark,
)
from laminar_core.protocol.watermarks import WatermarkGate
from laminar_core.worker.channels import CREDITS_PER_CHANNEL, OutputChannel
from laminar_core.worker.loops import FeedbackChannel, HeadTask, loop_counts
from laminar_core.worker.outputs import EdgeOutput
from laminar_core.worker.spill import SpillQueue
from tests.worker.task_bench import Bench, barrier, rows, unaligned, word

OUTSIDE, BACK = ChannelId(0), ChannelId(1)


class Head(Bench):
    """A head whose body is empty: what it sends is what enters the loop."""

    def __init__(self) -> None:
        super().__init__(inputs=2)
        feedback = frozenset({BACK})
        self.body = OutputChannel(self.sent.append)
        inside = EdgeOutput(
            lambda batch: ((0, batch),), {0: self.body}, may_overtake=False, in_loop=True
        )
        parts = replace(
            self.task.parts,
            gate=WatermarkGate([OUTSIDE]),
            feedback=feedback,
            inside=feedback,
            loop="v",
            outputs=[inside],
        )
        self.output = self.body
        self.task = self.head = HeadTask(parts, self, self.clock)


def test_what_comes_back_goes_first() -> None:
    head = Head()
    head.arrive(OUTSIDE, rows(1), rows(2))
    head.arrive(BACK, rows(10), rows(20))
    head.work()
    assert head.trace() == "10 20 1 2"


def test_while_a_checkpoint_waits_for_its_barrier_the_inputs_take_turns() -> None:
    head = Head()
    head.task.trigger(barrier(1))
    head.arrive(OUTSIDE, rows(1), barrier(1))
    head.arrive(BACK, *(rows(10 * n) for n in range(1, 6)))
    head.work()
    assert head.trace() == "1 10 B1 20 30 40 50"


def test_the_restored_log_goes_before_everything_else() -> None:
    head = Head()
    head.channels[BACK].restore([rows(10), rows(20)])
    head.task.trigger(barrier(1))
    head.arrive(OUTSIDE, rows(1), barrier(1))
    head.arrive(BACK, rows(30))
    head.work()
    assert head.trace() == "10 20 1 30 B1"


def test_what_is_on_its_way_back_is_logged_and_forwarded_until_the_barrier_is_back() -> None:
    head = Head()
    head.arrive(OUTSIDE, rows(1), barrier(1))
    head.work()
    head.arrive(BACK, rows(10), rows(20))
    head.work()
    assert head.trace() == "1 B1 10 20"
    assert head.totals() == [(1, 1)]
    assert head.completed == []
    head.arrive(BACK, barrier(1), rows(30))
    assert head.inflight() == {"input 1": "10 20 !"}
    assert [checkpoint_id for checkpoint_id, _ in head.completed] == [1]
    head.work()
    assert head.trace() == "1 B1 10 20 30"


def test_what_has_been_replayed_only_in_part_is_logged_again() -> None:
    head = Head()
    head.channels[BACK].restore([rows(10), rows(20)])
    head.head.work()
    head.arrive(OUTSIDE, unaligned(1))
    head.arrive(BACK, barrier(1))
    assert head.totals() == [(1, 10)]
    assert head.inflight()["input 1"] == "20 !"


def test_an_abort_drops_the_log_and_rows_go_on() -> None:
    head = Head()
    head.arrive(OUTSIDE, barrier(1))
    head.work()
    head.arrive(BACK, rows(10))
    head.task.abort(CheckpointId(1))
    head.arrive(BACK, rows(20), barrier(1), rows(30))
    head.work()
    assert (head.discarded, head.completed) == ([1], [])
    assert head.trace() == "B1 X1 10 20 30"


def test_event_time_stays_outside() -> None:
    head = Head()
    head.arrive(OUTSIDE, Watermark(5), rows(1), Watermark(9), EndOfInput())
    head.work()
    assert head.trace() == "1"
    assert not head.task.finished


def test_it_ends_when_it_is_told_to_and_drains_what_is_left() -> None:
    head = Head()
    head.arrive(OUTSIDE, EndOfInput())
    head.work()
    head.head.end_loop()
    head.head.end_loop()
    head.work()
    assert head.trace() == "0 wEND END"
    assert head.task.open_inputs == {BACK}
    head.arrive(BACK, EndOfInput())
    head.work()
    assert head.task.open_inputs == frozenset()
    assert head.trace() == "0 wEND END"


def test_rows_after_the_end_are_refused() -> None:
    head = Head()
    head.arrive(OUTSIDE, EndOfInput())
    head.work()
    head.head.end_loop()
    head.arrive(BACK, rows(1))
    with pytest.raises(ConfigurationError, match="came back to loop v after its end"):
        head.task.work()


def test_a_finished_head_still_takes_part_in_checkpoints() -> None:
    head = Head()
    head.arrive(OUTSIDE, EndOfInput())
    head.work()
    head.head.end_loop()
    head.task.trigger(barrier(1))
    assert head.completed == []
    head.arrive(BACK, EndOfInput())
    ((checkpoint_id, alignment),) = head.completed
    assert (checkpoint_id, alignment.finished) == (1, True)


def test_counts_are_those_of_the_loop() -> None:
    head = Head()
    head.channels[BACK].restore([rows(10)])
    assert loop_counts([head.task]) == {"v": LoopCounts(False, 1, 0)}  # noqa: FBT003
    head.arrive(OUTSIDE, rows(1), EndOfInput())
    head.work()
    assert loop_counts([head.task]) == {"v": LoopCounts(True, 3, 1)}  # noqa: FBT003
    assert loop_counts([Bench(inputs=1).task]) == {}


# --- the way back ---------------------------------------------------------------------------------


@pytest.fixture
def way() -> Iterator[tuple[FeedbackChannel, list[ArrowElement]]]:
    sent: list[ArrowElement] = []
    schema = pa.schema([("n", pa.int64())])
    channel = FeedbackChannel(sent.append, SpillQueue(schema, memory_bytes=30, run_bytes=20))
    yield channel, sent
    channel.close()


def trace(sent: list[ArrowElement]) -> str:
    return " ".join(map(word, sent))


def test_it_always_has_room_and_needs_credit_only_for_rows(way) -> None:
    channel, sent = way
    for n in range(40):
        channel.put(rows(n))
    channel.put(CancelMarker(CheckpointId(1)))
    assert channel.has_room
    assert not channel.empty
    assert channel.flush()
    assert trace(sent) == "0 1 2 3"
    assert not channel.flush()
    for _ in range(9):
        channel.give(CREDITS_PER_CHANNEL)
        channel.flush()
    assert trace(sent) == " ".join(map(str, range(40))) + " X1"
    assert channel.empty


def test_event_time_does_not_travel_back(way) -> None:
    channel, sent = way
    for element in (Watermark(5), Idle(), rows(1), Watermark(6)):
        channel.put(element)
    channel.flush()
    assert [type(element) for element in sent] == [Batch]


def test_a_barrier_stays_in_its_place_and_overtakes_nothing(way) -> None:
    channel, sent = way
    channel.put(rows(1))
    assert channel.put_barrier(unaligned(1), overtake=False) == []
    assert not channel.waits(CheckpointId(1))
    assert channel.time_out(CheckpointId(1)) == []
    channel.flush()
    assert trace(sent) == "1 U1"


def test_the_end_stands_for_every_later_barrier(way) -> None:
    channel, sent = way
    channel.put(EndOfInput())
    channel.put_barrier(barrier(1), overtake=False)
    channel.flush()
    assert trace(sent) == "END"
