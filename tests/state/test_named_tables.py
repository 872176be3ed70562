"""Rows of a table of state are put together as its layout says, also by those who only read it."""

import pyarrow as pa
import pytest

from laminar_core.errors import DataError, ErrorCode
from laminar_core.state.expiry import EXPIRES
from laminar_core.state.named_tables import (
    TABLES,
    WEIGHT,
    TableLayout,
    added_up,
    described,
    layout_of,
)
from laminar_core.state.reading import key_columns, merged_rows
from laminar_core.state.window_layout import KEY_GROUP

SCHEMA = pa.schema(
    [
        (KEY_GROUP, pa.int32()),
        ("key", pa.string()),
        ("value", pa.float64()),
        (EXPIRES, pa.int64()),
        (WEIGHT, pa.int32()),
    ]
)


def layout(merging: str, name: str = "left") -> TableLayout:
    return TableLayout(name, SCHEMA, ("key",), merging)  # type: ignore[arg-type]


def rows(*lines: tuple) -> pa.Table:
    return pa.Table.from_pylist(
        [dict(zip(SCHEMA.names, line, strict=True)) for line in lines], schema=SCHEMA
    )


FIRST = rows((3, "c", 1.0, 9, 1), (1, "a", 2.0, 5, 2), (1, None, None, 9, 1))
SECOND = rows((1, None, None, 9, -1), (1, "a", 2.0, 5, 1), (3, "c", 4.0, 12, 1), (2, "b", 0, 9, 0))


def values(table: pa.Table) -> list[tuple]:
    assert table.schema == SCHEMA
    return [(*tuple(row.values())[:3], row[WEIGHT]) for row in table.to_pylist()]


def test_weights_of_equal_rows_add_up_and_rows_without_any_are_gone() -> None:
    merged = layout("weights").merge([FIRST, SECOND], None)
    assert values(merged) == [(1, "a", 2.0, 3), (3, "c", 1.0, 1), (3, "c", 4.0, 1)]


def test_a_weight_may_be_negative_until_its_row_comes() -> None:
    missing = layout("weights").merge([SECOND], None)
    assert (1, None, None, -1) in values(missing)
    later, at_once = (
        layout("weights").merge(tables, None) for tables in ([missing, FIRST], [FIRST, SECOND])
    )
    assert sorted(values(later)) == sorted(values(at_once))


def test_of_a_key_the_newest_row_counts() -> None:
    merged = layout("newest").merge([FIRST, SECOND], None)
    assert values(merged) == [
        (1, "a", 2.0, 1),
        (1, None, None, -1),
        (2, "b", 0.0, 0),
        (3, "c", 4.0, 1),
    ]


def test_all_rows_count_in_the_order_of_key_groups() -> None:
    merged = layout("append").merge([FIRST, SECOND], None)
    assert merged.num_rows == FIRST.num_rows + SECOND.num_rows
    groups = merged.column(KEY_GROUP).to_pylist()
    assert groups == sorted(groups)


@pytest.mark.parametrize(
    ("merging", "keys"), [("append", "ccb"), ("newest", "bc"), ("weights", "cc")]
)
def test_what_has_expired_is_left_out(merging: str, keys: str) -> None:
    merged = layout(merging).merge([FIRST, SECOND], 5)
    assert sorted(filter(None, merged.column("key").to_pylist())) == sorted(keys)
    assert layout(merging).merge([FIRST, SECOND], 12).num_rows == 0


@pytest.mark.parametrize("merging", ["append", "newest", "weights"])
def test_of_no_tables_no_rows_are_left(merging: str) -> None:
    assert layout(merging).merge([], 5).equals(SCHEMA.empty_table())


@pytest.mark.parametrize("merging", ["append", "newest", "weights"])
def test_who_reads_merges_as_the_operator_does(merging: str) -> None:
    mine = layout(merging)
    description = {"kind": "join", TABLES: described([mine, layout("append", "right")])}
    assert layout_of("left", SCHEMA, description) == mine
    found = merged_rows([FIRST, SECOND], description, 5, "left")
    assert found.equals(mine.merge([FIRST, SECOND], 5))
    keys = key_columns(description, SCHEMA, "left")
    assert keys == (("key",) if merging == "newest" else ()), "or a key has several rows"


@pytest.mark.parametrize(
    "description",
    [{}, {TABLES: []}, {TABLES: {"right": {}}}, {TABLES: {"left": {"keys": "key"}}}],
)
def test_all_rows_of_a_table_that_nobody_describes_count(description) -> None:
    assert layout_of("left", SCHEMA, description) == TableLayout("left", SCHEMA, (), "append")


SESSIONS = pa.schema(
    [
        (KEY_GROUP, pa.int32()),
        ("key", pa.string()),
        ("window_start", pa.int64()),
        (EXPIRES, pa.int64()),
        ("count(*)", pa.int64()),
    ]
)


def test_of_sessions_that_touch_the_last_version_counts_and_expired_ones_are_gone() -> None:
    def sessions(*lines: tuple) -> pa.Table:
        return pa.Table.from_pylist(
            [dict(zip(SESSIONS.names, line, strict=True)) for line in lines], schema=SESSIONS
        )

    first = sessions((2, "b", 0, 4, 1), (1, "a", 0, 10, 1), (1, "a", 20, 30, 2))
    second = sessions((1, "a", 0, 30, 5), (1, None, 3, 9, 1))
    kept = TableLayout("open", SESSIONS, ("key",), "sessions")
    description = {TABLES: described([kept])}
    for merged in (
        kept.merge([first, second], 4),
        merged_rows([first, second], description, 4, "open"),
    ):
        assert [tuple(row.values()) for row in merged.to_pylist()] == [
            (1, "a", 0, 30, 5),
            (1, None, 3, 9, 1),
        ]
    assert key_columns(description, SESSIONS, "open") == ("key", "window_start")


def test_a_key_whose_newest_row_says_that_it_has_nothing_is_left_out_by_readers_alone() -> None:
    removable = TableLayout("left", SCHEMA, ("key",), "newest", present="value")
    removed = rows((1, "a", None, 5, 1))
    merged = values(removable.merge([FIRST, removed], None))
    assert {line[1]: line[2] for line in merged} == {None: None, "a": None, "c": 1.0}
    description = {TABLES: described([removable])}
    assert layout_of("left", SCHEMA, description) == removable
    read = merged_rows([FIRST, removed], description, None, "left")
    assert [line[1] for line in values(read)] == ["c"]


def test_more_equal_rows_than_a_weight_can_count_are_one_line() -> None:
    rows = pa.table({"key": [1, 1], WEIGHT: pa.array([2**31 - 1, 1], pa.int32())})
    with pytest.raises(DataError, match="more equal rows come or go than 32 bits") as caught:
        added_up(rows)
    assert caught.value.code is ErrorCode.ARITHMETIC_OVERFLOW
