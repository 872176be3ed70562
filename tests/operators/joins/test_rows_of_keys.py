"""All rows of some keys: each once, with its weight, without what has expired."""

import numpy as np
import pyarrow as pa
import pytest

from laminar_core.operators.joins.rows_of_keys import rows_of_keys
from laminar_core.operators.process.keys import Keys
from laminar_core.operators.weights import WEIGHT, WEIGHT_FIELD
from laminar_core.state.arrangement import Arrangement
from laminar_core.state.expiry import EXPIRES
from laminar_core.state.rows_layout import RowsLayout
from laminar_core.state.window_layout import TIME_TYPE

LAYOUT = RowsLayout(
    ("k",), pa.schema([("k", pa.string()), ("v", pa.int64()), (EXPIRES, TIME_TYPE), WEIGHT_FIELD])
)


@pytest.mark.parametrize("null_is_key", [False, True])
def test_rows_of_keys_are_added_up_and_what_has_expired_is_gone(*, null_is_key: bool) -> None:
    held = Arrangement(LAYOUT)
    for rows in (
        [("a", 1, 9, 2), (None, 4, 9, 1), ("b", 2, 9, 1), ("c", 3, 9, 1)],
        [("a", 1, 9, -1), ("a", 5, 4, 1), ("b", 2, 9, -1), ("a", 6, 9, -1)],
    ):
        columns = [pa.array(column) for column in zip(*rows, strict=True)]
        table = pa.table(columns, names=LAYOUT.schema.names).cast(LAYOUT.schema)
        held.add(held.arranged(table, table.column(EXPIRES).cast(pa.int64()).to_numpy()))
    asked = pa.record_batch({"k": ["x", "a", None, "b"]})
    keys = Keys.of_rows(asked, ["k"], np.zeros(4, np.int64))
    found = rows_of_keys(held, keys, 4, null_is_key=null_is_key)
    values = found.table.column("v").to_pylist()
    seen = sorted(zip(found.numbers.tolist(), values, found.weights.tolist(), strict=True))
    assert seen == [(1, 1, 1), (1, 6, -1), *([(2, 4, 1)] if null_is_key else [])]
    assert found.per_key(4).tolist() == [0, 0, int(null_is_key), 0]
    assert found.table.column_names == ["k", "v", EXPIRES, WEIGHT]
    nothing = rows_of_keys(held, Keys.of_rows(asked.slice(0, 1), ["k"], np.zeros(1)), None)
    assert (nothing.table.num_rows, len(nothing.numbers)) == (0, 0)
