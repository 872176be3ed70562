"""Offset, progress and end of a split are three things; older tables had one number for all."""

import numpy as np
import pyarrow as pa
import pytest

from laminar_core.state.splits import (
    SPLIT,
    at_rows,
    current,
    in_reading_order,
    is_table_of_splits,
    missing_columns,
    numbered_splits,
    row_offsets,
    rows_read,
    rows_total,
    split_columns,
    split_table,
    unread,
)

TOPIC = split_columns(("topic_id", pa.string()))


def topic(*rows: dict) -> pa.Table:
    """Splits of a source whose offsets have gaps."""
    common = {"topic_id": "x1"}
    return split_table(
        [{"split_id": n, "split": f"t/{n}", **common, **row} for n, row in enumerate(rows)], TOPIC
    )


def old(**changes: list) -> pa.Table:
    """A table as checkpoints had it when offsets counted rows."""
    columns = {
        "split_id": [4, 2],
        "path": ["a.parquet", "b.parquet"],
        "row_count": pa.array([9, None], pa.int64()),
        "next_row": [9, 3],
    }
    return pa.table(columns | changes)


def test_what_a_row_leaves_out_is_that_of_an_unread_split() -> None:
    (row,) = topic({"offset": "1287"}).to_pylist()
    assert row == {
        "split_id": 0,
        "split": "t/0",
        "offset": "1287",
        "rows_read": 0,
        "rows_total": None,
        "done": False,
        "newest_us": None,
        "topic_id": "x1",
    }


def test_progress_is_counted_apart_from_offsets_and_from_the_end() -> None:
    splits = topic(
        {"offset": "13", "rows_read": 6, "rows_total": 6, "done": True},
        {"offset": "900", "rows_read": 2, "rows_total": 7},
    )
    assert (rows_read(splits), rows_total(splits), unread(splits)) == (8, 13, [False, True])


def test_the_rows_in_all_are_known_only_if_those_of_every_split_are() -> None:
    assert rows_total(topic({"offset": "0", "rows_total": 6}, {"offset": "0"})) is None
    assert (rows_read(topic()), rows_total(topic())) == (0, 0)


def test_a_split_whose_rows_are_all_read_may_still_get_more() -> None:
    assert unread(topic({"offset": "8", "rows_read": 6, "rows_total": 6})) == [True]


def test_numbered_splits_are_at_their_first_row_and_empty_ones_at_their_end() -> None:
    own = pa.table({"path": ["a", "b", "c"]})
    splits = numbered_splits(["x", "y", "z"], [5, 0, None], own)
    assert splits.schema == split_columns(("path", pa.string()))
    assert splits.column("split_id").to_pylist() == [0, 1, 2]
    assert splits.column("offset").to_pylist() == ["0", "0", "0"]
    assert splits.column("done").to_pylist() == [False, True, False]


def test_a_position_in_rows_is_offset_and_progress_and_tells_the_end() -> None:
    splits = at_rows(numbered_splits(["x", "y"], [5, None]), np.array([5, 7]))
    assert splits.column("offset").to_pylist() == ["5", "7"]
    assert splits.column("done").to_pylist() == [True, False]
    assert row_offsets(splits).tolist() == [5, 7]


def test_a_position_does_not_follow_the_array_that_it_was_made_of() -> None:
    rows = np.array([1, 2])
    splits = at_rows(numbered_splits(["x", "y"], [5, 5]), rows)
    rows += 1
    row_offsets(splits)[0] = 9
    assert row_offsets(splits).tolist() == [1, 2]


def test_splits_are_read_in_the_order_of_their_discovery() -> None:
    assert in_reading_order(current(old())).column("split_id").to_pylist() == [2, 4]


class TestOldTables:
    def test_the_number_of_rows_was_offset_progress_and_end(self) -> None:
        assert current(old()).to_pylist() == [
            {
                "split_id": 4,
                "split": "4",
                "offset": "9",
                "rows_read": 9,
                "rows_total": 9,
                "done": True,
                "newest_us": None,
                "path": "a.parquet",
            },
            {
                "split_id": 2,
                "split": "2",
                "offset": "3",
                "rows_read": 3,
                "rows_total": None,
                "done": False,
                "newest_us": None,
                "path": "b.parquet",
            },
        ]

    def test_they_have_the_columns_of_a_source_of_today(self) -> None:
        fresh = numbered_splits(["x"], [1], pa.table({"path": ["a"]}))
        assert current(old()).schema == fresh.schema
        assert pa.concat_tables([current(old()), fresh]).num_rows == 3

    def test_without_rows_too(self) -> None:
        assert current(old().slice(0, 0)).num_rows == 0

    def test_what_is_current_stays_as_it_is(self) -> None:
        assert current(current(old())) == current(old())
        assert current(topic({"offset": "3"})) == topic({"offset": "3"})

    @pytest.mark.parametrize("name", ["split_id", "next_row", "row_count"])
    def test_another_table_stays_as_it_is(self, name: str) -> None:
        table = old().drop_columns([name])
        assert current(table) == table
        assert not is_table_of_splits(table.schema)

    def test_both_are_recognised(self) -> None:
        assert is_table_of_splits(old().schema)
        assert is_table_of_splits(TOPIC)


def test_missing_columns_are_named_with_the_type_that_they_should_have() -> None:
    assert missing_columns(topic()) == []
    assert "offset (string)" in missing_columns(old())
    numbers = topic({"offset": "3"}).set_column(2, "offset", pa.array([3]))
    assert missing_columns(numbers) == ["offset (string)"]
    assert len(missing_columns(pa.table({}))) == len(SPLIT)
