"""The first rows of each key in an order, against sorted lists, whatever cuts and restores."""

import random
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_core.errors import ConfigurationError, DataError, ErrorCode, IncompatibleStateError
from laminar_core.operators.sort_keys import SortKey
from laminar_core.operators.top_rows import TOP, TopRows, TopRowsKeeper
from laminar_core.operators.weights import WEIGHT
from laminar_core.protocol.types import CheckpointId
from tests.operators.joins.join_histories import LEFT_SCHEMA, Row, batch, context
from tests.operators.one_input import ONE_INPUT_STEPS, WORKERS, OneInputHistory, as_row
from tests.sampling import drawn

LARGEST = (SortKey("id", descending=True),)
KEPT = 2


def top(ttl_us: int | None = None, rank: str | None = None, count: int = KEPT) -> TopRows:
    return TopRows("top", ("k",), count, LARGEST, rank, time="t", ttl_us=ttl_us)


def last(ttl_us: int | None = None) -> TopRows:
    by = (SortKey("t", descending=True),)
    return TopRows("top", ("k",), 1, by, replaces=True, time="t", ttl_us=ttl_us)


def best(rows: list[Row]) -> list[Row]:
    """Return the first rows of one key: the largest number first, then by the other columns."""
    return sorted(rows, key=lambda row: (-row[2], row[1]))[:KEPT]


def folded(output: list[dict]) -> Counter[tuple]:
    """Return what is there in the end: rows with the sum of their weights."""
    found: Counter[tuple] = Counter()
    for row in output:
        assert row[WEIGHT]
        found[tuple(item for item in row.items() if item[0] != WEIGHT)] += row[WEIGHT]
    return Counter({row: weight for row, weight in found.items() if weight})


def by_key(rows: list[Row]) -> dict[str | None, list[Row]]:
    found: dict[str | None, list[Row]] = {}
    for row in rows:
        found.setdefault(row[0], []).append(row)
    return found


@settings(deadline=None, max_examples=drawn(40))
@given(ONE_INPUT_STEPS, WORKERS, st.sampled_from([None, "place"]))
def test_what_is_there_in_the_end_are_the_first_rows_of_all(
    steps: list[tuple], workers: int, rank: str | None
) -> None:
    """Goal: neither batches, nor cuts, nor the number of workers make a difference."""
    history = OneInputHistory(top(rank=rank), (), workers, None).run(steps)
    wanted: Counter[tuple] = Counter()
    for rows in by_key(history.accepted[0]).values():
        for place, row in enumerate(best(rows), 1):
            wanted[tuple({**as_row(row), **({rank: place} if rank else {})}.items())] += 1
    assert folded(history.output) == wanted


@settings(deadline=None, max_examples=drawn(40))
@given(st.integers(1, 8), ONE_INPUT_STEPS, WORKERS)
def test_a_key_that_was_forgotten_begins_anew(
    ttl_us: int, steps: list[tuple], workers: int
) -> None:
    history = OneInputHistory(top(ttl_us), (), workers).run(steps)
    kept: dict[str | None, list[Row]] = {}
    until: dict[str | None, int] = {}
    wanted: Counter[tuple] = Counter()
    for rows in history.batches:
        for key, fresh in by_key(rows).items():
            if until.get(key, -1) < max(row[1] or 0 for row in fresh):
                kept[key] = []
            before = Counter(kept[key])
            kept[key] = best(kept[key] + fresh)
            came = Counter(kept[key]) - before
            if came:
                until[key] = max([until.get(key, -1), *((r[1] or 0) + ttl_us for r in came)])
            wanted.update({tuple(as_row(row).items()): n for row, n in came.items()})
            gone = before - Counter(kept[key])
            wanted.subtract({tuple(as_row(row).items()): n for row, n in gone.items()})
    assert folded(history.output) == Counter({row: n for row, n in wanted.items() if n})


@settings(deadline=None, max_examples=drawn(40))
@given(st.none() | st.integers(1, 8), ONE_INPUT_STEPS, WORKERS)
def test_the_last_row_of_each_key_is_the_newest_of_all(
    ttl_us: int | None, steps: list[tuple], workers: int
) -> None:
    """Goal: also with a time to live, because what is forgotten is older than what is in time."""
    history = OneInputHistory(last(ttl_us), (), workers, ttl_us).run(steps)
    found = {row["k"]: row for row in history.output}
    newest = {
        key: max(rows, key=lambda row: (row[1] or 0, row[2]))
        for key, rows in by_key(history.accepted[0]).items()
    }
    assert found == {key: as_row(row) for key, row in newest.items()}


def opened(spec: TopRows) -> TopRowsKeeper:
    return spec.open(context(), LEFT_SCHEMA)


def changes(subtask: TopRowsKeeper, rows: list[Row]) -> list[tuple]:
    parts = list(subtask.process(batch(0, rows)))
    return [
        tuple(row[name] for name in ("id", "place", WEIGHT) if name in row)
        for part in parts
        for row in part.to_pylist()
    ]


def test_rows_that_come_in_and_fall_out_are_emitted_once() -> None:
    subtask = opened(top())
    assert sorted(changes(subtask, [("a", 1, 5), ("a", 1, 3), ("a", 1, 4)])) == [(4, 1), (5, 1)]
    assert changes(subtask, [("a", 1, 3), ("a", 0, 1)]) == []
    assert sorted(changes(subtask, [("a", 1, 6), ("b", 1, 0)])) == [(0, 1), (4, -1), (6, 1)]
    assert sorted(changes(subtask, [("a", 0, 6), ("a", 0, 6)])) == [(5, -1), (6, -1), (6, 2)]
    assert (list(subtask.on_watermark(9)), subtask.late_row_count) == ([], 0)


def test_a_rank_is_emitted_where_it_changes() -> None:
    subtask = opened(top(rank="place", count=3))
    assert sorted(changes(subtask, [("a", 1, 5), ("a", 1, 3)])) == [(3, 2, 1), (5, 1, 1)]
    assert sorted(changes(subtask, [("a", 1, 4)])) == [(3, 2, -1), (3, 3, 1), (4, 2, 1)]
    assert sorted(changes(subtask, [("a", 1, 2)])) == []
    assert sorted(changes(subtask, [("a", 1, 5)])) == [(3, 3, -1), (4, 2, -1), (4, 3, 1), (5, 2, 1)]


def test_a_later_row_replaces_the_last_one_and_an_older_one_does_not() -> None:
    subtask = opened(last(10))
    assert changes(subtask, [("a", 5, 1), ("a", 7, 2), ("b", 6, 3)]) == [(2,), (3,)]
    assert changes(subtask, [("a", 6, 4), ("a", 7, 1)]) == []
    assert changes(subtask, [("a", 7, 9)]) == [(9,)]
    list(subtask.on_watermark(17))
    assert changes(subtask, [("a", 6, 5), ("c", 7, 6)]) == [(6,)]
    assert subtask.late_row_count == 1
    list(subtask.on_watermark(40))
    assert (subtask.expired_row_count, subtask.held_row_count) == (3, 0)


@pytest.mark.parametrize("ttl_us", [None, 60])
def test_the_state_does_not_exceed_its_bound(ttl_us: int | None) -> None:
    """Goal: a hundred times as many rows come, and no key keeps more than ``count``."""
    drawn, subtask = random.Random(5), opened(top(ttl_us))
    for time_us in range(0, 6_000, 40):
        keys = range(80) if ttl_us is None else range(2 * time_us, 2 * time_us + 80)
        rows = [(str(key), time_us, drawn.randrange(10**6)) for key in keys]
        list(subtask.process(batch(0, rows)))
        list(subtask.on_watermark(time_us))
        if time_us % 200 == 0:
            subtask.snapshot_changes(CheckpointId(1))
            tables = list(subtask.snapshot(CheckpointId(2))().tables)
            lists = [rows for table in tables for rows in table.rows.column(TOP).to_pylist()]
            keys_max = 80 if ttl_us is None else (60 * 1.25 / 40 + 2) * 80
            assert len(lists) <= keys_max
            assert max(map(len, lists)) <= KEPT
            assert subtask.held_row_count <= keys_max
    assert (subtask.expired_row_count > 0) == (ttl_us is not None)


def test_columns_are_plain_and_keys_can_be_several() -> None:
    encoded = pa.dictionary(pa.int32(), pa.string())
    schema = pa.schema([("s", encoded), ("d", encoded), ("f", pa.float64())])
    spec = TopRows("top", ("f", "d"), 1, (SortKey("s"), SortKey("f")), "n")
    words = pa.array(["y", "x", None]).dictionary_encode()
    keys = pa.array(["k", "k", "k"]).dictionary_encode()
    rows = pa.record_batch([words, keys, pa.array([0.0, -0.0, 1.0])], schema=schema)
    [found] = spec.open(context(), schema).process(rows)
    assert found.schema.equals(spec.output_schema(schema))
    assert found.schema.names == ["s", "d", "f", "n", WEIGHT]
    found_rows = sorted((row["f"], row["s"]) for row in found.to_pylist())
    assert found_rows == [(0.0, "x"), (1.0, None)]


def test_state_of_other_columns_is_refused_and_a_time_to_live_may_change() -> None:
    subtask = opened(top(5))
    changes(subtask, [("a", 1, 1)])
    snapshot = subtask.snapshot(CheckpointId(1))()
    with pytest.raises(IncompatibleStateError) as caught:
        opened(top()).restore([snapshot])
    assert caught.value.code == ErrorCode.OPERATORS_CHANGED
    opened(top(7)).restore([subtask.snapshot(CheckpointId(1))()])
    assert top(5).describe() == top(7).describe()
    others = [top(count=3), top(rank="place"), last()]
    assert all(other.describe() != top().describe() for other in others)
    assert (top().output_mode, last().output_mode, last().updates_by) == (
        "retract",
        "upsert",
        ("k",),
    )


@pytest.mark.parametrize(
    ("spec", "schema", "problem"),
    [
        (top(), LEFT_SCHEMA.remove(1), "no column 'k'"),
        (top(), LEFT_SCHEMA.remove(0), "no column 'id'"),
        (top(5), LEFT_SCHEMA.remove(2), "no column 't'"),
        (top(), LEFT_SCHEMA.append(pa.field("l", pa.list_(pa.int8()))), "'l' is list<"),
        (top(), LEFT_SCHEMA.append(pa.field(WEIGHT, pa.int32())), "rename it"),
        (top(rank="v"), LEFT_SCHEMA, "give the rank another name"),
        (TopRows("top", ("k", "t", "v", "id"), 1, LARGEST), LEFT_SCHEMA, "nothing to order"),
    ],
)
def test_inputs_that_do_not_fit_are_refused_in_one_line(
    spec: TopRows, schema: pa.Schema, problem: str
) -> None:
    with pytest.raises(ConfigurationError, match=problem) as caught:
        spec.output_schema(schema)
    assert "\n" not in str(caught.value)


def test_numbers_that_make_no_sense_are_refused() -> None:
    for count in (0, 10_001, 1.5, "3"):
        with pytest.raises(ConfigurationError, match="1 to 10,000 rows per key"):
            top(count=count)
    with pytest.raises(ConfigurationError, match="needs a column to order by"):
        TopRows("top", ("k",), 1, ())


def test_a_row_without_event_time_ends_the_job_only_if_keys_expire() -> None:
    assert changes(opened(top()), [("a", None, 1)]) == [(1, 1)]
    with pytest.raises(DataError, match="no event time in 't'"):
        changes(opened(top(5)), [("a", None, 1)])
