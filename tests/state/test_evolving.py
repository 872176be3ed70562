"""Rows of a checkpoint are read with other columns only where each value is certain."""

import pyarrow as pa
import pytest

from laminar_core.codec.key_groups import key_groups_of
from laminar_core.state.evolving import (
    NOTHING_BUT_WIDER,
    Allowed,
    compare_columns,
    evolved,
    evolved_batch,
    widens,
)

WIDER = [
    (pa.int8(), pa.int16()),
    (pa.int32(), pa.int64()),
    (pa.uint8(), pa.uint32()),
    (pa.uint32(), pa.int64()),
    (pa.float32(), pa.float64()),
    (pa.decimal128(10, 2), pa.decimal128(20, 2)),
    (pa.string(), pa.large_string()),
    (pa.binary(), pa.large_binary()),
    (pa.dictionary(pa.int32(), pa.string()), pa.string()),
    (pa.list_(pa.int32()), pa.list_(pa.int64())),
    (pa.struct([("at", pa.int32())]), pa.struct([("at", pa.int64())])),
]
OTHER = [
    (pa.int32(), pa.uint64()),
    (pa.int64(), pa.float64()),
    (pa.uint64(), pa.int64()),
    (pa.string(), pa.binary()),
    (pa.decimal128(10, 2), pa.decimal128(20, 4)),
    (pa.timestamp("ms", "UTC"), pa.timestamp("us", "UTC")),
    (pa.struct([("at", pa.int32())]), pa.struct([("on", pa.int64())])),
]


@pytest.mark.parametrize(("before", "now"), WIDER, ids=str)
def test_a_wider_type_has_the_same_values(before: pa.DataType, now: pa.DataType) -> None:
    assert widens(before, now)
    assert widens(now, now)
    assert not widens(now, before) or (before != now and pa.types.is_dictionary(before))
    rows = pa.table({"v": pa.nulls(2, before)})
    assert evolved(rows, pa.schema([("v", now)]), {}).schema.field("v").type == now


@pytest.mark.parametrize(("before", "now"), OTHER, ids=str)
def test_another_type_is_refused(before: pa.DataType, now: pa.DataType) -> None:
    assert not widens(before, now)
    (problem,) = compare_columns(
        pa.schema([("v", before)]), pa.schema([("v", now)]), NOTHING_BUT_WIDER
    ).problems
    assert problem == f"v was {before}, is {now}"


@pytest.mark.parametrize(
    ("values", "before", "now"),
    [
        ([0, 1, -1, 2**31 - 1, -(2**31), None], pa.int32(), pa.int64()),
        ([0, 7, 2**32 - 1], pa.uint32(), pa.int64()),
        (["", "a", "käse", None], pa.string(), pa.large_string()),
    ],
)
def test_a_wider_key_stays_in_its_key_group(values, before, now) -> None:
    """Otherwise its state would be with one worker, and its rows with another."""
    rows = pa.record_batch({"k": pa.array(values, before)})
    wide = evolved_batch(rows, pa.schema([("k", now)]), {})
    assert wide.column("k").to_pylist() == values
    groups = [key_groups_of(batch, ["k"], 128).tolist() for batch in (rows, wide)]
    assert groups[0] == groups[1]


BEFORE = pa.schema([("k", pa.string()), ("sum", pa.int32())])


def test_columns_that_are_added_have_their_first_value_or_null() -> None:
    now = pa.schema([("count", pa.int64()), ("k", pa.string()), ("sum", pa.int64()), ("x", "f8")])
    allowed = Allowed(first={"count": pa.scalar(0, pa.int64())}, adds_nulls=True)
    changes = compare_columns(BEFORE, now, allowed)
    assert list(changes.lines()) == [
        "wider: sum: int64 instead of int32",
        "counted from here on: count",
        "null in these rows: x",
    ]
    assert changes.problems == ()
    rows = pa.table([["a"], [5]], schema=BEFORE.with_metadata({"m": "1"}))
    found = evolved(rows, now, allowed.first)
    assert found.to_pylist() == [{"count": 0, "k": "a", "sum": 5, "x": None}]
    assert found.schema.metadata == {b"m": b"1"}
    batch = evolved_batch(rows.to_batches()[0], now, allowed.first)
    assert batch.schema.equals(now)
    assert evolved_batch(batch.slice(0, 0), now, {}).num_rows == 0


def test_columns_are_left_out_only_where_that_is_allowed() -> None:
    now = pa.schema([("k", pa.string())])
    assert compare_columns(BEFORE, now, NOTHING_BUT_WIDER).problems == ("sum was int32, is absent",)
    changes = compare_columns(BEFORE, now, Allowed(drops=True))
    assert (changes.dropped, changes.problems) == (("sum",), ())
    assert list(changes.lines()) == ["left out: sum"]
    kept = Allowed(drops=True, keys=frozenset({"sum"}))
    assert compare_columns(BEFORE, now, kept).problems == ("sum was int32, is absent",)


def test_a_key_or_a_column_without_null_is_not_added() -> None:
    now = BEFORE.append(pa.field("x", pa.int8()))
    assert compare_columns(BEFORE, now, NOTHING_BUT_WIDER).problems == ("x was absent, is int8",)
    is_key = Allowed(adds_nulls=True, keys=frozenset({"x"}))
    assert compare_columns(BEFORE, now, is_key).problems == ("x was absent, is int8",)
    never = BEFORE.append(pa.field("x", pa.int8(), nullable=False))
    assert compare_columns(BEFORE, never, Allowed(adds_nulls=True)).problems
    strict = pa.schema([("k", pa.string()), pa.field("sum", pa.int32(), nullable=False)])
    (problem,) = compare_columns(BEFORE, strict, NOTHING_BUT_WIDER).problems
    assert problem == "sum could be null, and now it cannot"


def test_one_half_of_a_result_does_not_begin_later_than_the_other() -> None:
    now = BEFORE.append(pa.field("count", pa.int64()))
    first = {"count": pa.scalar(0, pa.int64())}
    (problem,) = compare_columns(BEFORE, now, Allowed(first, (("sum", "count"),))).problems
    assert problem.startswith("count would begin now, and sum began earlier")


def test_another_order_is_no_difference() -> None:
    changes = compare_columns(BEFORE, pa.schema(list(BEFORE)[::-1]), NOTHING_BUT_WIDER)
    assert list(changes.lines()) == []
    assert changes.problems == ()
