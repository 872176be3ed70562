"""Rows with weights: how they are made, added up, and refused where they cannot be compared."""

import math

import numpy as np
import pyarrow as pa
import pytest

from laminar_core.errors import ConfigurationError, DataError, ErrorCode
from laminar_core.operators.weights import (
    WEIGHT,
    consolidate,
    is_weighted,
    unweighted,
    unweighted_schema,
    weighted,
    weighted_schema,
    weights_of,
)

PLACE = pa.struct([("street", pa.string()), ("x", pa.float64())])
SCHEMA = pa.schema(
    [
        ("key", pa.dictionary(pa.int8(), pa.string())),
        ("x", pa.float64()),
        ("place", PLACE),
        ("at", pa.timestamp("us")),
        ("price", pa.decimal128(9, 2)),
    ]
)


def batch(*lines: tuple[str | None, float | None, object]) -> pa.RecordBatch:
    rows = [{"key": key, "x": x, "place": place} for key, x, place in lines]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def test_weights_are_the_last_column_and_go_again() -> None:
    rows = batch(("a", 1.0, None), (None, None, None))
    both = weighted(rows, [2, -1])
    assert both.schema.equals(weighted_schema(SCHEMA))
    assert both.schema.names[-1] == WEIGHT
    assert not both.schema.field(WEIGHT).nullable
    assert weights_of(both).tolist() == [2, -1]
    assert unweighted(both).equals(rows)
    assert unweighted_schema(both.schema).equals(SCHEMA)
    assert weights_of(weighted(rows, 1)).tolist() == [1, 1]
    assert weighted(rows.slice(0, 0), 1).num_rows == 0


def test_a_schema_has_weights_if_the_column_has_their_type() -> None:
    assert is_weighted(weighted_schema(SCHEMA))
    assert not is_weighted(SCHEMA)
    assert not is_weighted(pa.schema([(WEIGHT, pa.int64())]))
    assert not is_weighted(pa.schema([(WEIGHT, pa.int32()), (WEIGHT, pa.int32())]))


def test_equal_rows_add_up_over_batches_and_dictionaries() -> None:
    here = {"street": "s", "x": math.nan}
    first = weighted(batch(("a", 1.0, here), ("b", math.nan, None), (None, None, None)), [1, 2, -1])
    # Other dictionaries: "b" has another index.
    other = batch(("b", math.nan, None), ("a", 1.0, here), (None, None, None))
    left = consolidate([first, weighted(other, [1, -1, 3])])
    assert left.schema.equals(first.schema)
    found = [(row["key"], row[WEIGHT]) for row in left.to_pylist()]
    assert found == [("b", 3), (None, 2)]


def test_rows_that_are_not_equal_stay_apart() -> None:
    nowhere = {"street": None, "x": None}
    rows = [("a", 0.0, None), ("a", -0.0, None), ("a", None, None), ("a", 0.0, nowhere)]
    assert consolidate([weighted(batch(*rows), [1, -1, 1, 1])]).num_rows == len(rows)


def test_nothing_is_left_of_rows_that_come_and_go() -> None:
    rows = batch(("a", -0.0, None), ("b", math.nan, {"street": "s", "x": -0.0}))
    nothing = consolidate([weighted(rows, 1), weighted(rows, -1)])
    assert nothing.num_rows == 0
    assert nothing.schema.equals(weighted_schema(SCHEMA))
    assert consolidate(pa.Table.from_batches([nothing])).num_rows == 0


def test_the_order_follows_from_the_input() -> None:
    dice = np.random.default_rng(7)
    drawn = pa.record_batch({"n": dice.integers(0, 50, 1000)})
    rows = weighted(drawn, dice.integers(-3, 4, 1000))
    assert consolidate([rows]).equals(consolidate([rows]))


def test_too_many_equal_rows_are_an_error() -> None:
    rows = weighted(pa.record_batch({"n": [1, 1]}), [2**31 - 1, 1])
    with pytest.raises(DataError) as refused:
        consolidate([rows])
    assert refused.value.code is ErrorCode.ARITHMETIC_OVERFLOW


@pytest.mark.parametrize(
    ("field", "code"),
    [
        (pa.field(WEIGHT, pa.float64()), ErrorCode.INVALID_PIPELINE),
        (pa.field("tags", pa.list_(pa.string())), ErrorCode.UNSUPPORTED_TYPE),
    ],
)
def test_columns_that_cannot_be_among_them_are_refused(field: pa.Field, code: ErrorCode) -> None:
    with pytest.raises(ConfigurationError) as refused:
        weighted_schema(SCHEMA.append(field))
    assert refused.value.code is code
    assert field.name in str(refused.value)
