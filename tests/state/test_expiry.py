"""Rows expire by the column of their table, and a row without a time stays."""

import pyarrow as pa
import pytest

from laminar_core.state.expiry import EXPIRES, expiry_column, newest_expiry_us, unexpired
from laminar_core.state.window_layout import TIME_TYPE, WINDOW_START


def rows(*times_us: int | None, column: str = EXPIRES, kind: pa.DataType = TIME_TYPE) -> pa.Table:
    times = pa.array(times_us, pa.int64()).cast(kind)
    return pa.table({"n": list(range(len(times_us))), column: times})


def left(table: pa.Table) -> list[int]:
    return table.column("n").to_pylist()


@pytest.mark.parametrize("kind", [TIME_TYPE, pa.int64()])
def test_rows_at_the_mark_have_expired_and_those_after_it_have_not(kind: pa.DataType) -> None:
    table = rows(4, 5, None, 6, kind=kind)
    assert left(unexpired("left", table, 5)) == [2, 3]
    assert unexpired("left", table, 3) is table
    assert unexpired("left", table, None) is table
    assert left(unexpired("left", table, 2**63 - 1)) == [2]


def test_an_only_table_expires_by_its_windows_and_a_named_one_does_not() -> None:
    """Columns of users may have these names: a table with a name can hold results of windows."""
    windows = rows(4, 6, column=WINDOW_START)
    assert left(unexpired("", windows, 5)) == [1]
    assert left(unexpired("left", windows, 5)) == [0, 1]
    assert left(unexpired("", rows(4, 6), 5)) == [0, 1]
    assert expiry_column("left", windows.schema) is expiry_column("", rows().schema) is None


@pytest.mark.parametrize("kind", [pa.string(), pa.float64(), pa.timestamp("ns")])
def test_a_column_of_another_type_is_a_key_that_a_user_has_called_so(kind: pa.DataType) -> None:
    for name, column in (("", WINDOW_START), ("totals", EXPIRES)):
        keys = pa.table({column: pa.nulls(2, kind)})
        assert expiry_column(name, keys.schema) is None
        assert newest_expiry_us(name, keys) is None
        assert unexpired(name, keys, 5) is keys


@pytest.mark.parametrize(
    ("times_us", "newest_us"), [((3, 9, -1), 9), ((), None), ((3, None), None), ((-7,), -7)]
)
def test_a_table_is_void_only_when_all_its_rows_are(times_us, newest_us) -> None:
    assert newest_expiry_us("left", rows(*times_us)) == newest_us
    assert newest_expiry_us("", rows(*times_us)) is None
