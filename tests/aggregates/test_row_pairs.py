import math

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_core.aggregates.accumulators import Accumulator, accumulators_of, merge_in_order
from laminar_core.aggregates.moments import Moments
from laminar_core.aggregates.row_pairs import pair_merge
from laminar_core.operators import agg

NEEDED = accumulators_of(
    [agg.sum("n"), agg.min("n"), agg.max("n"), agg.sum("x"), agg.min("x"), agg.max("x")]
)
SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("count(*)", pa.int64()),
        *((f"{name}(n)", pa.int64()) for name in ("sum", "min", "max")),
        *((f"{name}(x)", pa.float64()) for name in ("sum", "min", "max")),
    ]
)
NUMBER = st.integers(-1_000, 1_000)
FLOAT = st.sampled_from([0.5, -2.25, 1e300, -math.inf, math.inf, math.nan])
ROW = st.tuples(NUMBER, NUMBER, NUMBER, NUMBER, FLOAT, FLOAT, FLOAT)


def table(rows: list[tuple[float, ...]]) -> pa.Table:
    keyed = [(key, *row) for key, row in enumerate(rows)]
    columns = list(zip(*keyed, strict=True)) if rows else [()] * len(SCHEMA)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


@settings(max_examples=40)
@given(st.lists(st.tuples(ROW, ROW), min_size=1, max_size=6))
def test_pairs_are_merged_as_grouping_merges_them(pairs):
    state, partial = (table([pair[which] for pair in pairs]) for which in (0, 1))
    merge_pairs = pair_merge(SCHEMA, NEEDED)
    assert merge_pairs is not None
    columns = merge_pairs(state, partial)
    assert columns is not None
    grouped = merge_in_order(pa.concat_tables([state, partial]), ["k"], NEEDED)
    for needed, column in zip(NEEDED, columns, strict=True):
        assert str(column.to_pylist()) == str(grouped.column(needed.name).to_pylist())
        assert column.type == grouped.column(needed.name).type


@pytest.mark.parametrize("column", ["sum(n)", "sum(x)", "max(x)"])
def test_rows_with_nulls_are_grouped(column):
    state = table([(1, 1, 1, 1, 1.0, 1.0, 1.0)])
    at = SCHEMA.get_field_index(column)
    with_null = state.set_column(at, SCHEMA.field(at), pa.array([None], SCHEMA.field(at).type))
    merge_pairs = pair_merge(SCHEMA, NEEDED)
    assert merge_pairs is not None
    assert merge_pairs(state, with_null) is None
    assert merge_pairs(with_null, state) is None


def test_a_sum_that_leaves_64_bits_is_left_to_grouping_which_says_so():
    state = table([(1, 2**63 - 1, 1, 1, 1.0, 1.0, 1.0)])
    merge_pairs = pair_merge(SCHEMA, NEEDED)
    assert merge_pairs is not None
    assert merge_pairs(state, state) is None


def test_there_is_none_for_functions_with_a_state_of_their_own():
    moments = Accumulator(Moments(), "x")
    schema = SCHEMA.append(pa.field(moments.name, pa.float64()))
    assert pair_merge(schema, [*NEEDED, moments]) is None


@pytest.mark.parametrize("data_type", [pa.timestamp("us", "UTC"), pa.timestamp("ns"), pa.int8()])
@pytest.mark.parametrize(("function", "expected"), [("min", [1, 3, 5]), ("max", [2, 3, 5])])
def test_extremes_of_times_and_small_integers_skip_nulls(data_type, function, expected):
    needed = [Accumulator(function, "t")]
    schema = pa.schema([(f"{function}(t)", data_type)])
    state, partial = (
        pa.Table.from_arrays([pa.array(values, data_type)], schema=schema)
        for values in ([1, None, 5], [2, 3, None])
    )
    merge_pairs = pair_merge(schema, needed)
    assert merge_pairs is not None
    columns = merge_pairs(state, partial)
    assert columns is not None
    assert columns[0].equals(pa.chunked_array([pa.array(expected, data_type)]))
