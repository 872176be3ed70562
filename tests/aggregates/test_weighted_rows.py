"""Rows with weights become accumulators: exact or an error, and nothing of what is nothing."""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from laminar_core.aggregates.accumulators import Aggregate, accumulators_of, finish, merge
from laminar_core.aggregates.weighted_rows import accumulate_weighted, is_nothing
from laminar_core.errors import DataError, ErrorCode
from laminar_core.operators import agg


def state_of(values: pa.Array, weights: list[int], aggregate: Aggregate) -> pa.Table:
    rows = pa.table({"k": ["a"] * len(weights), "v": values})
    needed = accumulators_of([aggregate])
    return accumulate_weighted({"k": rows["k"]}, rows, np.array(weights, np.int64), needed)


def total(values: pa.Array, weights: list[int]) -> object:
    over = agg.sum("v").over_weights()
    return finish(state_of(values, weights, over), over)[0].as_py()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array([2, 5, None], pa.uint64()), -4),
        (pa.array([2, 5, None], pa.int8()), -4),
        (pa.array([2.5, 5, None], pa.float32()), -2.5),
        (pa.array([Decimal("2.25"), Decimal(5), None], pa.decimal128(38, 2)), Decimal("-3.25")),
        (pa.array([Decimal("2.25"), Decimal(5), None], pa.decimal128(5, 2)), Decimal("-3.25")),
    ],
)
def test_a_value_counts_as_often_as_its_weight(values: pa.Array, expected: object) -> None:
    assert total(values, [3, -2, 7]) == expected


def test_durations_are_added() -> None:
    state = state_of(pa.array([5, 2], pa.duration("s")), [1, -2], agg.sum("v").over_weights())
    assert state.column("sum(v)").type == pa.duration("s")
    assert state.column("sum(v)").cast(pa.int64()).to_pylist() == [1]


@pytest.mark.parametrize(
    "values",
    [
        pa.array([2**62], pa.int64()),
        pa.array([2**63], pa.uint64()),
        pa.array([Decimal(10) ** 70], pa.decimal256(76, 0)),
    ],
)
def test_a_product_that_leaves_its_type_is_an_error(values: pa.Array) -> None:
    with pytest.raises(DataError) as refused:
        total(values, [4])
    assert refused.value.code is ErrorCode.ARITHMETIC_OVERFLOW


def test_weights_of_one_keep_all_digits() -> None:
    most = Decimal("9" * 76)
    state = state_of(pa.array([most], pa.decimal256(76, 0)), [-1], agg.sum("v").over_weights())
    assert state.column("sum(v)").to_pylist() == [most.copy_negate()]


def test_rows_that_come_and_go_in_one_batch_are_nothing() -> None:
    for aggregate in (agg.count(), agg.avg("v"), agg.min("v"), agg.first("v", by="v")):
        state = state_of(pa.array([0.1, 0.1]), [1, -1], aggregate.over_weights())
        assert state.num_rows == 0


def test_a_difference_is_not_nothing_though_no_row_is_counted() -> None:
    for aggregate in (agg.sum("v"), agg.min("v")):
        over = aggregate.over_weights()
        state = state_of(pa.array([0.1, 0.2]), [1, -1], over)
        assert state.column("count(*)").to_pylist() == [0]
        back = state_of(pa.array([0.1, 0.2]), [-1, 1], over)
        needed = accumulators_of([over])
        assert is_nothing(merge(pa.concat_tables([state, back]), ["k"], needed), needed).all()


def test_equal_keys_of_two_dictionaries_are_one_group() -> None:
    parts = (pa.array(["a", "b"]), pa.array(["b"]))
    keys = pa.chunked_array([part.dictionary_encode() for part in parts])
    rows, needed = pa.table({"k": keys}), accumulators_of([agg.count().over_weights()])
    state = accumulate_weighted({"k": keys}, rows, np.array([1, 1, 1]), needed)
    assert dict(zip(*(column.to_pylist() for column in state.columns), strict=True)) == {
        "a": 1,
        "b": 2,
    }


@pytest.mark.parametrize(
    ("data_type", "greatest"),
    [(pa.int64(), 2**63 - 1), (pa.uint64(), 2**64 - 1), (pa.int64(), 2**63 - 2)],
    ids=str,
)
def test_of_several_first_rows_a_null_comes_last_also_behind_the_greatest_value(
    data_type: pa.DataType, greatest: int
) -> None:
    needed = accumulators_of((agg.first("v", by="o").over_weights(),))
    for values in ([greatest, None], [None, greatest]):
        rows = pa.table({"v": pa.array(values, data_type), "o": [1, 1]})
        keys = {"k": pa.chunked_array([[7, 7]])}
        state = accumulate_weighted(keys, rows, np.ones(2, np.int64), needed)
        assert finish(state, agg.first("v", by="o").over_weights()).to_pylist() == [greatest]
