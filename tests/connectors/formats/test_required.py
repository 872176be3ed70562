"""Nulls are found where a schema allows none, at any depth, and only there."""

import pyarrow as pa
import pytest

from laminar_core.connectors.formats.messages import MessageRefusedError
from laminar_core.connectors.formats.required import check_required
from tests.connectors.formats.adversarial import no_lists_at_an_offset


def required(name: str, of: pa.DataType) -> pa.Field:
    return pa.field(name, of, nullable=False)


INNER = pa.struct([required("x", pa.int64()), ("y", pa.int64())])
VIEWS = pa.struct([("v", pa.string_view()), ("b", pa.binary_view()), required("x", pa.int64())])
CASES = [
    (required("a", pa.int64()), [1, 2], None),
    (required("a", pa.int64()), [1, None], "no value for a"),
    (pa.field("a", INNER), [None, {"x": 1, "y": None}], None),
    (pa.field("a", INNER), [{"x": None, "y": 1}], "no value for a.x"),
    (required("a", INNER), [None], "no value for a"),
    (pa.field("a", pa.list_(required("item", pa.int8()))), [None, [], [1]], None),
    (pa.field("a", pa.list_(required("item", pa.int8()))), [[1, None]], "no value for a.item"),
    (pa.field("a", pa.list_(VIEWS)), [[{"v": "a", "x": 1}, None], None], None),
    (pa.field("a", pa.large_list(VIEWS)), [[{"v": "a"}], None], "no value for a.item.x"),
    (pa.field("a", pa.large_list(INNER)), [[None, {"x": 1}]], None),
    (pa.field("a", pa.large_list(INNER)), [[{"x": 1}], [{"x": None}]], "no value for a.item.x"),
]


@pytest.mark.parametrize(("field", "values", "problem"), CASES, ids=range(len(CASES)))
def test_a_null_is_found_where_it_must_not_be(
    field: pa.Field, values: list[object], problem: str | None
) -> None:
    schema = pa.schema([("before", pa.int64()), field])
    rows = pa.RecordBatch.from_arrays(
        [pa.nulls(len(values), pa.int64()), pa.array(values, field.type)], schema=schema
    )
    if problem is None:
        check_required(rows, schema)
    else:
        with pytest.raises(MessageRefusedError, match=f"^{problem}$"):
            check_required(rows, schema)


def test_rows_before_a_slice_do_not_count() -> None:
    field = pa.field("a", pa.list_(required("item", pa.int8())))
    column = pa.array([[None], [1]], field.type)
    rows = pa.RecordBatch.from_arrays([column], schema=pa.schema([field])).slice(1)
    check_required(rows, rows.schema)


def test_lists_that_are_not_there_may_begin_anywhere() -> None:
    rows = pa.record_batch({"a": no_lists_at_an_offset()})
    rows.validate(full=True)
    check_required(rows, rows.schema)
