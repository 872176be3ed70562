"""The as-of join against a loop over sorted rows, whatever cuts and restores."""

import random
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_core.errors import ConfigurationError, ErrorCode, IncompatibleStateError
from laminar_core.operators.base import Snapshot
from laminar_core.operators.joins.as_of import NEWEST, AsOfJoin
from laminar_core.operators.joins.side import JoinSide
from laminar_core.operators.joins.waiting import AsOfHow
from laminar_core.protocol.types import WATERMARK_END_US, CheckpointId
from tests.operators.joins.join_histories import (
    HISTORIES,
    LEFT_SCHEMA,
    RIGHT_SCHEMA,
    History,
    Row,
    batch,
    context,
    counted,
    emitted,
    joined,
)
from tests.sampling import drawn

LEFT, RIGHT = JoinSide("left", ("k",), "t"), JoinSide("right", ("key",), "t")


def join(distance_us: int | None = None, how: AsOfHow = "left") -> AsOfJoin:
    return AsOfJoin("join", LEFT, RIGHT, distance_us, how)


def partner_of(spec: AsOfJoin, mine: Row, right: Sequence[Row]) -> Row | None:
    key, time_us, _ = mine
    if key is None or time_us is None:
        return None
    past = [one for one in right if one[0] == key and one[1] is not None and one[1] <= time_us]
    last = max(past, key=lambda one: one[1:], default=None)
    if last is None or (spec.distance_us is not None and time_us - last[1] > spec.distance_us):
        return None
    return last


def expected(spec: AsOfJoin, left: Sequence[Row], right: Sequence[Row]) -> Counter[tuple]:
    """Return the result of the accepted rows, one after the other."""
    partners = [(mine, partner_of(spec, mine, right)) for mine in left]
    return counted(
        joined(mine, theirs)
        for mine, theirs in partners
        if theirs is not None or spec.how == "left"
    )


@settings(deadline=None, max_examples=drawn(120))
@given(
    st.none() | st.integers(0, 8),
    st.sampled_from(["inner", "left"]),
    HISTORIES,
    st.integers(1, 3),
)
def test_results_are_those_of_a_loop_over_sorted_rows(
    distance_us: int | None, how: AsOfHow, steps: list[tuple], workers: int
) -> None:
    """Goal: the rows are exact, and none is late behind the join, whatever happens in between."""
    spec = join(distance_us, how)
    history = History(spec, ("t",), workers).run(steps)
    assert counted(history.output) == expected(spec, *history.accepted)


def test_many_rows_are_joined_as_pandas_joins_them() -> None:
    """Goal: a second opinion, on rows out of order within the delay of the watermark."""
    rng, delay_us = np.random.default_rng(7), 300
    frames = []
    for side, count in ((0, 4_000), (1, 3_000)):
        times = rng.choice(40_000, count, replace=False)
        keys = rng.integers(0, 40, count)
        arrival = np.argsort(times + rng.integers(0, delay_us, count))
        rows = pd.DataFrame({"key": keys.astype(str), "t": times, "n": np.arange(count)})
        frames.append(rows.iloc[arrival].assign(side=side))
    events = pd.concat(frames).sort_values("t", key=lambda t: t // 500, kind="stable")
    subtask, output, newest_us = join(2_000).open(context(), LEFT_SCHEMA, RIGHT_SCHEMA), [], 0
    for start in range(0, len(events), 500):
        part = events.iloc[start : start + 500]
        newest_us = max(newest_us, int(part["t"].max()))
        for side, rows in part.groupby("side"):
            values = list(rows[["key", "t", "n"]].itertuples(index=False, name=None))
            output += subtask.process_input(int(side), batch(int(side), values))
        output += subtask.on_watermark(newest_us - 1_000)
    output += subtask.on_watermark(WATERMARK_END_US)
    assert subtask.late_row_count == 0
    found = {row["id"]: row["u"] for part in output for row in part.to_pylist()}
    left, right = (one.sort_values("t") for one in frames)
    wanted = pd.merge_asof(left, right, on="t", by="key", tolerance=2_000)
    assert found == {
        mine: None if pd.isna(theirs) else int(theirs)
        for mine, theirs in zip(wanted["n_x"], wanted["n_y"], strict=True)
    }
    assert sum(theirs is not None for theirs in found.values()) > 1_000


def test_a_row_waits_until_its_time_has_passed_and_of_one_time_the_greatest_is_taken() -> None:
    subtask = join().open(context(), LEFT_SCHEMA, RIGHT_SCHEMA)
    assert emitted(*subtask.process_input(0, batch(0, [("a", 10, 1), ("b", 10, 2)]))) == []
    list(subtask.process_input(1, batch(1, [("a", 10, 5), ("a", 10, 4), ("a", 11, 6)])))
    assert emitted(*subtask.on_watermark(10)) == [], "a row at the watermark may still come"
    assert sorted(emitted(*subtask.on_watermark(11))) == [(1, 5), (2, None)]
    assert subtask.output_watermark(11) == 11
    list(subtask.process_input(0, batch(0, [("a", 10, 3), ("a", 30, 4)])))
    assert subtask.late_row_count == 1
    assert emitted(*subtask.on_watermark(WATERMARK_END_US)) == [(4, 6)]


def test_rows_that_cannot_have_a_partner_do_not_wait() -> None:
    rows: list[Row] = [(None, 60, 1), ("a", None, 2), (None, 40, 3)]
    for how, kept in (("left", [(2, None), (1, None)]), ("inner", [])):
        subtask = join(how=how).open(context(), LEFT_SCHEMA, RIGHT_SCHEMA)
        list(subtask.on_watermark(50))
        assert emitted(*subtask.process_input(0, batch(0, rows))) == kept
        assert emitted(*subtask.process_input(1, batch(1, rows))) == []
        assert (subtask.late_row_count, subtask.held_row_count) == (2, 0)


def test_the_state_is_a_row_per_key_and_the_rows_whose_time_has_not_passed() -> None:
    """Goal: a hundred times the rows of the bound, and the rows held stay within twice of it."""
    subtask = join().open(context(), LEFT_SCHEMA, RIGHT_SCHEMA)
    for time_us in range(400):
        rows = [(str(n), time_us + n % 3, n) for n in range(15)]
        for side in (0, 1):
            list(subtask.process_input(side, batch(side, rows)))
        list(subtask.on_watermark(time_us))
        assert subtask.held_row_count <= 2 * 2 * 15 * 4 + 4 * 15
        if time_us % 50 == 0:
            subtask.snapshot_changes(CheckpointId(1))


def test_keys_without_a_row_within_the_distance_are_dropped() -> None:
    subtask = join(20).open(context(), LEFT_SCHEMA, RIGHT_SCHEMA)
    merged: list[pa.Table] = []
    for time_us in range(0, 3_000, 10):
        list(subtask.process_input(1, batch(1, [(f"once {time_us}", time_us, 1)])))
        list(subtask.on_watermark(time_us))
        assert subtask.held_row_count <= 2 * (2 * 20 // 10 + 2)
        snapshot = subtask.snapshot_changes(CheckpointId(1))()
        tables = [table.rows for table in snapshot.tables if table.name == NEWEST]
        expired_us = snapshot.expired_us.get(NEWEST)
        merged = list(subtask.merge_tables(NEWEST, [*merged, *tables], expired_us))
        assert sum(table.num_rows for table in merged) <= 4


def test_keys_that_are_dropped_are_counted_once_also_over_restarts() -> None:
    """Goal: also those that have expired at a cut, and had not been dropped from memory."""
    subtask = join(10).open(context(), LEFT_SCHEMA, RIGHT_SCHEMA)
    list(subtask.process_input(1, batch(1, [("a", 1, 1), ("b", 6, 2), ("c", 9, 3)])))
    list(subtask.on_watermark(8))
    list(subtask.on_watermark(12))
    assert (subtask.expired_row_count, subtask.held_row_count) == (0, 3)
    list(subtask.process_input(1, batch(1, [("c", 15, 4)])))
    list(subtask.on_watermark(18))
    assert (subtask.expired_row_count, subtask.held_row_count) == (2, 1)
    list(subtask.process_input(1, batch(1, [("d", 19, 5), ("e", 20, 6)])))
    list(subtask.on_watermark(26))
    assert subtask.expired_row_count == 2, "c has expired and is dropped later"
    snapshot = subtask.snapshot_changes(CheckpointId(1))()
    tables = list(snapshot.tables)
    assert snapshot.expired_us == {"left": 25, "right": 25, "newest": 17}
    halves = [join(10).open(context(n, 2), LEFT_SCHEMA, RIGHT_SCHEMA) for n in range(2)]
    for half in halves:
        half.restore([Snapshot(tables, snapshot.properties, expired_us=snapshot.expired_us)])
        list(half.on_watermark(40))
        assert half.held_row_count == 0
    assert sum(half.expired_row_count for half in halves) == 5
    list(halves[0].process_input(1, batch(1, [("a", 50, 1), ("b", 50, 1)])))
    list(halves[0].on_watermark(WATERMARK_END_US))
    assert sum(half.expired_row_count for half in halves) == 5, "the input has ended"


def test_a_key_is_not_dropped_before_its_row_is_too_old() -> None:
    subtask = join(5).open(context(), LEFT_SCHEMA, RIGHT_SCHEMA)
    list(subtask.on_watermark(10))
    list(subtask.process_input(1, batch(1, [("a", 10, 7)])))
    list(subtask.on_watermark(15))
    list(subtask.process_input(0, batch(0, [("a", 15, 1), ("a", 16, 2)])))
    assert sorted(emitted(*subtask.on_watermark(17))) == [(1, 7), (2, None)]


def test_a_key_of_one_name_is_one_column_and_others_get_the_suffix() -> None:
    schema = pa.schema([("t", pa.timestamp("ms", "UTC")), ("k", pa.string()), ("p", pa.float64())])
    spec = AsOfJoin("join", JoinSide("left", ("k",), "t"), JoinSide("right", ("k",), "t"))
    assert spec.output_schema(schema, schema).names == ["t", "k", "p", "t_right", "p_right"]
    subtask = spec.open(context(), schema, schema)
    for side in (1, 0):
        list(subtask.process_input(side, pa.record_batch([[5], ["x"], [side]], schema=schema)))
    [found] = subtask.on_watermark(WATERMARK_END_US)
    assert found.schema.equals(spec.output_schema(schema, schema))
    assert [list(row.values())[1:3] for row in found.to_pylist()] == [["x", 0.0]]
    assert found.column("p_right").to_pylist() == [1.0]


def test_a_kind_or_keys_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="how is inner or left, not full"):
        join(how="full")
    with pytest.raises(ConfigurationError, match="'k' is string on the left and 'u' is int64"):
        AsOfJoin("join", LEFT, JoinSide("right", ("u",), "t")).output_schema(
            LEFT_SCHEMA, RIGHT_SCHEMA
        )


def test_state_of_other_columns_is_refused() -> None:
    subtask = join().open(context(), LEFT_SCHEMA, RIGHT_SCHEMA)
    list(subtask.process_input(1, batch(1, [("a", 1, 1)])))
    list(subtask.on_watermark(5))
    snapshot = subtask.snapshot(CheckpointId(1))()
    other = join(7).open(context(), LEFT_SCHEMA, RIGHT_SCHEMA)
    with pytest.raises(IncompatibleStateError) as caught:
        other.restore([snapshot])
    assert caught.value.code == ErrorCode.OPERATORS_CHANGED


def test_a_lag_makes_the_watermark_older() -> None:
    subtask = AsOfJoin("join", LEFT, RIGHT, lag_us=100).open(context(), LEFT_SCHEMA, RIGHT_SCHEMA)
    list(subtask.process_input(0, batch(0, [("a", 10, 1)])))
    assert emitted(*subtask.on_watermark(110)) == []
    assert subtask.output_watermark(110) == 10
    assert emitted(*subtask.on_watermark(111)) == [(1, None)]


def test_the_description_is_the_meaning_of_the_state() -> None:
    described = [join().describe(), join(5).describe(), join(how="inner").describe()]
    assert all(described[0] != other for other in described[1:])


def test_of_the_last_rows_of_several_cuts_the_newest_is_restored() -> None:
    subtask = join().open(context(), LEFT_SCHEMA, RIGHT_SCHEMA)
    tables = []
    for number in (1, 2, 3):
        list(subtask.process_input(1, batch(1, [("a", number, number)])))
        list(subtask.on_watermark(number + 1))
        snapshot = subtask.snapshot_changes(CheckpointId(number))()
        tables += snapshot.tables
    restored = join().open(context(), LEFT_SCHEMA, RIGHT_SCHEMA)
    restored.restore([Snapshot(tables, snapshot.properties, expired_us=snapshot.expired_us)])
    list(restored.process_input(0, batch(0, [("a", 9, 5)])))
    assert emitted(*restored.on_watermark(WATERMARK_END_US)) == [(5, 3)]


def test_large_results_come_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("waiting", "output"):
        monkeypatch.setattr(f"laminar_core.operators.joins.{module}.OUTPUT_ROWS_MAX", 7)
    subtask = join().open(context(), LEFT_SCHEMA, RIGHT_SCHEMA)
    rows = [(random.Random(n).choice("abc"), n, n) for n in range(30)]
    list(subtask.process_input(0, batch(0, rows)))
    pieces = list(subtask.on_watermark(WATERMARK_END_US))
    assert [piece.num_rows for piece in pieces] == [7, 7, 7, 7, 2]
