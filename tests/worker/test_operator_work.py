"""The work of each operator is measured where it is done."""

from laminar_core.protocol.types import Watermark
from laminar_core.worker.operator_work import work_of
from tests.worker.task_bench import Bench, rows

BUSY_MS = {"sum": 70.0, "in": 5.0}


def work(bench: Bench):
    return work_of([bench.task], lambda name: BUSY_MS.get(name, 0.0))


def test_an_operator_counts_the_rows_it_takes_and_passes_on() -> None:
    bench = Bench(inputs=1)
    bench.arrive(0, rows(1, 2, 3), rows(4))
    bench.work()
    assert (work(bench)["sum"].rows_in, work(bench)["sum"].rows_out) == (4, 4)
    assert work(bench)["sum"].busy_ms == 70


def test_an_operator_counts_what_expired_in_its_state() -> None:
    bench = Bench(inputs=1)
    assert work(bench)["sum"].rows_expired == 0
    [(_, operator)] = bench.task.parts.operators
    vars(operator)["expired_row_count"] = 7
    assert work(bench)["sum"].rows_expired == 7


def test_batches_wait_at_the_first_operator_of_a_vertex() -> None:
    bench = Bench(inputs=2)
    bench.arrive(0, rows(1), Watermark(5), rows(2))
    bench.arrive(1, rows(3))
    assert work(bench)["sum"].queued_batches == 3
    bench.work()
    assert work(bench)["sum"].queued_batches == 0


def test_a_source_passes_rows_on_and_has_no_queue() -> None:
    bench = Bench(tables=[rows(1, 2).data.schema.empty_table()])
    found = work(bench)
    assert list(found) == ["in", "sum"]
    assert (found["in"].rows_in, found["in"].rows_out, found["in"].busy_ms) == (0, 0, 5)
    assert (found["in"].queued_batches, found["sum"].queued_batches) == (None, None)


def test_full_outputs_stop_all_operators_of_a_vertex() -> None:
    bench = Bench(inputs=1)
    bench.output.credits = 0
    bench.arrive(0, *(rows(n) for n in range(6)))
    while bench.task.work():
        bench.task.flush()
    bench.clock.wait_ms(250)
    found = work(bench)["sum"]
    assert (found.backpressured_ms, found.queued_batches) == (250, 4)
