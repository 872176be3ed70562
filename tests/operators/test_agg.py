"""The aggregates that users write."""

from collections.abc import Callable
from decimal import Decimal

import pyarrow as pa
import pytest

from laminar_core.aggregates.accumulators import Aggregate
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators import agg


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


def test_the_others_are_called_after_function_and_column() -> None:
    named = [
        agg.var_pop("v"), agg.var_samp("v"), agg.stddev_pop("v"), agg.stddev_samp("v"),
        agg.first("v", by="t"), agg.last("v", by="t"), agg.count_distinct("v"),
        agg.approx_count_distinct("v"), agg.percentile("v", 0), agg.approx_percentile("v", 1),
    ]  # fmt: skip
    assert [aggregate.name for aggregate in named] == [f"{a.function}_v" for a in named]
    assert agg.last("v", by="t", name="newest").name == "newest"
    assert [aggregate.columns for aggregate in named[3:6]] == [("v",), ("v", "t"), ("v", "t")]


class Nothing:
    name, state_type, result_type = "no name", pa.null(), pa.null()


@pytest.mark.parametrize(
    ("ask", "problem"),
    [
        (lambda: agg.approx_count_distinct("v", precision=11), "precision is 12 to 16, not 11"),
        (lambda: agg.approx_count_distinct("v", precision=17), "precision is 12 to 16, not 17"),
        (lambda: agg.percentile("v", 95), "fraction of a percentile is 0 to 1, not 95"),
        (lambda: agg.approx_percentile("v", -0.1), "fraction of a percentile is 0 to 1, not -0.1"),
        (lambda: agg.approx_percentile("v", 0.5, compression=9), "compression is 10 to 65535"),
        (lambda: agg.user(Nothing(), "v"), "'no name' is not a name"),
        (lambda: agg.sum(["v"]), r"sum is called by names of columns, not by \['v'\]"),
        (lambda: agg.sum(None), "sum is called by names of columns, not by None"),
        (lambda: agg.last("v", by=5), "last is called by names of columns, not by 5"),
        (lambda: agg.user(Nothing()), "needs at least one column"),
        (lambda: agg.user(Nothing, "v"), "agg.user takes an object of a class with a name"),
        (lambda: agg.user(max, "v"), "agg.user takes an object of .*, not <built-in function max>"),
    ],
)
def test_what_cannot_be_computed_is_refused_at_once(
    ask: Callable[[], object], problem: str
) -> None:
    with pytest.raises(ConfigurationError, match=problem) as caught:
        ask()
    assert caught.value.code is ErrorCode.INVALID_OPTION


def test_fractions_and_sketches_are_part_of_the_identity() -> None:
    descriptions = [
        agg.percentile("v", 0.5, name="p").describe(),
        agg.percentile("v", 0.9, name="p").describe(),
        agg.approx_percentile("v", 0.9, name="p").describe(),
        agg.approx_percentile("v", 0.9, compression=100, name="p").describe(),
    ]
    assert len({str(described) for described in descriptions}) == 4


def test_a_fraction_may_be_a_decimal() -> None:
    half = agg.percentile("v", Decimal("0.5"))
    assert half.describe() == agg.percentile("v", 0.5).describe()
