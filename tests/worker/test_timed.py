"""Operators that act by the clock: between units of work, never inside a cut, and not too early."""

from collections.abc import Iterable

import pyarrow as pa

from laminar_core.protocol.types import EndOfInput
from tests.worker.task_bench import Bench, Sum, barrier, batch, rows


class Alarm(Sum):
    """Emits a number at a time of the clock, and says so in its state."""

    def __init__(self, due_ms: float | None) -> None:
        super().__init__()
        self.due_ms = due_ms

    def next_due_ms(self) -> float | None:
        return self.due_ms

    def on_time(self, now_ms: float) -> Iterable[pa.RecordBatch]:
        assert self.due_ms is not None
        assert now_ms >= self.due_ms
        self.due_ms = None
        self.total += 1_000
        yield batch(1_000)


def bench(after_ms: float | None, inputs: int = 1) -> tuple[Bench, Alarm]:
    alarm = Alarm(None)
    made = Bench(inputs=inputs, parts={"operators": [("sum", alarm)]})
    alarm.due_ms = None if after_ms is None else made.clock.now_ms() + after_ms
    return made, alarm


def test_an_operator_acts_when_the_clock_has_come_so_far() -> None:
    made, _ = bench(50)
    made.arrive(0, rows(1))
    made.work()
    assert made.task.timed.wait_ms() == 50
    assert made.trace() == "1"
    made.clock.wait_ms(60)
    assert made.task.timed.wait_ms() == 0
    made.arrive(0, rows(2))
    made.work()
    assert made.trace() == "1 1000 2"
    assert made.task.timed.wait_ms() is None


def test_what_it_emits_is_on_the_side_of_the_barrier_that_its_state_is_on() -> None:
    made, alarm = bench(None, inputs=2)
    made.arrive(0, rows(1), barrier(1))
    made.work()
    alarm.due_ms = 0
    made.work()  # The barrier of the other channel is still to come.
    made.arrive(1, barrier(1))
    alarm.due_ms = None
    made.work()
    alarm.due_ms = 0
    made.work()
    assert made.trace() == "1 1000 B1 1000"
    assert made.totals() == [(1, 1_001)]


def test_it_waits_while_the_output_has_no_room_and_does_nothing_after_the_end(
    monkeypatch,
) -> None:
    made, alarm = bench(0)
    monkeypatch.setattr(made.task.room, "is_there", lambda: False)
    assert not made.task.work()
    monkeypatch.undo()
    made.arrive(0, EndOfInput())
    made.work()
    alarm.due_ms = 0
    made.work()
    assert made.trace() == "1000 wEND END" or made.trace().startswith("1000 ")
    assert alarm.due_ms == 0
