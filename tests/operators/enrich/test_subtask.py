"""An enrichment call by call: order, limits, event time, failures, snapshots and restores."""

import asyncio
from collections.abc import Sequence
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from laminar_core.errors import ConfigurationError, JobFailedError
from laminar_core.operators.base import Snapshot, StateTable
from laminar_core.protocol.types import WATERMARK_END_US, CheckpointId
from tests.operators.enrich.enriched import ADDED, Bench


def cut(bench: Bench) -> Snapshot:
    return bench.subtask.snapshot(CheckpointId(1))()


def held(snapshot: Snapshot) -> list[int]:
    return [n for table in snapshot.tables for n in table.rows.column("n").to_pylist()]


def test_rows_keep_their_order_whichever_answer_comes_first() -> None:
    bench = Bench()
    assert bench.take(1, 2, 3) == []
    bench.service.answer(3, 2)
    assert bench.work() == []
    bench.service.answer(1)
    assert bench.work() == [(1, 2), (2, 4), (3, 6)]
    assert bench.subtask.next_due_ms() is None


def test_no_more_calls_run_at_once_than_allowed_and_a_free_place_is_taken() -> None:
    bench = Bench()
    bench.take(1, 2, 3, 4, 5)
    assert list(bench.service.open) == [1, 2, 3]
    bench.service.answer(2)
    bench.work()
    assert list(bench.service.open) == [1, 3, 4], "the first one still waits"
    assert bench.calls.running_count == 3


def test_a_call_gets_several_rows_but_not_too_many() -> None:
    bench = Bench(rows_per_call=2)
    bench.take(1, 2, 3)
    assert bench.service.calls == [[1, 2], [3]]
    bench.service.answer(1, 3)
    assert bench.work() == [(1, 2), (2, 4), (3, 6)]


def test_it_is_full_when_so_many_rows_wait() -> None:
    bench = Bench(pending_rows_max=4)
    bench.take(1, 2, 3)
    assert not bench.subtask.is_full
    bench.take(4)
    assert bench.subtask.is_full
    bench.service.answer(1)
    bench.work()
    assert not bench.subtask.is_full


def test_rows_held_never_exceed_the_bound_though_many_pass() -> None:
    bench = Bench(pending_rows_max=10)
    most, found = 0, []
    for n in range(1_000):
        found += bench.take(n)
        most = max(most, bench.subtask.pending_row_count)
        while bench.subtask.is_full:
            bench.service.answer(*list(bench.service.open)[:1])
            found += bench.work()
    assert most <= 10
    assert [n for n, _ in found] == list(range(len(found)))


def test_event_time_waits_behind_rows_and_overtakes_none() -> None:
    bench = Bench()
    subtask = bench.subtask
    assert list(subtask.on_watermark(5)) == []
    assert subtask.output_watermark(5) == 5
    bench.take(1)
    list(subtask.on_watermark(6))
    assert subtask.output_watermark(6) == 5
    list(subtask.on_watermark(7))
    bench.take(2)
    list(subtask.on_watermark(8))
    bench.service.answer(1, 2)
    assert bench.work() == [(1, 2), "w7", (2, 4), "w8"]
    assert subtask.output_watermark(9) == 9
    assert not subtask.has_pending


def test_the_end_of_the_input_waits_for_rows() -> None:
    bench = Bench()
    bench.take(1)
    assert bench.subtask.has_pending
    bench.service.answer(1)
    bench.work()
    assert not bench.subtask.has_pending
    assert list(bench.subtask.on_watermark(WATERMARK_END_US)) == []


@pytest.mark.parametrize(
    ("on_error", "expected"),
    [
        ("null", [(1, None), (2, 4)]),
        ("side", [("failed", 1, "ConnectionError: no such host"), (2, 4)]),
    ],
)
def test_rows_of_failed_calls_get_nulls_or_go_aside(on_error: str, expected: list) -> None:
    bench = Bench(on_error=on_error)
    bench.take(1, 2)
    bench.service.answer(2)
    bench.service.fail(1, ConnectionError("no such host\nand more"))
    assert bench.work() == expected
    assert bench.subtask.failed_row_count == 1


def test_a_failed_call_ends_the_worker_with_one_line_and_a_restart_may_help() -> None:
    bench = Bench()
    bench.take(1)
    bench.service.fail(1, ConnectionError("no such host"))
    with pytest.raises(JobFailedError, match="enrich 'mine' failed at attempt 1 of 1: Connection"):
        bench.work()


def test_a_call_that_fails_is_tried_again_after_a_while() -> None:
    bench = Bench(attempts=3)
    bench.take(1)
    for _ in range(2):
        bench.service.fail(1, ConnectionError("not now"))
        assert bench.work() == []
        assert bench.service.open == {}
        bench.wait()
    bench.service.answer(1)
    assert bench.work() == [(1, 2)]
    assert bench.service.calls == [[1]] * 3


def test_a_call_that_is_not_answered_in_time_has_failed() -> None:
    bench = Bench(on_error="side")
    bench.take(1)
    due_ms = bench.subtask.next_due_ms()
    assert due_ms == bench.clock.now_ms() + 1_000
    assert bench.wait() == [("failed", 1, "no answer in 1000 ms")]
    assert bench.calls.running_count == 0


@pytest.mark.parametrize("error", [asyncio.CancelledError(), SystemExit(1), KeyboardInterrupt()])
def test_a_call_that_ends_in_any_way_without_an_answer_has_failed(error: BaseException) -> None:
    async def ends(batch: pa.RecordBatch) -> pa.RecordBatch:
        del batch
        raise error

    bench = Bench(ends, on_error="side", attempts=2)
    bench.take(1)
    [(side, row, reason)] = bench.wait()
    assert (side, row, reason.partition(":")[0]) == ("failed", 1, type(error).__name__)


def test_a_call_that_cancels_itself_and_fails_is_made_again() -> None:
    """As some libraries do that keep time."""
    made = 0

    async def too_slow(batch: pa.RecordBatch) -> pa.RecordBatch:
        nonlocal made
        made += 1
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            raise TimeoutError("slow server") from None
        return batch

    bench = Bench(too_slow, on_error="side", attempts=3)
    bench.take(1)
    assert [*bench.wait(), *bench.wait()] == [("failed", 1, "TimeoutError: slow server")]
    assert made == 3


def test_a_call_that_is_cancelled_at_the_end_is_not_made_again() -> None:
    bench = Bench(on_error="null", attempts=2)
    bench.take(1)
    bench.calls.close()
    assert bench.calls.running_count == 0
    assert bench.service.calls == [[1]]


async def nobody(batch: pa.RecordBatch) -> Any:
    del batch


async def too_many(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch([pa.array([1] * (batch.num_rows + 1))], schema=ADDED)


async def others(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (nobody, "was answered NoneType instead of"),
        (too_many, "was answered 2 rows for 1: answer one"),
        (others, r"was answered \(n int64\) instead of \(double int64\)"),
    ],
)
def test_an_answer_that_does_not_fit_stops_the_job(function: Any, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=f"enrich 'mine' {problem}"):
        Bench(function, "null").take(1)


def test_rows_that_wait_are_the_state_and_are_called_again() -> None:
    bench = Bench()
    list(bench.subtask.on_watermark(4))
    bench.subtask.output_watermark(4)
    bench.take(1, 2, 3, 4, 5)
    list(bench.subtask.on_watermark(6))
    bench.service.answer(1, 3)
    assert bench.work() == [(1, 2)]
    snapshot = cut(bench)
    assert held(snapshot) == [2, 3, 4, 5]
    again = Bench()
    again.subtask.restore([snapshot])
    assert again.subtask.output_watermark(6) == 4
    assert again.work() == []
    assert again.service.calls == [[2], [3], [4]]
    again.service.answer(2, 3, 4)
    again.work()
    again.service.answer(5)
    assert again.work() == [(5, 10), "w6"]


def test_a_cut_without_rows_has_no_table() -> None:
    snapshot = cut(Bench())
    assert snapshot.tables == ()


def test_dictionaries_are_written_as_plain_values() -> None:
    schema = pa.schema([("n", pa.dictionary(pa.int32(), pa.string()))])
    spec_bench = Bench()
    subtask = spec_bench.subtask
    subtask._input_schema = schema
    batch = pa.record_batch([pa.array(["a", "b"]).dictionary_encode()], schema=schema)
    list(subtask.process(batch.slice(0, 0)))
    subtask._enqueue(batch)
    (table,) = cut(spec_bench).tables
    assert table.rows.schema == pa.schema([("n", pa.string())])
    subtask.restore([Snapshot((table,), cut(spec_bench).properties)])
    assert subtask._queue[-1].rows.schema == schema


@pytest.mark.parametrize(
    "values",
    [
        pa.array(["a", None, "b"]),
        pa.array([1, None], pa.int16()),
        pa.array([1, 2], pa.int32()).cast(pa.date32()),
        pa.array([Decimal("1.5"), None], pa.decimal32(3, 1)),
        pa.array([str(n) for n in range(200)]),
    ],
)
def test_waiting_rows_of_any_dictionary_are_restored(values: pa.Array) -> None:
    """Goal: also those of several batches, which have more values together than an index holds."""
    schema = pa.schema([("n", pa.dictionary(pa.int8(), values.type, ordered=True))])
    bench = Bench(rows_per_call=500)
    subtask = bench.subtask
    subtask._input_schema = schema
    subtask.restore([Snapshot((StateTable("", pa.table({"n": values})),), cut(bench).properties)])
    waiting = [one.rows for one in subtask._queue]
    assert all(rows.schema == schema for rows in waiting)
    for rows in waiting:
        values_once = rows.column("n").dictionary
        assert not values_once.null_count
        assert len(set(values_once.to_pylist())) == len(values_once)
    assert [n for rows in waiting for n in rows.column("n").to_pylist()] == values.to_pylist()
    (table,) = cut(bench).tables
    assert table.rows.column("n").combine_chunks().equals(values)


@pytest.mark.parametrize("values", [[{"a": 1}, None, {"a": 1}], [[1], [], None]])
def test_waiting_rows_with_dictionaries_of_nested_values_are_restored(values: list) -> None:
    encoded = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2], pa.int8()), pa.array(values))
    rows = pa.record_batch({"n": encoded})
    bench = Bench()
    subtask = bench.subtask
    subtask._input_schema = rows.schema
    subtask._enqueue(rows)
    snapshot = cut(bench)
    subtask._queue.clear()
    subtask.restore([snapshot])
    waiting = [one.rows for one in subtask._queue]
    assert all(some.schema == rows.schema for some in waiting)
    assert [n for some in waiting for n in some.column("n").to_pylist()] == values


class Dozing:
    """Answers after a drawn time."""

    def __init__(self, random: Random) -> None:
        self._random = random

    async def double(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        await asyncio.sleep(self._random.random() / 2)
        doubled = [2 * n for n in batch.column("n").to_pylist()]
        return pa.record_batch([pa.array(doubled, pa.int64())], schema=ADDED)


def dozing(random: Random, count: int) -> list[Bench]:
    limits = {"rows_per_call": random.randrange(1, 4), "concurrency": random.randrange(1, 5)}
    return [
        Bench(Dozing(random).double, subtask=n, parallelism=count, **limits) for n in range(count)
    ]


class History:
    """Rows that are their own time, and the workers that they pass."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.workers = dozing(self.random, 1)
        self.sent, self.found, self.passed_us = [-1], list[int](), [-1]

    def see(self, number: int, results: Sequence[Any]) -> None:
        for result in results:
            if isinstance(result, str):
                self.passed_us[number] = max(self.passed_us[number], int(result[1:]))
            else:
                assert result[0] >= min(self.passed_us), "event time has overtaken it"
                self.found.append(result[0])

    def send(self, step: int) -> None:
        numbers = list(range(3 * step, 3 * step + self.random.randrange(1, 4)))
        self.sent += numbers
        at = self.random.randrange(len(self.workers))
        self.see(at, self.workers[at].take(*numbers))

    def advance(self) -> None:
        for at, worker in enumerate(self.workers):
            list(worker.subtask.on_watermark(self.sent[-1]))
            left_us = worker.subtask.output_watermark(self.sent[-1])
            self.see(at, [] if left_us is None else [f"w{left_us}"])

    def wait(self) -> None:
        for at, worker in enumerate(self.workers):
            worker.clock.wait_ms(self.random.randrange(120))
            self.see(at, worker.work())

    def restore(self) -> None:
        snapshots = [cut(worker) for worker in self.workers]
        count = self.random.choice([len(snapshots), 1, 2, 3, 4])
        self.workers = dozing(self.random, count)
        self.passed_us = [min(self.passed_us)] * count
        for at, worker in enumerate(self.workers):
            worker.subtask.restore([snapshots[at]] if len(snapshots) == count else snapshots)

    def finish(self) -> None:
        for at, worker in enumerate(self.workers):
            while worker.subtask.has_pending:
                self.see(at, worker.wait())


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.sampled(3)
def test_cuts_and_other_numbers_of_workers_lose_and_repeat_nothing(seed: int) -> None:
    history = History(seed)
    for step in range(60):
        kind = history.random.random()
        if kind < 0.5:
            history.send(step)
        elif kind < 0.6:
            history.advance()
        elif kind < 0.9:
            history.wait()
        else:
            history.restore()
    history.finish()
    assert sorted(history.found) == history.sent[1:]
    assert len(history.found) > 20


def test_all_rows_of_a_drawn_history_come_out_in_the_order_of_one_worker() -> None:
    random = Random(5)
    (worker,) = dozing(random, 1)
    found = [row for n in range(40) for row in worker.take(n)]
    while worker.subtask.has_pending:
        found += worker.wait()
    assert found == [(n, 2 * n) for n in range(40)]
