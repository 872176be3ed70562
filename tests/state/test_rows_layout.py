"""The columns of rows in a checkpoint, and tables of several cuts put together."""

import pyarrow as pa

from laminar_core.state.expiry import EXPIRES
from laminar_core.state.named_tables import WEIGHT
from laminar_core.state.rows_layout import MATCHED, RowsLayout, of_key_groups
from laminar_core.state.window_layout import KEY_GROUP, TIME_TYPE

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), (EXPIRES, TIME_TYPE)])


def rows(layout: RowsLayout, *values: tuple) -> pa.Table:
    schema = layout.stored_schema
    columns = zip(*values, strict=True) if values else [()] * len(schema)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def test_marks_and_weights_are_columns_of_a_checkpoint_only() -> None:
    plain, marked = RowsLayout(("k",), SCHEMA), RowsLayout(("k",), SCHEMA, is_marked=True)
    assert plain.stored_schema.names == [KEY_GROUP, *SCHEMA.names]
    assert marked.stored_schema.names == [KEY_GROUP, *SCHEMA.names, MATCHED, WEIGHT]
    assert marked.schema is SCHEMA
    assert not RowsLayout(("k",), SCHEMA.remove(2)).expires


def test_rows_without_weights_are_all_kept_sorted_by_key_group() -> None:
    layout = RowsLayout(("k",), SCHEMA)
    first, second = rows(layout, (3, "c", 1, 5), (7, "a", 1, 5)), rows(layout, (3, "c", 1, 5))
    assert layout.table("rows").merge([first, second], None).column(KEY_GROUP).to_pylist() == [
        3,
        3,
        7,
    ]
    assert layout.table("rows").merge([], None).equals(rows(layout))


def test_a_mark_takes_the_row_without_it_back_whichever_comes_first() -> None:
    layout = RowsLayout(("k",), SCHEMA, is_marked=True)
    came = rows(layout, (3, "c", 1, 5, False, 1), (7, "a", 1, 5, False, 2))
    marked = rows(layout, (3, "c", 1, 5, False, -1), (3, "c", 1, 5, True, 1))
    for tables in ([came, marked], [marked, came]):
        kept = layout.table("rows").merge(tables, None)
        assert kept.column(MATCHED).to_pylist() == [True, False]
        assert kept.column(WEIGHT).to_pylist() == [1, 2]


def test_key_groups_are_a_slice() -> None:
    layout = RowsLayout(("k",), SCHEMA)
    stored = rows(layout, *((group, str(group), 1, 5) for group in (0, 1, 1, 4, 6)))
    for first, stop, groups in ((0, 2, [0, 1, 1]), (1, 5, [1, 1, 4]), (2, 4, []), (5, 8, [6])):
        kept = of_key_groups(stored, range(first, stop))
        assert kept.column(KEY_GROUP).to_pylist() == groups
