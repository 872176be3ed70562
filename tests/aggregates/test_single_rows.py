"""Rows that are not combined give the same results, once their owner has merged them."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_core.aggregates.accumulators import accumulate, accumulators_of, merge
from laminar_core.aggregates.single_rows import SPARSE, SPARSE_BATCHES, Density, single_rows
from laminar_core.operators import agg

EXACT = accumulators_of(
    (agg.count(), agg.count("v"), agg.sum("v"), agg.min("v"), agg.max("v"), agg.avg("v"))
)
TYPES = (pa.int64(), pa.int8(), pa.int32())


def table(pairs: list[tuple[str, int]], data_type: pa.DataType = TYPES[0]) -> pa.Table:
    keys, values = zip(*pairs, strict=True)
    return pa.table({"k": pa.array(keys), "v": pa.array(values, data_type)})


def as_partial(rows: pa.Table) -> pa.Table:
    found = single_rows(rows, EXACT)
    assert found is not None
    return pa.table({"k": rows.column("k"), **found})


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(-100, 100)), min_size=1),
    st.sampled_from(TYPES),
)
def test_merged_they_are_what_combining_gives(pairs, data_type) -> None:
    rows = table(pairs, data_type)
    combined = accumulate({"k": rows.column("k")}, rows, EXACT)
    alone = as_partial(rows)
    assert alone.schema == combined.schema
    merged = merge(alone, ["k"], EXACT)
    assert merged.sort_by("k").equals(combined.sort_by("k"))


TIMES = pa.array([1, 2], pa.timestamp("us"))


@pytest.mark.parametrize(
    ("values", "aggregate", "is_simple"),
    [
        (TIMES, agg.max("v"), True),
        (pa.array([1, 2], pa.uint64()), agg.min("v"), True),
        (pa.array(["a", "b"]).dictionary_encode(), agg.count("v"), True),
        (pa.array([1, None]), agg.count("v"), False),
        (pa.DictionaryArray.from_arrays([0, 1], ["a", None]), agg.count("v"), False),
        (pa.array([1, None]), agg.sum("v"), False),
        (pa.array([1.5, 2.5]), agg.sum("v"), False),
        (pa.array([1.5, float("nan")]), agg.max("v"), False),
        (pa.array([1, 2], pa.uint64()), agg.sum("v"), False),
        (pa.array([1, 2]), agg.count_distinct("v"), False),
        (pa.array([1, 2]), agg.percentile("v", 0.5), False),
        (pa.array([1, 2]), agg.stddev_pop("v"), False),
    ],
)
def test_what_is_not_exact_is_combined(values, aggregate, is_simple) -> None:
    found = single_rows(pa.table({"v": values}), accumulators_of((aggregate,)))
    assert (found is not None) is is_simple


def test_a_batch_that_became_hardly_less_lets_the_next_ones_alone() -> None:
    density = Density()
    density.combined(100, int(100 * SPARSE))
    assert not density.is_sparse
    density.combined(100, 100)
    for _ in range(SPARSE_BATCHES):
        assert density.is_sparse
        density.left_alone()
    assert not density.is_sparse, "the keys may have changed"
    density.combined(100, 1)
    assert not density.is_sparse
