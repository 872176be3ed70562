"""The rows of one input: their times, and those that cannot have a partner."""

import pyarrow as pa

from laminar_core.operators.joins.side import JoinSide, read_rows, split_keyless
from laminar_core.state.expiry import EXPIRES
from laminar_core.state.window_layout import TIME_TYPE

SIDE = JoinSide("left", ("k", "n"), "t")
SCHEMA = pa.schema(
    [
        ("v", pa.dictionary(pa.int8(), pa.string())),
        ("t", pa.timestamp("ms")),
        ("k", pa.string()),
        ("n", pa.int64()),
    ]
)


def rows_of(*rows: tuple) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)]
    return pa.record_batch(arrays, schema=SCHEMA)


def test_rows_without_time_and_rows_without_key_are_told_apart() -> None:
    batch = rows_of(("x", 1, "a", 1), ("y", None, None, 2), ("z", 3, "a", None), ("x", 4, "b", 4))
    events, timeless = read_rows(batch, SIDE)
    assert timeless.column("v").to_pylist() == ["y"]
    known, keyless = split_keyless(events, SIDE)
    assert keyless.rows.column("v").to_pylist() == ["z"]
    assert known.rows.column("v").to_pylist() == ["x", "x"]
    assert known.times_us.tolist() == [1_000, 4_000]


def test_keys_come_first_without_dictionaries_and_rows_say_when_they_expire() -> None:
    events, _ = read_rows(rows_of(("x", 1, "a", 1)), SIDE)
    kept = events.expiring_after(500)
    assert kept.schema.equals(SIDE.layout(SCHEMA).schema)
    assert kept.schema.names == ["k", "n", "v", "t", EXPIRES]
    assert kept.schema.field("v").type == pa.string()
    assert kept.column(EXPIRES)[0] == pa.scalar(1_500, TIME_TYPE)


def test_a_key_whose_dictionary_has_a_null_is_no_key() -> None:
    keys = pa.DictionaryArray.from_arrays([0, 1], ["a", None])
    batch = rows_of(("x", 1, "a", 1), ("y", 2, "a", 2)).set_column(2, "k", keys)
    events, _ = read_rows(batch, SIDE)
    known, keyless = split_keyless(events, SIDE)
    assert known.rows.column("v").to_pylist() == ["x"]
    assert keyless.rows.column("v").to_pylist() == ["y"]
