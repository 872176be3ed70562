"""First rows of keys, by arrival and by event time, whatever cuts and restores."""

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from laminar_core.errors import ConfigurationError, DataError, ErrorCode, IncompatibleStateError
from laminar_core.operators.first_rows import SEEN, WAITING, FirstRows, FirstRowsFinder
from laminar_core.protocol.types import WATERMARK_END_US, CheckpointId
from tests.operators.joins.join_histories import LEFT_SCHEMA, Row, batch, context, counted
from tests.operators.one_input import ONE_INPUT_STEPS, WORKERS, OneInputHistory, as_row
from tests.sampling import drawn


def distinct(within_us: int | None = None) -> FirstRows:
    return FirstRows("first", ("k",), None if within_us is None else "t", within_us)


def first(ttl_us: int | None = None, lag_us: int = 0) -> FirstRows:
    return FirstRows("first", ("k",), "t", ttl_us, waits=True, lag_us=lag_us)


def firsts(batches: Iterable[Sequence[Row]], within_us: int | None) -> list[Row]:
    """Return the first rows, one row after the other, in the order of time within a batch."""
    until: dict[str | None, float] = {}
    found: list[Row] = []
    for rows in batches:
        for row in sorted(rows, key=lambda row: row[1] or 0):
            if row[1] > until.get(row[0], float("-inf")):
                until[row[0]] = float("inf") if within_us is None else row[1] + within_us
                found.append(row)
    return found


AT_ITS_LAST_MOMENT = [
    ("rows", 0, [("a", 0, 0), ("a", 1, 0)]),
    ("one_watermark", 0, 6),
    ("watermark", 1),
]
"""A row waits until the moment at which the first one of its key is forgotten."""


@settings(deadline=None, max_examples=drawn(40))
@given(st.none() | st.integers(1, 8), ONE_INPUT_STEPS, WORKERS)
@example(1, AT_ITS_LAST_MOMENT, 1)
def test_the_first_row_by_time_is_that_of_a_loop_over_sorted_rows(
    ttl_us: int | None, steps: list[tuple], workers: int
) -> None:
    """Goal: neither batches, nor cuts, nor the number of workers make a difference."""
    history = OneInputHistory(first(ttl_us), ("t",), workers).run(steps)
    rows = sorted(history.accepted[0], key=lambda row: (row[1], row[2]))
    wanted = firsts([rows], ttl_us)
    assert counted(history.output) == counted(as_row(row) for row in wanted)


@settings(deadline=None, max_examples=drawn(40))
@given(st.none() | st.integers(1, 8), ONE_INPUT_STEPS, WORKERS)
def test_the_first_row_that_comes_is_that_of_a_loop(
    within_us: int | None, steps: list[tuple], workers: int
) -> None:
    late_after_us = None if within_us is None else 0
    spec = distinct(within_us)
    history = OneInputHistory(spec, ("t",) if within_us else (), workers, late_after_us).run(steps)
    batches = history.batches
    if within_us is None:  # The order of arrival alone.
        batches = [[row] for rows in batches for row in rows]
    wanted = firsts(batches, within_us)
    assert counted(history.output) == counted(as_row(row) for row in wanted)


def emitted(*parts: pa.RecordBatch) -> list[int]:
    return [row["id"] for part in parts for row in part.to_pylist()]


def opened(spec: FirstRows) -> FirstRowsFinder:
    return spec.open(context(), LEFT_SCHEMA)


def test_a_row_passes_at_once_and_its_copies_do_not() -> None:
    subtask = opened(distinct())
    rows: list[Row] = [("a", 9, 1), ("b", 1, 2), ("a", 3, 3), (None, 1, 4), (None, 2, 5)]
    assert emitted(*subtask.process(batch(0, rows))) == [1, 2, 4]
    assert emitted(*subtask.process(batch(0, [("a", 1, 6), ("c", 1, 7)]))) == [7]
    assert list(subtask.on_watermark(50)) == []
    assert subtask.output_watermark(50) == 50
    assert emitted(*subtask.process(batch(0, [("a", 1, 8), ("d", 1, 9)]))) == [9]
    assert (subtask.late_row_count, subtask.held_row_count) == (0, 5)


def test_a_key_is_new_again_when_more_time_has_passed() -> None:
    subtask = opened(distinct(10))
    assert emitted(*subtask.process(batch(0, [("a", 5, 1), ("a", 15, 2), ("a", 16, 3)]))) == [1, 3]
    assert emitted(*subtask.process(batch(0, [("a", 6, 4), ("a", 26, 5), ("a", 27, 6)]))) == [6]
    list(subtask.on_watermark(20))
    assert emitted(*subtask.process(batch(0, [("b", 19, 7), ("b", 20, 8)]))) == [8]
    assert (subtask.late_row_count, subtask.expired_row_count) == (1, 2)


def test_a_first_row_by_time_waits_until_no_earlier_one_can_come() -> None:
    subtask = opened(first())
    assert emitted(*subtask.process(batch(0, [("a", 10, 1), ("b", 10, 2)]))) == []
    assert emitted(*subtask.process(batch(0, [("a", 9, 5), ("a", 9, 4), ("a", 12, 3)]))) == []
    assert emitted(*subtask.on_watermark(9)) == [], "a row at the watermark may still come"
    assert emitted(*subtask.on_watermark(11)) == [4, 2]
    assert emitted(*subtask.process(batch(0, [("a", 14, 6), ("c", 12, 7)]))) == []
    assert subtask.held_row_count == 2 + 1 + 1, "two keys, the new row, and one from before"
    assert emitted(*subtask.on_watermark(WATERMARK_END_US)) == [7]


def test_a_lag_makes_the_watermark_older() -> None:
    subtask = opened(first(lag_us=100))
    assert emitted(*subtask.process(batch(0, [("a", 10, 1)]))) == []
    assert emitted(*subtask.on_watermark(110)) == []
    assert subtask.output_watermark(110) == 10
    assert emitted(*subtask.on_watermark(111)) == [1]


@pytest.mark.parametrize("spec", [distinct(50), first(50)])
def test_the_state_does_not_exceed_its_bound(spec: FirstRows) -> None:
    """Goal: a hundred times the keys of the bound come, and the keys held stay near it."""
    subtask = opened(spec)
    for time_us in range(0, 5_000, 25):
        rows = [(f"{time_us}-{n}", time_us + n % 25, n) for n in range(100)]
        found = emitted(*subtask.process(batch(0, rows)), *subtask.on_watermark(time_us))
        assert len(found) in {0, 100}
        rows_per_us = 100 / 25
        assert subtask.held_row_count <= rows_per_us * 50 * 1.25 + 3 * 100
        if time_us % 100 == 0:
            subtask.snapshot_changes(CheckpointId(1))
    assert subtask.expired_row_count > 18_000


def test_a_time_to_live_can_change_and_state_of_other_columns_is_refused() -> None:
    subtask = opened(first(5))
    list(subtask.process(batch(0, [("a", 1, 1)])))
    list(subtask.on_watermark(3))
    snapshot = subtask.snapshot(CheckpointId(1))()
    [table] = snapshot.tables
    assert (table.name, table.rows.column(SEEN).cast("int64").to_pylist()) == (SEEN, [1])
    again = opened(first(50))
    again.restore([subtask.snapshot(CheckpointId(1))()])
    assert emitted(*again.process(batch(0, [("a", 6, 2), ("b", 9, 3)]))) == []
    assert emitted(*again.on_watermark(WATERMARK_END_US)) == [3]
    other = opened(first())
    with pytest.raises(IncompatibleStateError) as caught:
        other.restore([subtask.snapshot(CheckpointId(1))()])
    assert caught.value.code == ErrorCode.OPERATORS_CHANGED
    assert first(5).describe() == first(50).describe() == first().describe()
    assert first().describe() != distinct(5).describe()
    assert set(first().state_tables(LEFT_SCHEMA)) == {SEEN, WAITING}


def test_encoded_rows_come_as_they_are_or_plain_if_they_waited() -> None:
    schema = pa.schema([("k", pa.dictionary(pa.int32(), pa.string())), ("t", pa.int64())])
    rows = pa.record_batch(
        [pa.array(["a", "b", "a"]).dictionary_encode(), pa.array([1, 2, 0])], schema=schema
    )
    for spec in (distinct(), distinct(1)):
        [found] = spec.open(context(), schema).process(rows)
        assert found.schema.equals(spec.output_schema(schema))
    subtask = first().open(context(), schema)
    list(subtask.process(rows))
    [found] = subtask.on_watermark(WATERMARK_END_US)
    assert found.schema.equals(first().output_schema(schema))
    assert found.to_pylist() == [{"k": "a", "t": 0}, {"k": "b", "t": 2}]


@pytest.mark.parametrize(
    ("spec", "schema", "problem"),
    [
        (distinct(), LEFT_SCHEMA.remove(1), "no column 'k'"),
        (first(), LEFT_SCHEMA.remove(2), "no column 't'"),
        (first(), LEFT_SCHEMA.set(2, pa.field("t", pa.string())), "event time must"),
        (first(), LEFT_SCHEMA.append(pa.field("_expires", "i8")), "of its own"),
        (FirstRows("first", ("v", SEEN)), pa.schema([("v", "i8"), (SEEN, "i8")]), "rename the key"),
        (FirstRows("first", ("l",)), pa.schema([("l", pa.list_(pa.int8()))]), "list"),
    ],
)
def test_inputs_that_do_not_fit_are_refused_in_one_line(
    spec: FirstRows, schema: pa.Schema, problem: str
) -> None:
    with pytest.raises(ConfigurationError, match=problem) as caught:
        spec.output_schema(schema)
    assert "\n" not in str(caught.value)


def test_a_row_without_event_time_ends_the_job_in_words() -> None:
    with pytest.raises(DataError, match="no event time in 't'"):
        list(opened(first()).process(batch(0, [("a", None, 1)])))
