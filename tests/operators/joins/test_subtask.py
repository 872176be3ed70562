"""Snapshots of a join's tables: all rows or changes, what has expired, and restoring."""

import pyarrow as pa
import pytest

from laminar_core.errors import IncompatibleStateError
from laminar_core.operators.base import Snapshot, StateTable
from laminar_core.operators.joins.progress import JoinProgress
from laminar_core.operators.joins.side import times_of
from laminar_core.operators.joins.subtask import HeldRows, JoinSubtask
from laminar_core.protocol.types import CheckpointId
from laminar_core.state.chunks import MemoryBackend
from laminar_core.state.rows_layout import RowsLayout
from laminar_core.state.window_layout import TIME_TYPE
from tests.operators.joins.join_histories import context

LAYOUTS = {
    "expiring": RowsLayout(("k",), pa.schema([("k", pa.int64()), ("_expires", TIME_TYPE)])),
    "staying": RowsLayout(("k",), pa.schema([("k", pa.int64()), ("at", TIME_TYPE)])),
}


def opened() -> tuple[JoinSubtask, dict[str, HeldRows], JoinProgress]:
    held = {
        name: HeldRows(
            name,
            layout,
            lambda rows, at=layout.schema.names[1]: times_of(rows, at),
            MemoryBackend(),
        )
        for name, layout in LAYOUTS.items()
    }
    progress = JoinProgress(context(), 0)
    return JoinSubtask(context(), progress, list(held.values())), held, progress


def add(held: HeldRows, *rows: tuple[int, int]) -> None:
    schema = held.rows.layout.schema
    columns = zip(*rows, strict=True)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
    table = pa.Table.from_arrays(arrays, schema=schema)
    held.rows.add(held.rows.arranged(table, times_of(table, schema.names[1])))


def keys_of(snapshot: Snapshot) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for table in snapshot.tables:
        found.setdefault(table.name, []).extend(table.rows.column("k").to_pylist())
    return {name: sorted(keys) for name, keys in found.items()}


def test_changes_add_up_to_all_rows_and_only_tables_with_an_expiry_expire() -> None:
    subtask, held, progress = opened()
    for rows in held.values():
        add(rows, (1, 10), (2, 20))
    first = subtask.snapshot_changes(CheckpointId(1))()
    assert first.expired_us == {}
    assert keys_of(first) == {"expiring": [1, 2], "staying": [1, 2]}
    add(held["expiring"], (3, 30))
    progress.advance(11)
    held["expiring"].rows.expire(10)
    changes = subtask.snapshot_changes(CheckpointId(2))()
    assert changes.expired_us == {"expiring": 10}
    assert keys_of(changes) == {"expiring": [3]}
    assert keys_of(subtask.snapshot(CheckpointId(3))()) == {"expiring": [2, 3], "staying": [1, 2]}
    assert subtask.held_row_count == 5, "a run with two rows is rewritten when half have gone"


def test_what_is_restored_is_what_was_held_without_what_has_expired() -> None:
    subtask, held, progress = opened()
    for rows in held.values():
        add(rows, (1, 10), (2, 20))
    progress.advance(11)
    whole = subtask.snapshot(CheckpointId(1))()
    again, copies, _ = opened()
    again.restore([whole])
    assert {name: copy.row_count for name, copy in copies.items()} == {"expiring": 1, "staying": 2}
    merged = again.merge_tables("expiring", [copies["expiring"].table.schema.empty_table()], 10)
    assert [table.num_rows for table in merged] == [0]


def test_tables_of_other_columns_are_refused_by_the_name_of_the_operator() -> None:
    subtask, _, _ = opened()
    properties = subtask.snapshot(CheckpointId(1))().properties
    other = pa.table({"key_group": pa.array([0], pa.int32()), "k": pa.array([1], pa.int64())})
    with pytest.raises(IncompatibleStateError, match="operator 'join' does not fit"):
        subtask.restore([Snapshot([StateTable("staying", other)], properties)])
