"""Operators that act by the clock: between units of work, never inside a cut, and not too early."""

from collections.abc import Iterable

import pyarrow as pa

from laminar_core.protocol.types import WATERMARK_END_US, ChannelId, EndOfInput, Watermark
from tests.worker.task_bench import Bench, Sum, barrier, batch, rows, unaligned


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


class Later(Sum):
    """Passes rows on only when it is told to; it takes no more than two."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[pa.RecordBatch] = []
        self.let_go = False

    @property
    def has_pending(self) -> bool:
        return bool(self.waiting)

    @property
    def is_full(self) -> bool:
        return len(self.waiting) >= 2

    def process(self, rows: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        self.waiting.append(rows)
        self.total += rows.num_rows
        return ()

    def next_due_ms(self) -> float | None:
        return 0.0 if self.let_go and self.waiting else None

    def on_time(self, now_ms: float) -> Iterable[pa.RecordBatch]:
        del now_ms
        waiting, self.waiting = self.waiting, []
        return waiting


def later(inputs: int = 1, ahead: Sum | None = None) -> tuple[Bench, Later]:
    operator = Later()
    operators = [("ahead", ahead)] if ahead else []
    return Bench(inputs=inputs, parts={"operators": [*operators, ("sum", operator)]}), operator


def test_no_input_is_taken_while_an_operator_is_full_of_rows_that_wait() -> None:
    made, operator = later()
    made.arrive(0, rows(1), rows(2), rows(3))
    made.work()
    assert len(operator.waiting) == 2
    assert len(made.channels[0]) == 1
    operator.let_go = True
    made.work()
    assert made.trace() == "1 2 3"


def test_the_end_waits_for_rows_and_a_cut_meanwhile_does_not() -> None:
    made, operator = later()
    made.arrive(0, rows(1), EndOfInput())
    made.work()
    assert made.trace() == ""
    assert not made.task.finished
    made.task.trigger(unaligned(1))
    assert made.trace() == ""
    assert made.totals() == [(1, 1)]
    assert not made.task.finished, "the cut has the row that waits"
    operator.let_go = True
    made.work()
    assert made.trace() == "U1 1 1 wEND END"
    assert made.task.finished


def test_what_the_end_completes_ahead_of_rows_that_wait_waits_behind_them() -> None:
    made, operator = later(ahead=Sum())
    made.arrive(0, rows(7), EndOfInput())
    made.work()
    assert [batch.column("n").to_pylist() for batch in operator.waiting] == [[7], [7]]
    operator.let_go = True
    made.work()
    assert made.trace() == "7 7 2 wEND END"


def test_after_a_restore_an_end_that_had_come_before_the_cut_comes_again() -> None:
    """The gate had reached the end of time; the operator's rows have to be let go all the same."""
    made, operator = later()
    made.task.parts.gate.restore([(ChannelId(0), WATERMARK_END_US, False)], WATERMARK_END_US)
    operator.waiting.append(batch(5))
    made.arrive(0, EndOfInput())
    made.work()
    assert not made.task.finished
    operator.let_go = True
    made.work()
    assert made.trace() == "5 0 wEND END"


def test_an_advance_that_is_held_up_by_a_full_operator_goes_on_when_rows_leave_it() -> None:
    class Much(Sum):
        def on_watermark(self, watermark_us: int) -> Iterable[pa.RecordBatch]:
            del watermark_us
            return (batch(n) for n in range(5))

    made, operator = later(ahead=Much())
    made.arrive(0, Watermark(9))
    made.work()
    assert len(operator.waiting) == 2
    operator.let_go = True
    made.work()
    assert made.trace().split() == ["0", "1", "2", "3", "w9", "4"]


def test_a_silent_source_is_not_idle_while_rows_of_it_wait() -> None:
    """Otherwise event time behind it would go on without them."""
    operator = Later()
    made = Bench(
        tables=[pa.table({"n": [1, 2, 3, 4]})],
        batch_rows=2,
        gap_every=1,
        gap_polls=12,
        idle_ms=50,
        parts={"operators": [("sum", operator)]},
    )
    for _ in range(5):
        made.clock.wait_ms(20)
        made.task.work()
    made.flush()
    assert made.trace() == ""
    operator.let_go = True
    for _ in range(5):
        made.task.work()
    made.flush()
    assert made.trace() == "3 idle"
