"""The board has the present values, and a bounded number of them."""

from laminar_core.metrics import catalogue
from laminar_core.metrics.board import NO_VALUES, SERIES_MAX, Board, Distribution
from laminar_core.metrics.catalogue import DURATION_BOUNDS_S, METRICS
from laminar_core.metrics.changes import Counted, Observed, Shown


def test_it_knows_every_metric_and_begins_without_values() -> None:
    assert Board().read() == {metric: {} for metric in METRICS}


def test_counters_add_up_and_gauges_are_replaced() -> None:
    board = Board()
    board.apply([Counted(catalogue.RESTARTS, 2), Counted(catalogue.RESTARTS, 3)])
    board.apply([Shown(catalogue.OPERATOR_QUEUED, {("a",): 1, ("b",): 2})])
    board.apply([Shown(catalogue.OPERATOR_QUEUED, {("b",): 4})])
    found = board.read()
    assert found[catalogue.RESTARTS] == {(): 5}
    assert found[catalogue.OPERATOR_QUEUED] == {("b",): 4}


def test_a_value_on_a_bound_belongs_to_the_bucket_below_it() -> None:
    board = Board()
    values = (DURATION_BOUNDS_S[0], DURATION_BOUNDS_S[1], 10_000.0)
    board.apply([Observed(catalogue.RECOVERY, value) for value in values])
    found = board.read()[catalogue.RECOVERY][()]
    assert isinstance(found, Distribution)
    assert (found.counts[:2], found.counts[-1], found.count) == ((1, 1), 1, 3)
    assert (found.total, found.least, found.greatest) == (sum(values), values[0], 10_000.0)
    assert NO_VALUES.count == 0


def test_what_was_read_does_not_change() -> None:
    board = Board()
    board.apply([Counted(catalogue.RESTARTS, 1)])
    before = board.read()
    board.apply([Counted(catalogue.RESTARTS, 1)])
    assert before[catalogue.RESTARTS] == {(): 1}


def test_series_are_bounded_and_those_that_are_there_go_on() -> None:
    board = Board()
    board.apply(Counted(catalogue.FAILURES, 1, (f"code-{n}",)) for n in range(SERIES_MAX + 5))
    board.apply([Counted(catalogue.FAILURES, 1, ("code-0",))])
    found = board.read()[catalogue.FAILURES]
    assert len(found) == SERIES_MAX
    assert found["code-0",] == 2
