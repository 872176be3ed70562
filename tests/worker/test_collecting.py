"""Collected batches come out in their order, and keep to the bounds."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_core.host.clock import ManualClock
from laminar_core.worker.collecting import RowCollector

RECEIVERS, FRAME_ROWS, BYTES_MAX, MS_MAX = 3, 4, 100, 100.0
ROWS_WANTED = RECEIVERS * FRAME_ROWS


def rows(first: int, count: int) -> pa.RecordBatch:
    return pa.record_batch({"n": range(first, first + count)})


def numbers(batches) -> list[int]:
    return [n for batch in batches for n in batch.column("n").to_pylist()]


def collector(clock: ManualClock | None = None) -> RowCollector:
    return RowCollector(
        RECEIVERS,
        clock or ManualClock(),
        frame_rows=FRAME_ROWS,
        bytes_max=BYTES_MAX,
        ms_max=MS_MAX,
    )


@given(st.lists(st.tuples(st.integers(1, 70), st.integers(0, 60))))
def test_rows_leave_in_order_before_there_are_too_many_of_them(steps) -> None:
    """Method: batches of any size and distance, taken out as ``EdgeOutput`` does it."""
    clock = ManualClock()
    collected, out, sent = collector(clock), [], 0
    for count, ms in steps:
        batch = rows(sent, count)
        sent += count
        if not (collected.is_small(batch) and collected.has_room_for(batch)):
            out += collected.take()
        if not collected.is_small(batch):
            out.append(batch)
            continue
        collected.add(batch)
        assert collected.row_count < 2 * ROWS_WANTED
        assert collected.row_count * 8 <= BYTES_MAX
        if collected.is_due:
            (joined,) = collected.take()
            out.append(joined)
        clock.wait_ms(ms)
        assert collected.row_count < ROWS_WANTED
    assert numbers([*out, *collected.take()]) == list(range(sent))
    assert collected.row_count == 0
    assert not collected.take()


def test_rows_are_due_after_a_time_that_counts_from_the_first_of_them() -> None:
    clock = ManualClock()
    collected = collector(clock)
    for _ in range(2):
        collected.add(rows(0, 1))
        clock.wait_ms(MS_MAX / 2)
        collected.add(rows(1, 1))
        assert not collected.is_due
        clock.wait_ms(MS_MAX / 2)
        assert collected.is_due
        collected.take()


def test_it_knows_whether_it_grew_since_it_was_asked() -> None:
    collected = collector()
    collected.add(rows(0, 1))
    assert [collected.grew(), collected.grew()] == [True, False]


def test_a_single_batch_is_not_copied() -> None:
    collected, batch = collector(), rows(0, 3)
    collected.add(batch)
    assert collected.take()[0] is batch


def test_dictionaries_that_do_not_fit_together_are_left_apart() -> None:
    """Goal: one byte names 127 values, and these batches have 200 together."""
    collected = RowCollector(1_000, ManualClock())
    index = pa.array([0], pa.int8())
    batches = [
        pa.record_batch({"key": pa.DictionaryArray.from_arrays(index, [f"key {n}"])})
        for n in range(200)
    ]
    for batch in batches:
        collected.add(batch)
    assert collected.take() == batches


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(
    "values",
    [
        pa.array([np.float16(1.5), np.float16(2)], pa.float16()),
        pa.array([{"a": 1}, {"a": 2}]),
        pa.uuid().wrap_array(pa.array([b"a" * 16, b"b" * 16], pa.binary(16))),
    ],
    ids=["half floats", "structs", "identifiers"],
)
def test_dictionaries_that_pyarrow_cannot_join_are_left_apart(
    values: pa.Array, *, nested: bool
) -> None:
    collected = RowCollector(1_000, ManualClock())
    for at in range(2):
        column = pa.DictionaryArray.from_arrays(pa.array([0]), values.slice(at, 1))
        column = pa.StructArray.from_arrays([column], ["k"]) if nested else column
        collected.add(pa.record_batch({"k": column}))
    found = [row["k"] for batch in collected.take() for row in batch.to_pylist()]
    assert [row["k"] if nested else row for row in found] == values.to_pylist()
