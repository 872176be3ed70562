"""Rates and shares are those between two reports of a worker, by the worker's own clock."""

from laminar_core.driver.operator_watch import OperatorWatch
from laminar_core.driver.progress import WorkersProgress
from laminar_core.link.messages import OperatorWork, Progress
from laminar_core.records.operator_numbers import operators_of
from tests.driver.test_progress import report


def of(worker: int, at_ms: float, **operators: OperatorWork) -> Progress:
    return report(worker, operators=operators, at_ms=at_ms)


def work(rows: int = 0, busy_ms: float = 0, stopped_ms: float = 0, queued: int | None = None):
    return OperatorWork(
        rows_in=rows,
        rows_out=2 * rows,
        busy_ms=busy_ms,
        backpressured_ms=stopped_ms,
        queued_batches=queued,
        rows_expired=rows // 10,
    )


def test_totals_are_summed_and_shares_are_those_of_the_busiest_worker() -> None:
    watch = OperatorWatch()
    first = watch.look({0: of(0, 5_000, sums=work()), 1: of(1, 70, sums=work(queued=0))})
    assert first["sums"].busy_share is None
    reports = {
        0: of(0, 6_000, sums=work(100, busy_ms=900, stopped_ms=10, queued=4)),
        1: of(1, 2_070, sums=work(50, busy_ms=200, stopped_ms=1_000, queued=1)),
    }
    found = watch.look(reports)["sums"]
    assert (found.rows_in, found.rows_out, found.queued_batches) == (150, 300, 5)
    assert found.rows_expired == 15
    assert (found.busy_ms, found.backpressured_ms) == (1_100, 1_010)
    assert (found.rows_in_per_s, found.rows_out_per_s) == (125, 250)
    assert (found.busy_share, found.backpressured_share) == (0.9, 0.5)


def test_a_worker_that_reports_nothing_new_keeps_its_rates() -> None:
    watch = OperatorWatch()
    watch.look({0: of(0, 1_000, sums=work())})
    reports = {0: of(0, 2_000, sums=work(100, busy_ms=500))}
    assert watch.look(reports) == watch.look(reports)
    later = {0: of(0, 12_000, sums=work(100, busy_ms=10_500))}
    assert watch.look(later)["sums"].busy_share == 1


def test_operators_keep_the_order_in_which_workers_report_them() -> None:
    reports = {0: of(0, 1, b=work(), a=work()), 1: of(1, 1, b=work(), a=work())}
    assert list(OperatorWatch().look(reports)) == ["b", "a"]


def test_a_share_is_never_more_than_all_of_the_time() -> None:
    watch = OperatorWatch()
    watch.look({0: of(0, 0, sums=work(busy_ms=100))})
    assert watch.look({0: of(0, 10, sums=work(busy_ms=115))})["sums"].busy_share == 1


def test_reports_without_operators_change_nothing() -> None:
    progress = WorkersProgress(1, 0)
    progress.keep(of(0, 0, sums=work()))
    progress.event(0, 0, None)
    progress.keep(of(0, 1_000, sums=work(10)))
    progress.keep(of(0, 1_200))
    found = progress.event(500, 0, None).operators["sums"]
    assert (found.rows_in, found.rows_in_per_s) == (10, 10)
    assert progress.event(1_000, 0, None).operators["sums"] == found


def test_heartbeat_and_events_have_them_each_since_its_last_one() -> None:
    progress = WorkersProgress(1, 0)
    progress.keep(of(0, 0, sums=work()))
    progress.as_json(0)
    progress.event(0, 0, None)
    progress.keep(of(0, 1_000, sums=work(10)))
    assert progress.event(500, 0, None).operators["sums"].rows_in_per_s == 10
    progress.keep(of(0, 2_000, sums=work(40)))
    assert operators_of(progress.as_json(1_000))["sums"].rows_in_per_s == 20
    assert progress.event(1_000, 0, None).operators["sums"].rows_in_per_s == 30
