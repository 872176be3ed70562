"""The tables that a restored join starts from, and those that it refuses."""

import pyarrow as pa
import pytest

from laminar_core.errors import IncompatibleStateError
from laminar_core.operators.base import Snapshot, StateTable
from laminar_core.operators.joins.restoring import gathered, require_same_columns
from laminar_core.state.expiry import EXPIRES
from laminar_core.state.window_layout import KEY_GROUP
from tests.operators.joins.join_histories import context

SCHEMA = pa.schema([(KEY_GROUP, pa.int32()), ("k", pa.int64()), (EXPIRES, pa.int64())])


def table(name: str, *rows: tuple[int, int, int]) -> StateTable:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)]
    return StateTable(name, pa.Table.from_arrays(arrays, schema=SCHEMA))


def test_rows_are_owned_unexpired_and_in_the_order_of_their_cuts() -> None:
    first = Snapshot(
        [
            table("left", (1, 10, 5), (4, 11, 9)),
            table("right", (5, 12, 3)),
            table("left", (4, 13, 9)),
        ],
        expired_us={"left": 5},
    )
    second = Snapshot([table("left", (6, 14, 1))])
    found = gathered([first, second], context(1, 2))
    rows = {name: [one.column("k").to_pylist() for one in some] for name, some in found.items()}
    assert rows == {"left": [[11], [13], [14]], "right": [[12]]}
    assert gathered([first], context(0, 2))["left"][0].num_rows == 0


def test_other_columns_are_refused_with_a_way_out() -> None:
    tables = [table("left", (1, 10, 5)).rows]
    require_same_columns(tables, SCHEMA, "join")
    with pytest.raises(IncompatibleStateError, match=r"from key_group, k, _expires.*--reset-state"):
        require_same_columns(tables, SCHEMA.remove(1), "join")
