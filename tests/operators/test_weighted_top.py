"""The first rows of each key, of rows that come and go, against sorted lists of what is there."""

import random
from collections import Counter
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_core.codec.key_groups import key_groups_of
from laminar_core.errors import ConfigurationError, DataError, ErrorCode, IncompatibleStateError
from laminar_core.operators.sort_keys import SortKey
from laminar_core.operators.weighted_top import ROWS, WeightedRanker, WeightedTop
from laminar_core.operators.weights import WEIGHT, weighted, weighted_schema
from laminar_core.protocol.types import WATERMARK_END_US, CheckpointId
from laminar_core.state import arrangement
from tests.operators.joins.join_histories import LEFT_SCHEMA, Row, batch, context
from tests.operators.one_input import ONE_INPUT_STEPS, WORKERS, OneInputHistory, as_row
from tests.operators.test_top_rows import LARGEST, by_key, folded
from tests.sampling import drawn

SCHEMA = weighted_schema(LEFT_SCHEMA)
KEPT = 2


def top(ttl_us: int | None = None, rank: str | None = None, count: int = KEPT) -> WeightedTop:
    return WeightedTop("top", ("k",), count, LARGEST, rank, time="t", ttl_us=ttl_us)


def best(rows: Sequence[Row], count: int = KEPT) -> list[Row]:
    """Return the first rows of one key: the largest number first, then by the other columns."""
    return sorted(rows, key=lambda row: (-row[2], row[1]))[:count]


def first_of_each(there: Counter[Row], rank: str | None) -> Counter[tuple]:
    """Return the result, by a loop over all rows that are there."""
    wanted: Counter[tuple] = Counter()
    for rows in by_key(list(there.elements())).values():
        for place, row in enumerate(best(rows), 1):
            wanted[tuple({**as_row(row), **({rank: place} if rank else {})}.items())] += 1
    return wanted


class WeightedHistory(OneInputHistory):
    """A history whose rows come and go: a number of 2 takes a row of 0 away, and 3 one of 1.

    So a row often goes before it comes, and many are there several times.
    """

    schemas = (SCHEMA, SCHEMA)
    before_end_us: Sequence[int] = ()
    """By key group, what event time had reached when the input ended."""

    def batch(self, side: int, rows: Sequence[Row]) -> pa.RecordBatch:
        plain = [(key, time_us, number % 2) for key, time_us, number in rows]
        return weighted(batch(side, plain), [1 if row[2] < 2 else -1 for row in rows])

    def _advance(self, subtask: int, watermark_us: int) -> None:
        if watermark_us == WATERMARK_END_US and not self.before_end_us:
            self.before_end_us = list(self._reached_us)
        super()._advance(subtask, watermark_us)

    def there(self) -> Counter[Row]:
        """Return the rows that are there in the end, each as often as it is."""
        found: Counter[Row] = Counter()
        for key, time_us, number in self.accepted[0]:
            found[key, time_us, number % 2] += 1 if number < 2 else -1
        return +found


@settings(deadline=None, max_examples=drawn(30))
@given(ONE_INPUT_STEPS, WORKERS, st.sampled_from([None, "place"]))
def test_what_is_there_in_the_end_are_the_first_of_the_rows_that_are_there(
    steps: list[tuple], workers: int, rank: str | None
) -> None:
    """Goal: whatever the order, the batches, the cuts and the workers, in memory and on disk."""
    history = WeightedHistory(top(rank=rank), (), workers, None).run(steps)
    assert folded(history.output) == first_of_each(history.there(), rank)


def dense_steps(seed: int) -> list[tuple]:
    """Return a long history of few different rows, with many cuts and restarts."""
    drawn = random.Random(seed)

    def step() -> tuple:
        kind = drawn.choice(["rows"] * 7 + ["watermark"] * 3 + ["one_watermark", "cut", "restart"])
        if kind == "rows":
            rows = [
                (drawn.choice(["a", "b", None]), drawn.randint(-6, 6), drawn.randrange(4))
                for _ in range(drawn.randint(1, 5))
            ]
            return (kind, 0, rows)
        if kind == "watermark":
            return (kind, drawn.randint(1, 4))
        if kind == "one_watermark":
            return (kind, drawn.randrange(4), drawn.randint(0, 6))
        return (kind,) if kind == "cut" else (kind, drawn.randint(1, 3))

    return [step() for _ in range(40)]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(24))
def test_rows_that_have_expired_are_taken_back_and_others_take_their_places(seed: int) -> None:
    """Goal: the ranking is that of the rows that are at most so old, and no others."""
    ttl_us, rank = seed % 7, ("place", None)[seed % 2]
    history = WeightedHistory(top(ttl_us, rank), (), 1 + seed % 3, ttl_us).run(dense_steps(seed))
    keys = (row[0] for row in history.accepted[0])
    reached = dict(zip(keys, _reached_of(history), strict=True))
    there = Counter(
        {row: n for row, n in history.there().items() if row[1] + ttl_us >= reached[row[0]]}
    )
    assert folded(history.output) == first_of_each(there, rank)


def _reached_of(history: WeightedHistory) -> list[int]:
    """Return what event time had reached in the end, for the key of each accepted row."""
    table = batch(0, history.accepted[0])
    groups = key_groups_of(table, ["k"], len(history.before_end_us))
    return [history.before_end_us[group] for group in groups.tolist()]


def opened(spec: WeightedTop) -> WeightedRanker:
    return spec.open(context(), SCHEMA)


def emitted(parts: Sequence[pa.RecordBatch]) -> list[tuple]:
    return sorted(
        tuple(row[name] for name in ("id", "place", WEIGHT) if name in row)
        for part in parts
        for row in part.to_pylist()
    )


def changes(subtask: WeightedRanker, *rows: tuple[str | None, int | None, int, int]) -> list[tuple]:
    """Feed rows, each a key, a time, a number and a weight."""
    plain, weights = [row[:3] for row in rows], [row[3] for row in rows]
    return emitted(list(subtask.process(weighted(batch(0, plain), weights))))


def test_a_row_that_had_fallen_out_comes_back_when_another_goes() -> None:
    subtask = opened(top())
    assert changes(subtask, ("a", 1, 5, 1), ("a", 1, 3, 1), ("a", 1, 4, 1)) == [(4, 1), (5, 1)]
    assert changes(subtask, ("a", 1, 5, -1)) == [(3, 1), (5, -1)]
    assert changes(subtask, ("a", 1, 9, -1), ("a", 1, 8, 1), ("a", 1, 8, -1)) == []
    assert changes(subtask, ("a", 1, 9, 1)) == [], "it has gone already"
    assert changes(subtask, ("a", 1, 4, 3)) == [(3, -1), (4, 1)]
    assert changes(subtask, ("a", 1, 4, -4), ("a", 1, 3, -1)) == [(4, -2)]
    assert subtask.held_row_count == len(list(subtask.snapshot(CheckpointId(1))().tables)) == 0


def test_places_move_up_when_a_row_goes() -> None:
    subtask = opened(top(rank="place", count=3))
    changes(subtask, ("a", 1, 5, 2), ("a", 1, 3, 1), ("a", 1, 2, 1))
    assert changes(subtask, ("a", 1, 5, -1)) == [(2, 3, 1), (3, 2, 1), (3, 3, -1), (5, 2, -1)]
    assert changes(subtask, ("a", 1, 5, -1), ("a", 1, 4, 1)) == [(4, 1, 1), (5, 1, -1)]
    assert changes(subtask, ("a", 1, 1, 1)) == [], "it has no place"


def test_a_row_leaves_so_long_after_its_time_and_comes_no_more() -> None:
    subtask = opened(top(10))
    assert changes(subtask, ("a", 1, 5, 1), ("a", 6, 3, 1), ("a", 5, 2, 2)) == [(3, 1), (5, 1)]
    assert emitted(list(subtask.on_watermark(11))) == []
    assert emitted(list(subtask.on_watermark(12))) == [(2, 1), (5, -1)]
    assert changes(subtask, ("a", 1, 5, -1), ("a", 1, 7, 1)) == []
    assert (subtask.late_row_count, subtask.expired_row_count) == (2, 1)
    assert emitted(list(subtask.on_watermark(16))) == [(2, -1)]
    assert emitted(list(subtask.on_watermark(WATERMARK_END_US))) == [], "the result stays"
    restored = opened(top(10))
    restored.restore([subtask.snapshot(CheckpointId(1))()])
    assert (restored.late_row_count, restored.expired_row_count) == (2, 3)
    assert changes(restored, ("a", 6, 3, -1)) == [(3, -1)]
    with pytest.raises(DataError, match="no event time in 't'"):
        changes(restored, ("a", None, 1, 1))


def test_a_group_that_is_larger_than_a_portion_is_ranked_like_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Goal: the keys of a batch are looked at one after the other if their rows are many."""
    monkeypatch.setattr(arrangement, "CANDIDATES_MAX", 1)
    subtask = opened(top(count=1))
    rows = [(key, 1, number) for key in "abc" for number in range(4)]
    changes(subtask, *((*row, 1) for row in rows))
    found = changes(subtask, *((key, 1, 3, -1) for key in "abc"))
    assert found == [(2, 1)] * 3 + [(3, -1)] * 3


def test_the_state_is_the_rows_that_are_there() -> None:
    """Goal: thirty times as many rows come and go as there are at a time."""
    drawn, subtask = random.Random(5), opened(top())
    there: list[Row] = []
    for _ in range(30):
        fresh = [(str(drawn.randrange(5)), 1, drawn.randrange(10**6)) for _ in range(40)]
        changes(subtask, *((*row, 1) for row in fresh), *((*row, -1) for row in there))
        there = fresh
        subtask.snapshot_changes(CheckpointId(1))
        stored = list(subtask.snapshot(CheckpointId(2))().tables)
        assert sum(table.rows.num_rows for table in stored) == len(there)
        assert subtask.held_row_count <= 6 * len(there)


def test_keys_are_equal_as_everywhere_and_columns_are_plain() -> None:
    encoded = pa.dictionary(pa.int32(), pa.string())
    plain = pa.schema([("s", encoded), ("d", encoded), ("f", pa.float64())])
    schema = weighted_schema(plain)
    spec = WeightedTop("top", ("f", "d"), 1, (SortKey("s"), SortKey("f")), "n")
    words = pa.array(["y", "x", None]).dictionary_encode()
    keys = pa.array(["k", "k", None]).dictionary_encode()
    floats = pa.array([0.0, -0.0, float("nan")])
    rows = weighted(pa.record_batch([words, keys, floats], schema=plain), 1)
    subtask = spec.open(context(), schema)
    [found] = subtask.process(rows)
    assert found.schema.equals(spec.output_schema(schema))
    assert found.schema.names == ["s", "d", "f", "n", WEIGHT]
    assert sorted(map(str, found.column("s").to_pylist())) == ["None", "x"]
    assert (spec.updates_by, top().updates_by, top(rank="n").updates_by) == (
        ("f", "d"),
        (),
        ("k", "n"),
    )
    others = pa.array([-0.0, 0.0, float("nan")])
    [gone] = subtask.process(weighted(pa.record_batch([words, keys, others], schema=plain), -1))
    assert gone.column(WEIGHT).to_pylist() == [-1, -1], "zeros are equal"


def test_state_of_other_columns_is_refused_and_the_description_is_its_meaning() -> None:
    subtask = opened(top(5))
    changes(subtask, ("a", 1, 1, 1))
    with pytest.raises(IncompatibleStateError) as caught:
        opened(top()).restore([subtask.snapshot(CheckpointId(1))()])
    assert caught.value.code == ErrorCode.OPERATORS_CHANGED
    others = [top(5), top(7), top(count=3), top(rank="place")]
    assert len({str(one.describe()) for one in [*others, top()]}) == 5
    assert list(top().state_tables(SCHEMA)) == [ROWS]


def schema_with(*fields: pa.Field) -> pa.Schema:
    return pa.schema([*fields, *SCHEMA])


@pytest.mark.parametrize(
    ("spec", "schema", "problem"),
    [
        (top(), SCHEMA.remove(1), "no column 'k'"),
        (top(), SCHEMA.remove(0), "no column 'id'"),
        (top(5), SCHEMA.remove(2), "no column 't'"),
        (top(), schema_with(pa.field("l", pa.list_(pa.int8()))), "'l' is list<"),
        (top(), schema_with(pa.field("_number", pa.int32())), "rename it"),
        (top(), schema_with(pa.field("_expires", pa.int32())), "rename it"),
        (top(rank="v"), SCHEMA, "give the rank another name"),
        (WeightedTop("top", ("k", "t", "v", "id"), 1, LARGEST), SCHEMA, "nothing to order"),
    ],
)
def test_inputs_that_do_not_fit_are_refused_in_one_line(
    spec: WeightedTop, schema: pa.Schema, problem: str
) -> None:
    with pytest.raises(ConfigurationError, match=problem) as caught:
        spec.output_schema(schema)
    assert "\n" not in str(caught.value)


def test_numbers_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="1 to 10,000 rows per key"):
        top(count=0)
