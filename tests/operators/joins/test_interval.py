"""The interval join against all pairs of rows in plain Python, whatever cuts and restores."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_core.errors import ConfigurationError, DataError, ErrorCode, IncompatibleStateError
from laminar_core.operators.base import Side
from laminar_core.operators.joins.interval import How, IntervalJoin
from laminar_core.operators.joins.output import OUTPUT_ROWS_MAX
from laminar_core.operators.joins.side import JoinSide
from laminar_core.protocol.types import WATERMARK_END_US, CheckpointId
from tests.operators.joins.join_histories import (
    LEFT_SCHEMA,
    RIGHT_SCHEMA,
    STEPS,
    History,
    Row,
    batch,
    context,
    counted,
)

LEFT, RIGHT = JoinSide("left", ("k",), "t"), JoinSide("right", ("key",), "t")
COLUMNS = ["id", "k", "t", "v", "u", "key", "t_right"]


def join(low_us: int = -2, high_us: int = 3, how: How = "inner") -> IntervalJoin:
    return IntervalJoin("join", LEFT, RIGHT, low_us, high_us, how)


def moment(time_us: int | None) -> datetime | None:
    return pa.scalar(time_us, pa.timestamp("us")).as_py()


def result(left: Row | None, right: Row | None) -> dict:
    """Return the joined row."""
    key, time_us, number = left or (None, None, None)
    mine = [number, key, moment(time_us), None if number is None else float(number)]
    key, time_us, number = right or (None, None, None)
    return dict(zip(COLUMNS, [*mine, number, key, moment(time_us)], strict=True))


def expected(spec: IntervalJoin, left: Sequence[Row], right: Sequence[Row]) -> Counter[tuple]:
    """Return the result of the accepted rows, one pair after the other."""

    def are_partners(mine: Row, theirs: Row) -> bool:
        if None in (mine[0], mine[1], theirs[1]) or mine[0] != theirs[0]:
            return False
        return spec.low_us <= theirs[1] - mine[1] <= spec.high_us

    rows = [result(mine, theirs) for mine in left for theirs in right if are_partners(mine, theirs)]
    if spec.how in {"left", "full"}:
        alone = [mine for mine in left if not any(are_partners(mine, one) for one in right)]
        rows += [result(mine, None) for mine in alone]
    if spec.how in {"right", "full"}:
        alone = [theirs for theirs in right if not any(are_partners(one, theirs) for one in left)]
        rows += [result(None, theirs) for theirs in alone]
    return counted(rows)


BOUNDS = st.tuples(st.integers(-8, 8), st.integers(0, 8)).map(lambda b: (b[0], b[0] + b[1]))


@settings(deadline=None, max_examples=120)
@given(BOUNDS, st.sampled_from(["inner", "left", "right", "full"]), STEPS, st.integers(1, 3))
def test_results_are_those_of_all_pairs(
    bounds: tuple[int, int], how: How, steps: list[tuple], workers: int
) -> None:
    """Goal: the rows are exact, and none is late behind the join, whatever happens in between."""
    spec = join(*bounds, how)
    history = History(spec, ("t", "t_right"), workers).run(steps)
    assert counted(history.output) == expected(spec, *history.accepted)


def emitted(*parts: pa.RecordBatch | Side) -> list[tuple]:
    main = [part for part in parts if isinstance(part, pa.RecordBatch)]
    return [(row["id"], row["u"]) for part in main for row in part.to_pylist()]


def test_a_pair_comes_with_its_second_row_and_a_lonely_row_when_it_expires() -> None:
    subtask = join(0, 5, "full").open(context(), LEFT_SCHEMA, RIGHT_SCHEMA)
    assert emitted(*subtask.process_input(0, batch(0, [("a", 10, 1), ("a", 11, 2)]))) == []
    assert emitted(*subtask.process_input(1, batch(1, [("a", 15, 7)]))) == [(1, 7), (2, 7)]
    assert emitted(*subtask.process_input(0, batch(0, [("b", 10, 3)]))) == []
    assert emitted(*subtask.on_watermark(15)) == [], "a row at the watermark may still come"
    assert subtask.output_watermark(15) == 10
    assert emitted(*subtask.on_watermark(16)) == [(3, None)]
    late, pair = subtask.process_input(1, batch(1, [("a", 16, 8), ("a", 15, 9)]))
    assert isinstance(late, Side)
    assert (late.output, late.rows.column("u").to_pylist()) == ("late_right", [9])
    assert late.rows.schema == subtask._spec.side_outputs(LEFT_SCHEMA, RIGHT_SCHEMA)["late_right"]
    assert emitted(pair) == [(2, 8)]
    assert subtask.late_row_count == 1
    assert emitted(*subtask.on_watermark(WATERMARK_END_US)) == []
    assert subtask.held_row_count == 0


def test_rows_that_cannot_have_a_partner_do_not_wait() -> None:
    rows: list[Row] = [(None, 60, 1), ("a", None, 2), (None, 40, 3)]
    for how, kept in (("left", [(2, None), (1, None)]), ("inner", []), ("right", [])):
        subtask = join(how=how).open(context(), LEFT_SCHEMA, RIGHT_SCHEMA)
        list(subtask.on_watermark(50))
        assert emitted(*subtask.process_input(0, batch(0, rows))) == kept
        assert (subtask.late_row_count, subtask.held_row_count) == (1, 0)


def test_the_state_does_not_exceed_its_bound() -> None:
    """Goal: a hundred times the rows of the bound, and the rows held stay within twice of it."""
    subtask = join(0, 50, "left").open(context(), LEFT_SCHEMA, RIGHT_SCHEMA)
    for time_us in range(0, 5_000, 5):
        rows = [(str(n), time_us + n % 5, n) for n in range(20)]
        for side in (0, 1):
            list(subtask.process_input(side, batch(side, rows)))
        list(subtask.on_watermark(time_us))
        assert subtask.held_row_count <= 2 * 20 * (50 // 5 + 2) + 2 * 2 * 20
        if time_us % 50 == 0:
            subtask.snapshot_changes(CheckpointId(1))
        assert max(time_us - 50, 0) <= subtask.output_watermark(time_us) <= time_us


def test_a_hot_key_comes_in_pieces() -> None:
    subtask = join(0, 1_000).open(context(), LEFT_SCHEMA, RIGHT_SCHEMA)
    list(subtask.process_input(0, batch(0, [("a", n, n) for n in range(600)])))
    pieces = list(subtask.process_input(1, batch(1, [("a", 600, n) for n in range(400)])))
    assert sum(piece.num_rows for piece in pieces) == 600 * 400
    assert [piece.num_rows for piece in pieces[:-1]] == [OUTPUT_ROWS_MAX] * (len(pieces) - 1)


def test_dictionaries_and_units_of_time_make_no_difference() -> None:
    left = pa.schema([("k", pa.int64()), ("d", pa.dictionary(pa.int8(), pa.string())), ("t", "i8")])
    right = pa.schema([("n", pa.int64()), ("s", pa.string()), ("at", pa.timestamp("ns"))])
    spec = IntervalJoin(
        "join", JoinSide("left", ("k", "d"), "t"), JoinSide("right", ("n", "s"), "at"), 0, 5
    )
    subtask = spec.open(context(), left, right)
    words = pa.array(["x", "y"]).dictionary_encode().cast(left.field("d").type)
    mine = pa.record_batch([pa.array([1, 2]), words, pa.array([1, 1])], schema=left)
    theirs = [pa.array([1, 2]), pa.array(["x", "x"]), pa.array([5_999, 1_000])]
    theirs = [one.cast(f.type) for one, f in zip(theirs, right, strict=True)]
    assert list(subtask.process_input(0, mine)) == []
    [found] = subtask.process_input(1, pa.record_batch(theirs, schema=right))
    assert found.schema.equals(spec.output_schema(left, right))
    assert found.schema.field("d").type == pa.string()
    assert [(row["k"], row["s"]) for row in found.to_pylist()] == [(1, "x")]


def test_a_key_of_one_name_is_one_column_of_either_side() -> None:
    schema = pa.schema([("k", pa.string()), ("t", pa.int64()), ("l", pa.list_(pa.int64()))])
    other = pa.schema([("k", pa.string()), ("t", pa.int64())])
    spec = IntervalJoin(
        "join", JoinSide("left", ("k",), "t"), JoinSide("right", ("k",), "t"), 0, 0, "right", "_2"
    )
    assert spec.output_schema(schema, other).names == ["k", "t", "l", "t_2"]
    subtask = spec.open(context(), schema, other)
    rows = pa.record_batch([pa.array(["a", "b"]), pa.array([1, 2])], schema=other)
    assert list(subtask.process_input(1, rows)) == []
    mine = pa.record_batch([pa.array(["a"]), pa.array([1]), pa.array([[5]])], schema=schema)
    rows = [*subtask.process_input(0, mine), *subtask.on_watermark(WATERMARK_END_US)]
    assert [row for part in rows for row in part.to_pylist()] == [
        {"k": "a", "t": 1, "l": [5], "t_2": 1},
        {"k": "b", "t": None, "l": None, "t_2": 2},
    ]


@pytest.mark.parametrize(
    ("spec", "left", "right", "problem"),
    [
        (join(), LEFT_SCHEMA.remove(1), RIGHT_SCHEMA, "no column 'k'"),
        (join(), LEFT_SCHEMA, RIGHT_SCHEMA.remove(2), "no column 't'"),
        (join(), LEFT_SCHEMA.set(2, pa.field("t", pa.string())), RIGHT_SCHEMA, "event time must"),
        (join(), LEFT_SCHEMA.append(pa.field("_expires", "i8")), RIGHT_SCHEMA, "of its own"),
        (join(), LEFT_SCHEMA.append(pa.field("t_right", "i8")), RIGHT_SCHEMA, "another suffix"),
        (
            join(how="left"),
            LEFT_SCHEMA.append(pa.field("l", pa.list_(pa.int8()))),
            RIGHT_SCHEMA,
            "'l' is list<.*leave it out",
        ),
        (
            IntervalJoin("join", LEFT, JoinSide("right", ("key", "u"), "t"), 0, 1),
            LEFT_SCHEMA,
            RIGHT_SCHEMA,
            "as many on both sides",
        ),
        (
            IntervalJoin("join", LEFT, JoinSide("right", ("k",), "t"), 0, 1),
            LEFT_SCHEMA,
            pa.schema([("k", pa.int64()), ("t", pa.int64())]),
            "'k' is string on the left and 'k' is int64 on the right: cast",
        ),
    ],
)
def test_inputs_that_do_not_fit_are_refused_in_one_line(
    spec: IntervalJoin, left: pa.Schema, right: pa.Schema, problem: str
) -> None:
    with pytest.raises(ConfigurationError, match=problem) as caught:
        spec.output_schema(left, right)
    assert "\n" not in str(caught.value)


def test_bounds_and_kinds_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="exchange them"):
        join(3, 2)
    with pytest.raises(ConfigurationError, match="inner, left, right, full, not outer"):
        join(how="outer")


def test_what_has_expired_is_not_merged() -> None:
    subtask = join(how="left").open(context(), LEFT_SCHEMA, RIGHT_SCHEMA)
    list(subtask.process_input(0, batch(0, [("a", 1, 1), ("a", 2, 2)])))
    [table] = subtask.snapshot_changes(CheckpointId(1))().tables
    [merged] = subtask.merge_tables(table.name, [table.rows], 4)
    assert merged.column("id").to_pylist() == [2]


def test_state_of_other_columns_is_refused() -> None:
    subtask = join().open(context(), LEFT_SCHEMA, RIGHT_SCHEMA)
    list(subtask.process_input(0, batch(0, [("a", 1, 1)])))
    snapshot = subtask.snapshot(CheckpointId(1))()
    other = join().open(context(), LEFT_SCHEMA.remove(3), RIGHT_SCHEMA)
    with pytest.raises(IncompatibleStateError) as caught:
        other.restore([snapshot])
    assert caught.value.code == ErrorCode.OPERATORS_CHANGED


def test_a_time_that_cannot_be_right_ends_the_job_in_words() -> None:
    schema = LEFT_SCHEMA.set(2, pa.field("t", pa.int64()))
    subtask = join().open(context(), schema, RIGHT_SCHEMA)
    rows = pa.record_batch([[1], ["a"], [2**62 + 1], [0.5]], schema=schema)
    with pytest.raises(DataError, match="is not a real time"):
        list(subtask.process_input(0, rows))


def test_a_lag_makes_the_watermark_older() -> None:
    spec = IntervalJoin("join", LEFT, RIGHT, 0, 5, lag_us=100)
    subtask = spec.open(context(), LEFT_SCHEMA, RIGHT_SCHEMA)
    list(subtask.on_watermark(110))
    assert subtask.output_watermark(110) == 10
    list(subtask.process_input(0, batch(0, [("a", 9, 1), ("a", 10, 2)])))
    assert subtask.late_row_count == 1
    assert emitted(*subtask.process_input(1, batch(1, [("a", 15, 7)]))) == [(2, 7)]


def test_the_description_is_the_meaning_of_the_state() -> None:
    described = [join().describe(), join(-2, 4).describe(), join(how="left").describe()]
    assert all(described[0] != other for other in described[1:])
    again = IntervalJoin("other", LEFT, RIGHT, -2, 3, suffix="_2", lag_us=5)
    assert again.describe() == described[0]
