"""Columns made those that a schema declares, and what does not fit."""

import pyarrow as pa
import pytest

from laminar_core.connectors.formats.fitting import check_column, fitted
from laminar_core.connectors.formats.messages import Defect, MessageRefusedError

NULLABLE = pa.field("x", pa.int32())
REQUIRED = pa.field("x", pa.int32(), nullable=False)


@pytest.mark.parametrize(
    ("found", "wanted", "does"),
    [
        (pa.int8(), pa.int64(), True),
        (pa.int64(), pa.int8(), True),
        (pa.int64(), pa.float64(), False),
        (pa.string(), pa.dictionary(pa.int32(), pa.large_string()), True),
        (pa.string(), pa.binary(), False),
        (pa.binary(4), pa.binary(), True),
        (pa.decimal256(20, 4), pa.decimal128(10, 2), True),
        (pa.decimal128(5, -2), pa.decimal128(5, -2), True),
        (pa.decimal128(10, -40), pa.decimal128(38, 2), False),
        (pa.decimal128(10, 11), pa.decimal256(40, 2), False),
        (pa.dictionary(pa.int8(), pa.decimal128(10, -(2**31))), pa.decimal128(38, 2), False),
        (pa.struct([("x", pa.decimal128(1, 99))]), pa.struct([("x", pa.decimal128(9, 9))]), False),
        (pa.timestamp("ms"), pa.timestamp("us"), True),
        (pa.timestamp("ms", "UTC"), pa.timestamp("us"), False),
        (pa.list_(pa.int8()), pa.list_(pa.int64()), True),
        (pa.list_(pa.int8()), pa.list_(pa.string()), False),
        (pa.struct([NULLABLE]), pa.struct([("x", pa.int8())]), True),
        (pa.struct([NULLABLE]), pa.struct([("y", pa.int32())]), False),
        (pa.struct([REQUIRED]), pa.struct([NULLABLE]), True),
        (pa.struct([NULLABLE]), pa.struct([REQUIRED]), False),
    ],
)
def test_types_fit_if_every_value_may(
    found: pa.DataType, wanted: pa.DataType, *, does: bool
) -> None:
    column = pa.schema([("a", found)])
    if does:
        assert check_column(column, pa.field("a", wanted))
        assert fitted(pa.RecordBatch.from_pylist([{}], schema=column), pa.schema([("a", wanted)]))
    else:
        with pytest.raises(MessageRefusedError, match="does not fit") as caught:
            check_column(column, pa.field("a", wanted))
        assert caught.value.defect is Defect.WRONG_SCHEMA


def test_a_value_inside_a_struct_that_does_not_fit_is_refused() -> None:
    batch = pa.RecordBatch.from_pylist(
        [{"s": {"x": 300}}], schema=pa.schema([("s", pa.struct([NULLABLE]))])
    )
    with pytest.raises(MessageRefusedError, match="not in range") as caught:
        fitted(batch, pa.schema([("s", pa.struct([("x", pa.int8())]))]))
    assert caught.value.defect is Defect.WRONG_TYPE


def test_an_absent_column_is_null_unless_it_must_have_values() -> None:
    empty = pa.schema([])
    assert not check_column(empty, pa.field("a", pa.int64()))
    with pytest.raises(MessageRefusedError, match="no column a"):
        check_column(empty, pa.field("a", pa.int64(), nullable=False))
    rows = fitted(pa.record_batch({"b": [1]}), pa.schema([("b", pa.int8()), ("a", pa.string())]))
    assert rows.to_pylist() == [{"b": 1, "a": None}]
