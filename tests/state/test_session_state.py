"""The open sessions of a subtask: what fires, what is written, and how much is kept."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from laminar_core.aggregates.accumulators import ROW_COUNT
from laminar_core.state import session_state
from laminar_core.state.changed_keys import ChangedKeys
from laminar_core.state.session_state import EMITTED, SessionLayout, SessionState
from laminar_core.state.window_layout import TIME_TYPE
from tests.state.shelves import stored

GAP_US = 10
SCHEMA = pa.schema(
    [
        ("user", pa.int64()),
        ("window_start", TIME_TYPE),
        ("_expires", TIME_TYPE),
        (ROW_COUNT.name, pa.int64()),
    ]
)
LAYOUT = SessionLayout(("user",), (ROW_COUNT,), SCHEMA, GAP_US, 0)


def pieces(users: list[int] | np.ndarray, times: list[int] | np.ndarray) -> pa.Table:
    starts = np.asarray(times, np.int64)
    columns = [
        pa.array(np.asarray(users, np.int64)),
        pa.array(starts).cast(TIME_TYPE),
        pa.array(starts + GAP_US).cast(TIME_TYPE),
        pa.array(np.ones(len(starts), np.int64)),
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def plain(table: pa.Table) -> list[tuple[int, int, int, int]]:
    columns = [table.column(name).cast(pa.int64()).to_pylist() for name in SCHEMA.names]
    return sorted(zip(*columns, strict=True))


def fired(state: SessionState, watermark_us: int) -> list[tuple[int, int, int, int]]:
    return [row for table in state.advance(watermark_us) for row in plain(table)]


def test_a_session_fires_once_the_watermark_is_past_its_end() -> None:
    state = SessionState(LAYOUT)
    state.add(pieces([1, 1, 2], [0, 10, 3]))
    assert fired(state, 13) == []
    assert fired(state, 14) == [(2, 3, 13, 1)]
    assert fired(state, 20) == []
    state.add(pieces([1], [20]))
    assert fired(state, 31) == [(1, 0, 30, 3)]
    assert fired(state, 31) == []
    assert state.row_count == 0


def test_the_watermark_is_held_back_by_a_session_that_ends_with_it() -> None:
    state = SessionState(LAYOUT)
    assert state.output_watermark(10) == 10
    state.add(pieces([1], [0]))
    assert fired(state, 10) == []
    assert state.output_watermark(10) == 9
    assert fired(state, 11) == [(1, 0, 10, 1)]
    assert state.output_watermark(11) == 11


def test_rows_behind_the_watermark_are_dropped_and_counted() -> None:
    state = SessionState(LAYOUT)
    state.add(pieces([1], [95]))
    assert fired(state, 100) == []
    state.add(pieces([1, 1, 1], [99, 100, 98]))
    assert state.late_row_count == 2
    assert fired(state, 111) == [(1, 95, 110, 2)]


def test_changes_are_whole_sessions_and_only_those_that_changed() -> None:
    state = SessionState(LAYOUT)
    state.add(pieces([1, 2, 3], [0, 0, 0]))
    assert stored(state.take_changes()).num_rows == 3
    state.add(pieces([2], [5]))
    pinned = state.take_changes()
    state.add(pieces([2], [9]))
    assert fired(state, 11) == [(1, 0, 10, 1), (3, 0, 10, 1)]
    assert plain(stored(pinned).drop_columns(["key_group"])) == [(2, 0, 15, 2)]
    assert plain(stored(state.pin()).drop_columns(["key_group"])) == [(2, 0, 19, 3)]
    assert stored(SessionState(LAYOUT).take_changes()).num_rows == 0


def test_sessions_that_are_put_back_are_written_if_their_lists_differ() -> None:
    items = pa.struct([("n", pa.int64())])
    schema = SCHEMA.append(pa.field(EMITTED, pa.list_(items)))
    state = SessionState(replace(LAYOUT, schema=schema), changed=ChangedKeys(["user"]))

    def add(users: list[int], times: list[int]) -> None:
        lists = pa.array([[{"n": time}] for time in times], pa.list_(items))
        state.add(pieces(users, times).append_column(schema.field(EMITTED), lists))

    add([1, 2, 1], [0, 0, 5])
    (open_sessions,) = state.take_changed()
    found = {row["user"]: row[EMITTED] for row in open_sessions.table.to_pylist()}
    assert found == {1: [{"n": 0}, {"n": 5}], 2: [{"n": 0}]}
    state.put_back(open_sessions, pa.array([[]] * 2, pa.list_(items)), np.zeros(2, np.bool_))
    assert stored(state.take_changes()).num_rows == 2, "they came since the last cut"
    assert list(state.take_changed()) == []
    add([2], [3])
    (of_two,) = state.take_changed()
    state.put_back(of_two, pa.array([[{"n": 9}]], pa.list_(items)), np.ones(1, np.bool_))
    (row,) = stored(state.take_changes()).to_pylist()
    assert (row["user"], row["count(*)"], row[EMITTED]) == (2, 2, [{"n": 9}])


def test_keys_of_one_hash_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        session_state, "hash_columns", lambda _, rows: np.zeros(rows, dtype=np.uint64)
    )
    state = SessionState(LAYOUT)
    state.add(pieces([1, 2, 1], [0, 1, 2]))
    state.add(pieces([2, 3], [5, 40]))
    assert fired(state, 16) == [(1, 0, 12, 2), (2, 1, 15, 2)]
    assert fired(state, 51) == [(3, 40, 50, 1)]


def test_state_is_bounded_by_what_is_open() -> None:
    """A hundred times as many rows as are open at once come through."""
    state, users, most, count = SessionState(LAYOUT), 500, 0, 0
    for step in range(500):
        now_us = step * GAP_US // 2
        mine = (np.arange(100) + 100 * step) % users  # Each comes every 25, so each row ends one.
        state.add(pieces(mine, np.full(100, now_us)))
        count += len(fired(state, now_us))
        most = max(most, state.row_count)
    assert count > 400 * 100
    assert most <= 4 * 300, "open at once are the rows of at most three steps"
