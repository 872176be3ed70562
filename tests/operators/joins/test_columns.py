"""The names, the types and the order of a join's result."""

import pyarrow as pa
import pytest

from laminar_core.errors import ConfigurationError
from laminar_core.operators.joins.columns import JoinedColumns
from laminar_core.operators.joins.side import JoinSide

WORD = pa.dictionary(pa.int8(), pa.string())
LEFT = pa.schema([("v", pa.int64()), ("id", pa.int64()), ("s", WORD), ("t", pa.int64())])
RIGHT = pa.schema([("t", pa.int64()), ("s", pa.string()), ("v", pa.int32()), ("seller", "i8")])
SIDES = (JoinSide("left", ("id", "s"), "t"), JoinSide("right", ("seller", "s"), "t"))


def test_left_columns_come_first_and_a_shared_key_comes_once() -> None:
    columns = JoinedColumns(SIDES, (LEFT, RIGHT), "_right")
    assert columns.schema.names == ["v", "id", "s", "t", "t_right", "v_right", "seller"]
    assert columns.schema.field("s").type == pa.string()
    assert columns.schema.field("v_right").type == pa.int32()
    assert [columns.name_of(side, "t") for side in (0, 1)] == ["t", "t_right"]
    assert [columns.name_of(side, "s") for side in (0, 1)] == ["s", "s"]


def test_a_row_without_partner_has_its_own_keys() -> None:
    columns = JoinedColumns(SIDES, (LEFT, RIGHT), "_2")
    rows = pa.table([[5], ["x"], [7], [9]], schema=RIGHT)
    assert columns.unpaired(1, rows).to_pylist() == [
        {"v": None, "id": None, "s": "x", "t": None, "t_2": 5, "v_2": 7, "seller": 9}
    ]


def test_two_columns_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="'v_t'; give the join another suffix"):
        JoinedColumns(SIDES, (LEFT.append(pa.field("v_t", "i8")), RIGHT), "_t")
