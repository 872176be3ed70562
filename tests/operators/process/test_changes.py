"""A cut has the last version of each changed row, and nothing that is void."""

import numpy as np
import pyarrow as pa

from laminar_core.operators.process.changes import ChangeLog, least_of_all, newest_changes
from laminar_core.operators.process.timers import timer_layout

LAYOUT = timer_layout("event-timers", [pa.field("k", pa.string())])


def rows(*changes: tuple[str, int, bool | None]) -> pa.Table:
    columns = [pa.array(column) for column in zip(*changes, strict=True)]
    schema = LAYOUT.schema.remove(0)
    return pa.table([c.cast(f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


def test_the_last_change_of_each_row_counts() -> None:
    found = newest_changes(
        [rows(("a", 1, True), ("b", 1, True)), rows(("a", 1, None))],
        LAYOUT.keys,
        LAYOUT.schema.remove(0),
    )
    assert sorted(found.column("k").to_pylist()) == ["a", "b"]
    assert found.column("_set").null_count == 1


def test_a_single_change_keeps_no_other_row_in_memory() -> None:
    many = pa.table({"key": np.arange(100_000), "value": np.arange(100_000)})
    found = newest_changes([many.slice(7, 1)], ["key"], many.schema)
    assert found.to_pylist() == [{"key": 7, "value": 7}]
    assert found.get_total_buffer_size() < 1_000


def test_before_the_first_cut_all_is_changed_and_then_only_what_came_since() -> None:
    log = ChangeLog(LAYOUT)
    log.add(rows(("a", 1, True)), None)
    assert log.take(None) is None
    log.add(rows(("b", 1, True), ("c", 9, True)), None)
    changes = log.take(5)
    assert changes is not None
    stored = changes.stored_table(8)
    assert stored.column("k").to_pylist() == ["c"], "what expires at 5 or before is void"
    assert stored.schema.equals(LAYOUT.schema)


def test_the_least_is_unknown_as_long_as_one_is() -> None:
    assert least_of_all([3, 2]) == 2
    assert least_of_all([3, None]) is None
    assert least_of_all([]) is None


def test_the_last_change_counts_whatever_columns_are_called() -> None:
    table = pa.table({"row": [1, 2, 1], "value": [1, 2, 3]})
    found = newest_changes([table], ["row"], table.schema)
    assert sorted(found.column("value").to_pylist()) == [2, 3]
