"""One value per key that expires: what is late, and what a snapshot holds of it."""

import pyarrow as pa
import pytest

from laminar_core.errors import ConfigurationError
from laminar_core.operators.base import Snapshot
from laminar_core.operators.kept_values import Kept, KeptValues
from laminar_core.operators.process.keys import Keys
from laminar_core.protocol.types import WATERMARK_END_US
from tests.operators.joins.join_histories import LEFT_SCHEMA, Row, batch, context

TTL_US = 10


def opened(ttl_us: int | None = TTL_US, late_after_us: int = 0, lag_us: int = 0) -> KeptValues:
    time = None if ttl_us is None else "t"
    kept = Kept("value", pa.int64(), ("k",), time, ttl_us, lag_us, late_after_us)
    return KeptValues(kept, context(), kept.layout(LEFT_SCHEMA))


def put(state: KeptValues, rows: list[Row]) -> int:
    """Note the number of each row that is in time; return how many these are."""
    accepted, times_us = state.in_time(batch(0, rows))
    keys = Keys.of_rows(accepted, ["k"], times_us)
    state.values.put(keys, accepted.column("id").take(pa.array(keys.of_row)))
    return accepted.num_rows


def stored(snapshot: Snapshot) -> list[tuple[str, int]]:
    rows = [row for table in snapshot.tables for row in table.rows.to_pylist()]
    return sorted((row["k"], row["value"]) for row in rows)


def test_rows_behind_the_watermark_are_late_only_if_values_expire() -> None:
    state = opened()
    assert state.advance(20) == 19
    assert put(state, [("a", 19, 1), ("b", 20, 2)]) == 1
    assert (state.late_row_count, state.held_row_count) == (1, 1)
    assert state.advance(15) is None
    for_ever = opened(None)
    for_ever.advance(20)
    assert put(for_ever, [("a", 1, 1)]) == 1


def test_rows_may_all_be_late_whatever_their_dictionaries_have() -> None:
    state = opened()
    state.advance(20)
    day = pa.array([1], pa.date32()).dictionary_encode()
    rows = batch(0, [("a", 1, 1)]).append_column("day", day)
    accepted, _ = state.in_time(rows)
    assert (accepted.num_rows, accepted.schema) == (0, rows.schema)


def test_a_lag_and_a_tolerance_make_rows_late_later() -> None:
    for options in ({"lag_us": 5}, {"late_after_us": 5}):
        state = opened(**options)
        state.advance(20)
        assert put(state, [("a", 14, 1), ("b", 15, 2)]) == 1
    assert opened(lag_us=5).output_watermark(20) == 15


def test_values_that_no_later_row_can_see_are_dropped_and_counted() -> None:
    state = opened()
    put(state, [("a", 1, 1), ("b", 9, 2)])
    state.advance(12)
    assert (state.held_row_count, state.expired_row_count) == (1, 1)
    snapshot = state.pending(changes=False)()
    assert stored(snapshot) == [("b", 2)]
    assert snapshot.expired_us == {"value": 11}
    state.advance(WATERMARK_END_US)
    assert state.held_row_count == 1, "the end of the input needs no room"


def test_a_snapshot_of_changes_has_what_changed_and_is_restored_with_the_counts() -> None:
    state = opened()
    put(state, [("a", 1, 1), ("b", 2, 2)])
    first = state.pending(changes=True)()
    tables = list(first.tables)
    put(state, [("b", 3, 5)])
    state.advance(3)
    put(state, [("c", 2, 9)])
    second = state.pending(changes=True)()
    changed = list(second.tables)
    assert [table.rows.num_rows for table in changed] == [1]
    chain = Snapshot([*tables, *changed], second.properties, expired_us=second.expired_us)
    restored = opened()
    restored.restore([chain])
    assert stored(restored.pending(changes=False)()) == [("a", 1), ("b", 5)]
    assert restored.late_row_count == 1
    [merged] = restored.merge_tables("value", [table.rows for table in tables + changed], 11)
    assert merged.column("k").to_pylist() == ["b"]


def test_columns_that_cannot_be_kept_are_refused() -> None:
    kept = Kept("value", pa.int64(), ("k", "value"))
    with pytest.raises(ConfigurationError, match="rename the key"):
        kept.check(pa.schema([("k", pa.string()), ("value", pa.int64())]))
    with pytest.raises(ConfigurationError, match="no column 't'"):
        Kept("value", pa.int64(), ("k",), "t").check(LEFT_SCHEMA.remove(2))


def test_a_key_may_be_called_like_a_column_of_ours() -> None:
    kept = Kept("value", pa.int64(), ("place in the batch",), "t", TTL_US, 0, 0)
    rows = batch(0, [("a", 19, 1), ("b", 20, 2)])
    rows = rows.rename_columns(["place in the batch" if n == "k" else n for n in rows.schema.names])
    state = KeptValues(kept, context(), kept.layout(rows.schema))
    state.advance(20)
    accepted, times_us = state.in_time(rows)
    assert accepted.column("place in the batch").to_pylist() == ["b"]
    assert times_us.tolist() == [20]
