"""The join without bounds against all pairs of rows in plain Python, whatever cuts and restores."""

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import get_args

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_core.errors import ConfigurationError, DataError, ErrorCode, IncompatibleStateError
from laminar_core.operators.joins.kinds import How
from laminar_core.operators.joins.output import OUTPUT_ROWS_MAX
from laminar_core.operators.joins.side import JoinSide
from laminar_core.operators.joins.updating import UpdatingJoin, UpdatingJoiner
from laminar_core.operators.weights import WEIGHT, weighted, weighted_schema
from laminar_core.protocol.types import WATERMARK_END_US, CheckpointId
from tests.operators.joins.join_histories import (
    LEFT_SCHEMA,
    RIGHT_SCHEMA,
    SCHEMAS,
    STEPS,
    History,
    Row,
    batch,
    context,
    joined,
    left_alone,
)
from tests.sampling import drawn

LEFT, RIGHT = JoinSide("left", ("k",), "t"), JoinSide("right", ("key",), "t")
WEIGHTED = tuple(weighted_schema(schema) for schema in SCHEMAS)
KINDS = st.sampled_from(["inner", "left", "right", "full", "semi", "anti"])


def join(how: How = "inner", ttl_us: int | None = None, *, weighted: bool = False) -> UpdatingJoin:
    both = (weighted, weighted)
    return UpdatingJoin("join", LEFT, RIGHT, how=how, ttl_us=ttl_us, weighted=both)


def folded(output: Iterable[dict]) -> Counter[tuple]:
    """Return what is there in the end: rows with the sum of their weights."""
    found: Counter[tuple] = Counter()
    for row in output:
        assert row[WEIGHT]
        found[tuple(item for item in row.items() if item[0] != WEIGHT)] += row[WEIGHT]
    return Counter({row: weight for row, weight in found.items() if weight})


def expected(how: How, left: Counter[Row], right: Counter[Row]) -> Counter[tuple]:
    """Return the result of rows with weights, one pair after the other."""
    found: Counter[tuple] = Counter()

    def add(row: dict, weight: int) -> None:
        found[tuple(row.items())] += weight

    def partners(row: Row, others: Counter[Row]) -> Counter[Row]:
        mine = {one: n for one, n in others.items() if one[0] == row[0] is not None}
        return Counter(mine)

    for row, weight in left.items():
        met = partners(row, right)
        if how in {"semi", "anti"}:
            if (how == "semi") == (sum(met.values()) > 0):
                add(left_alone(row), weight)
            continue
        for other, other_weight in met.items():
            add(joined(row, other), weight * other_weight)
        if how in {"left", "full"} and sum(met.values()) <= 0:
            add(joined(row, None), weight)
    if how in {"right", "full"}:
        for row, weight in right.items():
            if sum(partners(row, left).values()) <= 0:
                add(joined(None, row), weight)
    return Counter({row: weight for row, weight in found.items() if weight})


@settings(deadline=None, max_examples=drawn(60))
@given(KINDS, STEPS, st.integers(1, 3))
def test_what_is_there_in_the_end_are_all_pairs(how: How, steps: list[tuple], workers: int) -> None:
    """Goal: without a time to live, whatever the order, the batches and the cuts."""
    never_late = {"judged_us": lambda _: WATERMARK_END_US}
    history = History(join(how), (), workers, **never_late).run(steps)
    left, right = (Counter(rows) for rows in history.accepted)
    assert folded(history.output) == expected(how, left, right)


class WeightedHistory(History):
    """A history whose rows have weights: a number of 2 takes a row of 0 away, and 3 one of 1."""

    schemas = WEIGHTED

    def batch(self, side: int, rows: Sequence[Row]) -> pa.RecordBatch:
        plain = [(key, time_us, number % 2) for key, time_us, number in rows]
        return weighted(batch(side, plain), [1 if row[2] < 2 else -1 for row in rows])

    def sums(self, side: int) -> Counter[Row]:
        found: Counter[Row] = Counter()
        for key, time_us, number in self.accepted[side]:
            found[key, time_us, number % 2] += 1 if number < 2 else -1
        return Counter({row: weight for row, weight in found.items() if weight})


@settings(deadline=None, max_examples=drawn(60))
@given(KINDS, STEPS, st.integers(1, 3))
def test_rows_that_come_and_go_are_added_up(how: How, steps: list[tuple], workers: int) -> None:
    """Goal: also where a row goes before it comes."""
    never_late = {"judged_us": lambda _: WATERMARK_END_US}
    history = WeightedHistory(join(how, weighted=True), (), workers, **never_late).run(steps)
    wanted = expected(how, history.sums(0), history.sums(1))
    assert folded(history.output) == wanted


class Model:
    """A join with a time to live, one row after the other."""

    def __init__(self, how: How, ttl_us: int) -> None:
        self.how, self.ttl_us = how, ttl_us
        self.held: tuple[list[tuple[Row, list[int]]], ...] = ([], [])
        """Rows of each side, with the number of their partners."""
        self.result: Counter[tuple] = Counter()

    def take(self, side: int, row: Row, reached_us: int) -> None:
        """Take a row of a key whose event time has come to ``reached_us``."""

        def of_key(held: list[tuple[Row, list[int]]]) -> list[tuple[Row, list[int]]]:
            return [
                one
                for one in held
                if one[0][0] == row[0] is not None and (one[0][1] or 0) + self.ttl_us >= reached_us
            ]

        known = of_key(self.held[1 - side])
        same = [partners for one, partners in of_key(self.held[side]) if one == row]
        mine = same[0] if same else [len(known)]
        self._alone(side, row, mine[0], 1)
        self.held[side].append((row, mine))
        for other, partners in known:
            if self.how not in {"semi", "anti"}:
                self._add(joined(*((row, other) if side == 0 else (other, row))), 1)
            self._alone(1 - side, other, partners[0], -1)
            self._alone(1 - side, other, partners[0] + 1, 1)
        for partners in {id(partners): partners for _, partners in known}.values():
            partners[0] += 1  # Equal rows have one number.

    def _alone(self, side: int, row: Row, partners: int, weight: int) -> None:
        if self.how in {"semi", "anti"}:
            if side == 0 and (self.how == "semi") == (partners > 0):
                self._add(left_alone(row), weight)
        elif self.how in {"full", ("left", "right")[side]} and not partners:
            self._add(joined(*((row, None) if side == 0 else (None, row))), weight)

    def _add(self, row: dict, weight: int) -> None:
        self.result[tuple(row.items())] += weight


class OrderedHistory(History):
    """A history that notes the order of rows of both sides."""

    def __init__(self, *args: object, **options: object) -> None:
        self.order: list[tuple[int, Row, int]] = []
        super().__init__(*args, **options)

    def rows(self, side: int, rows: list[Row]) -> None:
        before = len(self.accepted[side])
        super().rows(side, [row for row in rows if row[1] is not None])
        came = zip(self.accepted[side][before:], self.reached[side][before:], strict=True)
        self.order += [(side, row, reached_us) for row, reached_us in came]


def drawn_steps(drawn: random.Random) -> list[tuple]:
    """Return a long history of few different rows, so that equal ones come again and again."""

    def step() -> tuple:
        kind = drawn.choice(["rows"] * 6 + ["watermark"] * 3 + ["one_watermark", "cut", "restart"])
        if kind == "rows":
            rows = [
                (drawn.choice("ab"), drawn.randint(-4, 8), drawn.randrange(2))
                for _ in range(drawn.randint(1, 4))
            ]
            return (kind, drawn.randrange(2), rows)
        if kind == "one_watermark":
            return (kind, drawn.randrange(4), drawn.randint(0, 6))
        return (kind,) if kind == "cut" else (kind, drawn.randint(1, 3))

    return [step() for _ in range(60)]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(60))
def test_rows_meet_as_long_as_they_live(seed: int) -> None:
    """Goal: what has expired meets nothing, what it has met stays, and no row is late behind it."""
    drawn = random.Random(seed)
    how: How = drawn.choice(get_args(How))
    ttl_us, workers, steps = drawn.randint(0, 6), drawn.randint(1, 3), drawn_steps(drawn)
    times = ("t",) if how in {"semi", "anti"} else ("t", "t_right")
    judged = {"judged_us": lambda time_us: time_us + ttl_us}
    history = OrderedHistory(join(how, ttl_us), times, workers, **judged).run(steps)
    model = Model(how, ttl_us)
    for side, row, reached_us in history.order:
        model.take(side, row, reached_us)
    assert folded(history.output) == Counter({r: n for r, n in model.result.items() if n})


def opened(spec: UpdatingJoin) -> UpdatingJoiner:
    return spec.open(context(), *(WEIGHTED if spec.weighted[0] else SCHEMAS))


def emitted(*parts: pa.RecordBatch) -> list[tuple]:
    rows = [row for part in parts for row in part.to_pylist()]
    return sorted(((row["id"], row.get("u"), row[WEIGHT]) for row in rows), key=repr)


def test_each_batch_emits_its_difference_once() -> None:
    subtask = opened(join("left", weighted=True))

    def take(side: int, rows: list[Row], weights: list[int]) -> list[tuple]:
        return emitted(*subtask.process_input(side, weighted(batch(side, rows), weights)))

    assert take(0, [("a", 1, 1), ("a", 1, 1)], [1, 1]) == [(1, None, 2)]
    assert take(1, [("a", 2, 7)], [3]) == [(1, 7, 6), (1, None, -2)]
    assert take(1, [("a", 2, 7), ("a", 2, 8)], [-3, 1]) == [(1, 7, -6), (1, 8, 2)]
    assert take(1, [("a", 2, 9), ("a", 2, 9)], [1, -1]) == []
    assert take(0, [("a", 1, 1), ("a", 1, 2)], [-2, 1]) == [(1, 8, -2), (2, 8, 1)]
    assert take(1, [("a", 2, 8)], [-1]) == [(2, 8, -1), (2, None, 1)]
    assert take(0, [("a", 1, 2), (None, 1, 3), (None, 1, 3)], [-1, 1, 1]) == [
        (2, None, -1),
        (3, None, 2),
    ]
    assert subtask.expired_row_count == 0


def test_a_row_that_has_met_one_is_never_alone_again_because_that_one_expired() -> None:
    subtask = opened(join("left", 10))
    list(subtask.process_input(1, batch(1, [("a", 1, 7)])))
    assert emitted(*subtask.process_input(0, batch(0, [("a", 8, 1)]))) == [(1, 7, 1)]
    list(subtask.on_watermark(15))
    assert subtask.expired_row_count == 1
    assert emitted(*subtask.process_input(0, batch(0, [("a", 8, 1), ("a", 9, 2)]))) == [
        (2, None, 1)
    ], "what is known of an equal row"
    assert emitted(*subtask.process_input(1, batch(1, [("a", 9, 8)]))) == [
        (1, 8, 2),
        (2, 8, 1),
        (2, None, -1),
    ]
    assert emitted(*subtask.process_input(1, batch(1, [("a", 4, 9)]))) == []
    assert (subtask.late_row_count, subtask.output_watermark(15)) == (1, 5)
    list(subtask.on_watermark(50))
    assert (subtask.expired_row_count, subtask.held_row_count) == (5, 0)


def test_a_row_has_the_partners_of_equal_rows_only_down_to_the_sign_of_zero() -> None:
    subtask = opened(join("left", 10))
    values = {"id": [1], "k": ["a"], "t": pa.array([5], pa.timestamp("us"))}
    zero, negative = (
        pa.record_batch({**values, "v": [value]}).cast(LEFT_SCHEMA) for value in (0.0, -0.0)
    )
    assert not emitted(*subtask.process_input(1, batch(1, [("a", 0, 7)])))
    assert emitted(*subtask.process_input(0, zero)) == [(1, 7, 1)]
    list(subtask.on_watermark(12))
    assert emitted(*subtask.process_input(0, negative)) == [(1, None, 1)]


def test_counts_of_rows_that_have_expired_are_continued() -> None:
    subtask = opened(join("inner", 10))
    list(subtask.process_input(0, batch(0, [("a", 1, 1)])))
    list(subtask.on_watermark(20))
    restored = opened(join("inner", 10))
    restored.restore([subtask.snapshot(CheckpointId(1))()])
    assert restored.expired_row_count == 1
    list(restored.process_input(0, batch(0, [("a", 21, 1)])))
    list(restored.on_watermark(WATERMARK_END_US))
    assert restored.expired_row_count == 1, "the input has ended"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("how", ["inner", "full", "semi"])
def test_the_state_does_not_exceed_its_bound(how: How) -> None:
    """Goal: a hundred times the rows of the bound, and those held stay within a few times of it.

    Rows that know the number of their partners are written again for each.
    """
    subtask = opened(join(how, 50))
    for time_us in range(0, 5_000, 50):
        rows = [(str(n), time_us + n % 50, n) for n in range(60)]
        for side in (0, 1):
            list(subtask.process_input(side, batch(side, rows)))
        list(subtask.on_watermark(time_us))
        bound = 2 * 60 / 50 * (50 + 50)
        assert subtask.held_row_count <= (3 if how == "inner" else 5) * bound
        if time_us % 100 == 0:
            subtask.snapshot_changes(CheckpointId(1))
    assert subtask.expired_row_count > 11_000


def test_a_hot_key_comes_in_pieces() -> None:
    subtask = opened(join())
    list(subtask.process_input(0, batch(0, [("a", n, n) for n in range(600)])))
    pieces = list(subtask.process_input(1, batch(1, [("a", 600, n) for n in range(400)])))
    assert sum(piece.num_rows for piece in pieces) == 600 * 400
    assert [piece.num_rows for piece in pieces[:-1]] == [OUTPUT_ROWS_MAX] * (len(pieces) - 1)


def test_dictionaries_make_no_difference_and_a_semi_join_keeps_only_keys() -> None:
    encoded = pa.dictionary(pa.int32(), pa.string())
    left = pa.schema([("d", encoded), ("x", pa.float64())])
    right = pa.schema([("s", pa.string()), ("y", pa.int64())])
    sides = (JoinSide("left", ("d",), ""), JoinSide("right", ("s",), ""))
    for how, names in (("inner", ["d", "x", "s", "y", WEIGHT]), ("semi", ["d", "x", WEIGHT])):
        spec = UpdatingJoin("join", *sides, how=how)
        subtask = spec.open(context(), left, right)
        words = pa.array(["x", "y"]).dictionary_encode()
        mine = pa.record_batch([words, pa.array([float("nan"), 1.0])], schema=left)
        theirs = pa.record_batch([pa.array(["x"]), pa.array([1])], schema=right)
        assert list(subtask.process_input(0, mine)) == []
        [found] = subtask.process_input(1, theirs)
        assert found.schema.equals(spec.output_schema(left, right))
        assert found.schema.names == names
        stored = spec.state_tables(left, right)
        assert ("y" in stored["right"].names) == (how == "inner")
        assert not spec.needs_event_time


@pytest.mark.parametrize(
    ("spec", "left", "right", "problem"),
    [
        (join(), LEFT_SCHEMA.remove(1), RIGHT_SCHEMA, "no column 'k'"),
        (join(ttl_us=5), LEFT_SCHEMA, RIGHT_SCHEMA.remove(2), "no column 't'"),
        (join(ttl_us=5), LEFT_SCHEMA.set(2, pa.field("t", "string")), RIGHT_SCHEMA, "event time"),
        (join(), LEFT_SCHEMA.append(pa.field("_partners", "i8")), RIGHT_SCHEMA, "of its own"),
        (join(), LEFT_SCHEMA.append(pa.field(WEIGHT, pa.int32())), RIGHT_SCHEMA, "of its own"),
        (join(), LEFT_SCHEMA.append(pa.field("t_right", "i8")), RIGHT_SCHEMA, "another suffix"),
        (join(), LEFT_SCHEMA, RIGHT_SCHEMA.append(pa.field("l", pa.list_(pa.int8()))), "'l' is"),
        (
            UpdatingJoin("join", JoinSide("l", ("k", "k"), "t"), JoinSide("r", ("key", "u"), "t")),
            LEFT_SCHEMA,
            RIGHT_SCHEMA,
            "'k' is more than one of the keys",
        ),
        (
            UpdatingJoin("join", LEFT, JoinSide("right", ("u",), "t")),
            LEFT_SCHEMA,
            RIGHT_SCHEMA,
            "'k' is string on the left and 'u' is int64 on the right: cast",
        ),
    ],
)
def test_inputs_that_do_not_fit_are_refused_in_one_line(
    spec: UpdatingJoin, left: pa.Schema, right: pa.Schema, problem: str
) -> None:
    with pytest.raises(ConfigurationError, match=problem) as caught:
        spec.output_schema(left, right)
    assert "\n" not in str(caught.value)


def test_an_unknown_kind_is_refused_and_a_row_without_time_ends_the_job_in_words() -> None:
    with pytest.raises(ConfigurationError, match="how is inner, left, right, full, semi, anti"):
        join(how="outer")
    with pytest.raises(DataError, match="no event time in 't'"):
        list(opened(join(ttl_us=5)).process_input(0, batch(0, [("a", None, 1)])))


def test_state_of_other_columns_is_refused_and_the_description_is_its_meaning() -> None:
    subtask = opened(join())
    list(subtask.process_input(0, batch(0, [("a", 1, 1)])))
    with pytest.raises(IncompatibleStateError) as caught:
        opened(join("left")).restore([subtask.snapshot(CheckpointId(1))()])
    assert caught.value.code == ErrorCode.OPERATORS_CHANGED
    described = [join().describe(), join("left").describe(), join(ttl_us=5).describe()]
    assert all(described[0] != other for other in described[1:])
    assert join(weighted=True).describe() == described[0]


def test_more_pairs_of_equal_rows_than_a_weight_can_count_are_one_line() -> None:
    subtask = join(weighted=True).open(context(), *WEIGHTED)
    sides = [weighted(batch(side, [("a", 1, 1)]), 50_000) for side in (0, 1)]
    list(subtask.process_input(0, sides[0]))
    with pytest.raises(DataError, match="more equal rows come or go than 32 bits") as caught:
        list(subtask.process_input(1, sides[1]))
    assert caught.value.code is ErrorCode.ARITHMETIC_OVERFLOW
