"""Reckoning: every sum can be done by hand."""

import pytest

from laminar_core.objectstore.request_counts import RequestCounts
from laminar_core.orchestration.housekeeping.costs import GB, MONTH_MS, CostFacts, Stored, reckon
from laminar_core.orchestration.spec import PriceTable
from laminar_core.protocol.types import Generation
from laminar_core.store.usage import GenerationTraffic

PRICES = PriceTable(currency="EUR", put_per_1000=5, get_per_1000=1, gb_month=2)


def facts(**changes) -> CostFacts:
    traffic = GenerationTraffic(
        Generation(3), 0, 100_000, RequestCounts(puts=10, lists=10, gets=50, heads=50)
    )
    fields = {
        "stored": (Stored("records", 7, GB // 2), Stored("shared segments", 3, GB)),
        "traffic": (traffic,),
        "newest_generation": 3,
        "checkpoint_interval_ms": 10_000.0,
        "reclaimable_bytes": GB // 4,
    }
    return CostFacts(**fields | changes)


def test_storage_is_bytes_and_requests_are_what_the_newest_generation_sent() -> None:
    report = reckon(facts(), PRICES)
    assert (report.stored_objects, report.stored_bytes) == (10, GB // 2 + GB)
    assert report.storage_per_month == 3
    assert report.requests_per_month == pytest.approx((20 * 5 + 100) / 1000 / 100_000 * MONTH_MS)
    assert report.per_month == pytest.approx(3 + (report.requests_per_month or 0))
    assert report.per_checkpoint == pytest.approx(0.2 * 10_000 / 100_000)
    assert report.retention_saves_per_month == 0.5


@pytest.mark.parametrize(
    "changes",
    [
        {"traffic": ()},
        {"newest_generation": 4},
        {"traffic": (GenerationTraffic(Generation(3), 0, 59_999, RequestCounts(puts=9)),)},
    ],
)
def test_requests_that_nobody_counted_long_enough_are_not_made_up(changes) -> None:
    report = reckon(facts(**changes), PRICES)
    assert (report.requests_per_month, report.per_month, report.per_checkpoint) == (None,) * 3
    assert report.storage_per_month == 3


def test_without_a_pace_there_is_no_cost_per_checkpoint() -> None:
    report = reckon(facts(checkpoint_interval_ms=None), PRICES)
    assert report.per_checkpoint is None
    assert report.per_month is not None
