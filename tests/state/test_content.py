"""Equal contents are equal rows, equally often: no more and no less."""

import decimal
import random

import pyarrow as pa
import pytest

from laminar_core.state.content import Content, content_of

ROWS = [
    {"key": "a", "n": 1, "f": 0.5, "s": {"x": 1, "y": None}, "l": [1, 2], "b": b"\0\1"},
    {"key": "b", "n": 2, "f": float("nan"), "s": {"x": None, "y": "q"}, "l": [], "b": None},
    {"key": None, "n": None, "f": None, "s": None, "l": None, "b": b""},
    {"key": "b", "n": 2, "f": -1.0, "s": {"x": 2, "y": "q"}, "l": [None], "b": b"z"},
]
SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("n", pa.int64()),
        ("f", pa.float64()),
        ("s", pa.struct([("x", pa.int64()), ("y", pa.string())])),
        ("l", pa.list_(pa.int64())),
        ("b", pa.binary()),
    ]
)


def table(rows) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def test_neither_order_nor_cuts_matter() -> None:
    rows = [*ROWS, *ROWS]
    whole = content_of([table(rows)])
    dice = random.Random(3)
    for _ in range(20):
        dice.shuffle(rows)
        cut = dice.randrange(len(rows))
        assert content_of([table(rows[:cut]), table(rows[cut:])]) == whole
        assert content_of([table(rows[:cut])]) + content_of([table(rows[cut:])]) == whole
    assert content_of([table(rows).select(["b", "l", "s", "f", "n", "key"])]) == whole


OTHER = {"key": "z", "n": 3, "f": 0.25, "s": {"x": 1, "y": ""}, "l": [2, 1], "b": b"\0\2"}


@pytest.mark.parametrize("column", OTHER)
@pytest.mark.parametrize("row", range(4))
def test_every_value_matters(column: str, row: int) -> None:
    changed = [dict(one) for one in ROWS]
    changed[row][column] = OTHER[column]
    assert content_of([table(changed)]) != content_of([table(ROWS)])


def test_how_often_a_row_is_there_matters() -> None:
    assert content_of([table(ROWS + ROWS[:1])]) != content_of([table(ROWS + ROWS[1:2])])
    assert content_of([table(ROWS)]) != content_of([table(ROWS + ROWS)])


def test_values_of_two_columns_are_not_mixed_up() -> None:
    one = pa.table({"a": [1, 2], "b": [2, 1]})
    assert content_of([one]) != content_of([one.rename_columns(["b", "a"]).slice(0, 1), one[1:]])
    assert content_of([pa.table({"a": [1]})]) != content_of([pa.table({"b": [1]})])


def test_nothing_is_nothing() -> None:
    assert content_of([]) == content_of([table([])]) == Content()
    assert str(content_of([])) == "0 rows, digest 0000000000000000"


def test_types_of_keys_are_hashed_as_such() -> None:
    amounts = pa.table({"d": pa.array([decimal.Decimal("1.20")], pa.decimal128(9, 2))})
    other = pa.table({"d": pa.array([decimal.Decimal("1.21")], pa.decimal128(9, 2))})
    assert content_of([amounts]) != content_of([other])


def test_the_same_rows_in_another_table_are_another_content() -> None:
    table = pa.table({"n": [1, 2]})
    contents = [content_of([table], name) for name in ("", "left", "right")]
    assert len({content.digest for content in contents}) == 3
    assert {content.row_count for content in contents} == {2}
