"""The interval join against all pairs of rows in plain Python, whatever cuts and restores."""

from collections import Counter
from collections.abc import Callable, Sequence

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_core.errors import ConfigurationError, DataError, ErrorCode, IncompatibleStateError
from laminar_core.operators.base import Side
from laminar_core.operators.joins.interval import IntervalJoin
from laminar_core.operators.joins.kinds import How
from laminar_core.operators.joins.output import OUTPUT_ROWS_MAX
from laminar_core.operators.joins.side import JoinSide
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
    left_alone,
)
from tests.sampling import drawn

LEFT, RIGHT = JoinSide("left", ("k",), "t"), JoinSide("right", ("key",), "t")


def join(low_us: int = -2, high_us: int = 3, how: How = "inner") -> IntervalJoin:
    return IntervalJoin("join", LEFT, RIGHT, low_us, high_us, how=how)


def expected(
    spec: IntervalJoin,
    left: Sequence[Row],
    right: Sequence[Row],
    are_close: Callable[[Row, Row], bool],
) -> Counter[tuple]:
    """Return the result of the accepted rows, one pair after the other."""

    def are_partners(mine: Row, theirs: Row) -> bool:
        if None in (mine[0], mine[1], theirs[1]) or mine[0] != theirs[0]:
            return False
        return are_close(mine, theirs)

    met = [mine for mine in left if any(are_partners(mine, one) for one in right)]
    alone = [mine for mine in left if not any(are_partners(mine, one) for one in right)]
    if spec.how in {"semi", "anti"}:
        return counted(left_alone(mine) for mine in (met if spec.how == "semi" else alone))
    rows = [joined(mine, theirs) for mine in left for theirs in right if are_partners(mine, theirs)]
    if spec.how in {"left", "full"}:
        rows += [joined(mine, None) for mine in alone]
    if spec.how in {"right", "full"}:
        alone = [theirs for theirs in right if not any(are_partners(one, theirs) for one in left)]
        rows += [joined(None, theirs) for theirs in alone]
    return counted(rows)


BOUNDS = st.tuples(st.integers(-8, 8), st.integers(0, 8)).map(lambda b: (b[0], b[0] + b[1]))


HOWS = st.sampled_from(["inner", "left", "right", "full", "semi", "anti"])


@settings(deadline=None, max_examples=drawn(120))
@given(BOUNDS, HOWS, HISTORIES, st.integers(1, 3))
def test_results_are_those_of_all_pairs(
    bounds: tuple[int, int], how: How, steps: list[tuple], workers: int
) -> None:
    """Goal: the rows are exact, and none is late behind the join, whatever happens in between."""
    spec = join(*bounds, how)
    times = ("t",) if how in {"semi", "anti"} else ("t", "t_right")
    history = History(spec, times, workers).run(steps)

    def are_close(mine: Row, theirs: Row) -> bool:
        return bounds[0] <= theirs[1] - mine[1] <= bounds[1]

    assert counted(history.output) == expected(spec, *history.accepted, are_close)


UNTIL_SIDE = JoinSide("left", ("k",), "t", until="until")
KEPT_US = {0: -3, 1: 2, 2: 9, 3: None}
"""How long after its time a row with this number has partners; None: its column is null."""


def until_of(row: Row) -> int | None:
    kept_us = KEPT_US[row[2]]
    return None if None in (row[1], kept_us) else row[1] + kept_us


class UntilHistory(History):
    """A history in which left rows have a column with the last time of a partner."""

    schemas = (LEFT_SCHEMA.append(pa.field("until", pa.timestamp("us"))), RIGHT_SCHEMA)

    def batch(self, side: int, rows: Sequence[Row]) -> pa.RecordBatch:
        made = batch(side, rows)
        if side == 1:
            return made
        until = pa.array([until_of(row) for row in rows], pa.timestamp("us"))
        return pa.RecordBatch.from_arrays([*made.columns, until], schema=self.schemas[0])


TIMED = {"inner": ("t_right",), "left": ("t",), "right": ("t_right",), "semi": ("t",)}
TIMED |= {"anti": ("t",), "full": ()}


@settings(deadline=None, max_examples=drawn(80))
@given(st.integers(-6, 3), HOWS, HISTORIES, st.integers(1, 3))
def test_results_are_those_of_pairs_until_the_time_of_each_row(
    low_us: int, how: How, steps: list[tuple], workers: int
) -> None:
    """Goal: each left row has partners, and is kept, until a time of its own."""
    spec = IntervalJoin("join", UNTIL_SIDE, RIGHT, low_us, None, how=how)
    history = UntilHistory(spec, TIMED[how], workers).run(steps)

    def are_close(mine: Row, theirs: Row) -> bool:
        until_us = until_of(mine)
        return until_us is not None and mine[1] + low_us <= theirs[1] <= until_us

    for row in history.output:
        row.pop("until", None)
    assert counted(history.output) == expected(spec, *history.accepted, are_close)


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


@pytest.mark.large
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
        "join",
        JoinSide("left", ("k",), "t"),
        JoinSide("right", ("k",), "t"),
        0,
        0,
        how="right",
        suffix="_2",
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
            IntervalJoin(
                "join", JoinSide("l", ("k", "id"), "t"), JoinSide("r", ("k",) * 2, "t"), 0, 1
            ),
            LEFT_SCHEMA,
            LEFT_SCHEMA,
            r"'k' is more than one of the keys \['k', 'k'\]: name it once",
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
    with pytest.raises(ConfigurationError, match="inner, left, right, full, semi, anti, not outer"):
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
