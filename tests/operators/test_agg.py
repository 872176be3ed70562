"""The aggregates that users write."""

import pytest

from laminar_core.operators import agg
from laminar_core.state.accumulators import Aggregate


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (agg.count(), Aggregate("count", None, "count")),
        (agg.count("amount"), Aggregate("count", "amount", "count_amount")),
        (agg.sum("amount"), Aggregate("sum", "amount", "sum_amount")),
        (agg.min("amount"), Aggregate("min", "amount", "min_amount")),
        (agg.max("amount"), Aggregate("max", "amount", "max_amount")),
        (agg.avg("amount"), Aggregate("avg", "amount", "avg_amount")),
        (agg.sum("amount", name="total"), Aggregate("sum", "amount", "total")),
        (agg.count(name="payments"), Aggregate("count", None, "payments")),
    ],
)
def test_an_aggregate_is_named_for_what_it_is_unless_it_is_given_a_name(
    written: Aggregate, meant: Aggregate
) -> None:
    assert written == meant
