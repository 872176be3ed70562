"""An arrangement against lists of rows: probes, cuts, merged chains, restores, and its bound.

Its rows are in memory or in RocksDB, and both write the same segments.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import cycle, repeat
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_core.codec.key_groups import key_group_range, key_groups_of
from laminar_core.state import arrangement, runs
from laminar_core.state.arrangement import Arrangement, PinnedRuns
from laminar_core.state.content import content_of
from laminar_core.state.expiry import EXPIRES
from laminar_core.state.named_tables import WEIGHT, added_up
from laminar_core.state.rocks_chunks import RocksBackend
from laminar_core.state.rows_layout import (
    MATCHED,
    RowsLayout,
    of_key_groups,
)
from laminar_core.state.runs import Bounds, Run
from laminar_core.state.window_layout import KEY_GROUP, TIME_TYPE
from tests.sampling import drawn
from tests.state.shelves import shelf_of

MAX_PARALLELISM = 8
KEPT_US = 10
SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int16()), ("t", pa.int64()), (EXPIRES, TIME_TYPE)])
PLAIN = RowsLayout(("k", "n"), SCHEMA)
MARKED = RowsLayout(("k", "n"), SCHEMA, is_marked=True)
WEIGHTED = RowsLayout(("k", "n"), SCHEMA.append(pa.field(WEIGHT, pa.int32())))

Row = tuple[str | None, int, int]
"""Key, key, time; a row expires ``KEPT_US`` after its time."""


def table(rows: Sequence[Row], weights: Sequence[int] | None = None) -> pa.Table:
    k, n, t = zip(*rows, strict=True) if rows else ((), (), ())
    columns = [pa.array(k, pa.string()), pa.array(n, pa.int16()), pa.array(t, pa.int64())]
    columns.append(pa.array([time + KEPT_US for time in t], pa.int64()).cast(TIME_TYPE))
    if weights is None:
        return pa.Table.from_arrays(columns, schema=SCHEMA)
    return pa.Table.from_arrays([*columns, pa.array(weights, pa.int32())], schema=WEIGHTED.schema)


def run_of(held: Arrangement, rows: pa.Table) -> Run:
    return held.arranged(rows, rows.column("t").to_numpy())


def added(held: Arrangement, rows: Sequence[Row], weights: Sequence[int] | None = None) -> None:
    held.add(run_of(held, table(rows, weights)))


def rows_of(found: pa.Table) -> list[Row]:
    return list(zip(*(found.column(name).to_pylist() for name in ("k", "n", "t")), strict=True))


def pairs(
    held: Arrangement, probing: Sequence[Row], bounds: Bounds | None = None, *, mark: bool = False
) -> list[tuple[Row, Row]]:
    run = run_of(held, table(probing, [1] * len(probing) if held.layout.has_weights else None))
    found = []
    for one in held.probe(run, ("k", "n"), bounds):
        mine = rows_of(run.rows.take(pa.array(one.probing)))
        theirs = rows_of(one.partners())
        found += list(zip(mine, theirs, strict=True))
        if mark:
            one.run.marks[one.found] = True
    return sorted(found, key=str)


def expected_pairs(
    held: Iterable[Row], probing: Iterable[Row], bounds: Bounds | None
) -> list[tuple[Row, Row]]:
    found = [
        (mine, theirs)
        for mine in probing
        for theirs in held
        if None not in mine[:2] and mine[:2] == theirs[:2]
        if bounds is None or bounds.low_us <= theirs[2] - mine[2] <= bounds.high_us
    ]
    return sorted(found, key=str)


def stored(pinned: PinnedRuns) -> list[pa.Table]:
    """Return the tables of a snapshot, each checked for its form."""
    tables = list(pinned.stored_tables(MAX_PARALLELISM))
    for rows in tables:
        assert rows.schema.equals(pinned.layout.stored_schema)
        groups = rows.column(KEY_GROUP).to_pylist()
        assert groups == sorted(groups)
        [batch] = rows.combine_chunks().to_batches()
        assert groups == key_groups_of(batch, ("k", "n"), MAX_PARALLELISM).tolist()
    return tables


def merged(tables: Iterable[pa.Table], layout: RowsLayout) -> pa.Table:
    return layout.table("rows").merge(tables, None)


def counted(rows: pa.Table) -> Counter[tuple]:
    """Return the rows of stored tables, with their marks and how often they count."""
    counts: Counter[tuple] = Counter()
    for row in rows.drop_columns([KEY_GROUP]).to_pylist():
        weight = row.pop(WEIGHT, 1)
        counts[(row["k"], row["n"], row["t"], row.get(MATCHED, False))] += weight
    return Counter({row: weight for row, weight in counts.items() if weight})


def alive(rows: pa.Table, expired_us: int | None) -> pa.Table:
    expires = rows.column(EXPIRES).cast(pa.int64()).to_numpy()
    return rows if expired_us is None else rows.filter(pa.array(expires > expired_us))


EITHER = pytest.mark.parametrize("backend", ["memory", "rocksdb"])
ROW = st.tuples(st.sampled_from(["a", "b", "", None]), st.integers(0, 2), st.integers(0, 40))
ROWS = st.lists(ROW, max_size=8)
BOUNDS = st.none() | st.builds(
    lambda low, wide: Bounds(low, low + wide), st.integers(-9, 9), st.integers(0, 9)
)
STEP = (
    st.tuples(st.just("add"), ROWS)
    | st.tuples(st.just("probe"), ROWS, BOUNDS)
    | st.tuples(st.just("expire"), st.integers(0, 8))
    | st.tuples(st.just("cut"))
    | st.tuples(st.just("merge"))
)


@pytest.fixture(autouse=True, scope="module")
def small_blocks() -> Iterator[None]:
    """Let even short runs have several blocks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("laminar_core.state.kept_rows.BLOCK_BYTES", 80)
        yield


class History:
    """An arrangement with marks, a list of the rows that it should hold, and a chain of cuts."""

    def __init__(self, backends: Iterator[str]) -> None:
        self._backends = backends
        """Which backend is used, from each restore to the next one."""
        self.held = opened(MARKED, next(backends))
        self.rows: list[list] = []
        """[row, whether it has had a partner]"""
        self.chain: list[pa.Table] = []
        self.expired_us: int | None = None

    def step(self, kind: str, *values: object) -> None:
        """Do one step, and compare what it returns."""
        getattr(self, kind)(*values)
        assert self.held.row_count <= 2 * len(self.rows) + 16

    def add(self, rows: list[Row]) -> None:
        rows = [row for row in rows if self.expired_us is None or row[2] >= self.expired_us]
        added(self.held, rows)
        self.rows += [[row, False] for row in rows]

    def probe(self, probing: list[Row], bounds: Bounds | None) -> None:
        least_us = 0 if self.expired_us is None else self.expired_us
        probing = [row for row in probing if row[2] >= least_us]
        bounds = bounds or Bounds(-KEPT_US, KEPT_US)
        bounds = Bounds(max(bounds.low_us, 1 - KEPT_US), bounds.high_us)
        held = [row for row, _ in self.rows]
        assert pairs(self.held, probing, bounds, mark=True) == expected_pairs(held, probing, bounds)
        for one in self.rows:
            one[1] = one[1] or bool(expected_pairs([one[0]], probing, bounds))

    def expire(self, forward_us: int) -> None:
        self.expired_us = (self.expired_us or 0) + forward_us
        gone = [one for one in self.rows if one[0][2] + KEPT_US <= self.expired_us]
        for unmarked in (True, False):
            wanted = [row for row, marked in gone if not (unmarked and marked)]
            picked = self.held.expiring(self.expired_us, unmarked=unmarked)
            found = [row for one in picked for row in rows_of(one.table())]
            assert Counter(found) == Counter(wanted)
        self.held.expire(self.expired_us)
        self.rows = [one for one in self.rows if one not in gone]

    def cut(self) -> None:
        self.chain += stored(self.held.take_changes())
        wanted = Counter((*row, marked) for row, marked in self.rows)
        assert counted(alive(merged(self.chain, MARKED), self.expired_us)) == wanted
        everything = merged(stored(self.held.pin()), MARKED)
        assert counted(everything) == wanted

    def merge(self) -> None:
        """Merge some of the chain, as a compaction does."""
        if len(self.chain) > 2:
            middle = [alive(rows, self.expired_us) for rows in self.chain[1:]]
            self.chain[1:] = [merged(middle, MARKED)]

    def restored(self, workers: int) -> "History":
        """Continue from the chain with so many workers, and back again from all of them."""
        self.cut()
        tables: list[pa.Table] = []
        for worker in range(workers):
            owned = key_group_range(worker, MAX_PARALLELISM, workers)
            rows = merged(self.chain, MARKED)
            part = self._restored_from(of_key_groups(alive(rows, self.expired_us), owned))
            tables += stored(part.take_changes())
        self.chain = tables
        self.held = self._restored_from(merged(tables, MARKED))
        if self.expired_us is not None:
            self.held.expire(self.expired_us)
        self.held.take_changes()
        return self

    def _restored_from(self, rows: pa.Table) -> Arrangement:
        return restored_from(rows, next(self._backends))


def opened(layout: RowsLayout, backend: str) -> Arrangement:
    return Arrangement(layout, shelf_of(backend, layout.schema))


def restored_from(rows: pa.Table, backend: str = "memory") -> Arrangement:
    held = opened(MARKED, backend)
    assert all(weight > 0 for weight in rows.column(WEIGHT).to_pylist()), "a row that was not there"
    held.restore(rows, rows.column("t").to_numpy())
    return held


@pytest.mark.large
@settings(deadline=None, max_examples=drawn(150))
@given(st.lists(STEP, max_size=25), st.integers(1, 4), st.lists(STEP, max_size=12))
def test_any_history_is_that_of_a_list_of_rows_with_any_backend(
    steps: list[tuple], workers: int, after: list[tuple]
) -> None:
    """Goal: probes, expiry, changes and restores are right whatever came in between.

    Another job changes the backend at each restore, and has the same chain of segments.
    """
    histories = [History(repeat("memory")), History(cycle(["rocksdb", "memory", "rocksdb"]))]
    for step in steps:
        both(histories, *step)
    for history in histories:
        history.restored(workers)
    for step in [*after, ("cut",)]:
        both(histories, *step)


def both(histories: Sequence[History], *step: object) -> None:
    """Do a step with both, and compare what they would restore from."""
    one, other = histories
    for history in histories:
        history.step(*step)
    assert [rows.to_pylist() for rows in one.chain] == [rows.to_pylist() for rows in other.chain]


BACKENDS = st.sampled_from(["memory", "rocksdb"])
CHANGES = st.lists(
    st.lists(st.tuples(ROW, st.sampled_from([-2, -1, 1, 2])), max_size=8) | st.just("cut"),
    max_size=14,
)


@settings(deadline=None, max_examples=drawn(80))
@given(CHANGES, ROWS, BACKENDS)
def test_weights_add_up_also_if_rows_are_taken_back_before_they_come(
    steps: list, probing: list[Row], backend: str
) -> None:
    held, sums, chain = opened(WEIGHTED, backend), Counter[Row](), []
    for step in steps:
        if step == "cut":
            chain += stored(held.take_changes())
            continue
        if step:
            added(held, *zip(*step, strict=True))
        for row, weight in step:
            sums[row] += weight
    chain += stored(held.take_changes())
    wanted = {row: weight for row, weight in sums.items() if weight}
    for tables in (chain, stored(held.pin()), [merged(chain[1:], WEIGHTED), *chain[:1]]):
        found = counted(merged(tables, WEIGHTED))
        assert {row[:3]: weight for row, weight in found.items()} == wanted
    run = run_of(held, table(probing, [1] * len(probing)))
    found_weights: Counter[tuple] = Counter()
    for one in held.probe(run, ("k", "n")):
        mine = rows_of(run.rows.take(pa.array(one.probing)))
        partners = one.partners()
        weights = partners.column(WEIGHT).to_pylist()
        for key, weight in zip(zip(mine, rows_of(partners), strict=True), weights, strict=True):
            found_weights[key] += weight
    expected: Counter[tuple] = Counter()
    for mine, theirs in expected_pairs(wanted, probing, None):
        expected[mine, theirs] += wanted[theirs]
    assert {pair: w for pair, w in found_weights.items() if w} == dict(expected)


def test_keys_with_equal_hashes_are_distinguished(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "laminar_core.state.runs.hash_columns", lambda _columns, rows: np.full(rows, 7, np.uint64)
    )
    held = Arrangement(PLAIN)
    rows: list[Row] = [("a", 0, 1), ("b", 0, 1), ("a", 1, 1), (None, 0, 1), ("a", 0, 2)]
    added(held, rows)
    assert pairs(held, rows) == expected_pairs(rows, rows, None)


@EITHER
def test_runs_stay_few_and_a_large_one_is_not_copied_again_and_again(backend: str) -> None:
    held = opened(PLAIN, backend)
    added(held, [(str(n), 0, n) for n in range(2_000)])
    held.take_changes()
    large = held._runs[0].upper
    for n in range(300):
        added(held, [(str(n), 0, n)])
        if n % 10 == 0:
            held.take_changes()
        assert len(held._runs) <= 24
        assert held._runs[0].upper is large
    held.take_changes()
    added(held, [(str(n), 0, n) for n in range(2_000)])
    added(held, [("last", 0, 1)])
    assert held.row_count == 2_000 + 300 + 2_001


def test_where_nothing_is_probed_only_small_runs_are_merged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Goal: rows that only wait are not copied for a search that never comes."""
    monkeypatch.setattr(arrangement, "UNPROBED_ROWS_MAX", 100)
    held = Arrangement(PLAIN, is_probed=False)
    for step in range(10):
        for first in range(0, 60, 20):
            added(held, [(str(n), 0, step) for n in range(first, first + 20)])
    assert [len(run) for run in held._runs] == [100] * 6
    assert sorted(rows_of(pa.concat_tables(run.rows for run in held._runs))) == sorted(
        (str(n), 0, step) for step in range(10) for n in range(60)
    )


def test_at_most_as_many_expired_rows_are_held_as_living_ones() -> None:
    held = Arrangement(PLAIN)
    for step in range(400):
        added(held, [(str(n % 13), 0, step) for n in range(20)])
        if step % 7 == 0:
            held.take_changes()
        held.expire(step - 1)
        assert held.row_count <= 2 * 20 * (KEPT_US + 2)
    held.expire(500)
    assert held.row_count == 0
    assert held.oldest_us is None


@EITHER
def test_a_large_snapshot_is_cut_into_ranges_of_key_groups(
    monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    monkeypatch.setattr("laminar_core.state.kept_rows.TABLE_BYTES_MAX", 400)
    held = opened(MARKED, backend)
    rows: list[Row] = [(str(n), 0, n) for n in range(600)]
    for start in range(0, 600, 50):
        added(held, rows[start : start + 50])
    tables = stored(held.pin())
    groups = [rows.column(KEY_GROUP).to_pylist() for rows in tables]
    assert len(tables) == MAX_PARALLELISM
    assert [set(one) for one in groups] == [{n} for n in range(MAX_PARALLELISM)]
    assert counted(pa.concat_tables(tables)) == Counter((*row, False) for row in rows)


def test_a_pinned_mark_does_not_change_any_more() -> None:
    held = Arrangement(MARKED)
    added(held, [("a", 0, 1)])
    pinned, changes = held.pin(), held.take_changes()
    pairs(held, [("a", 0, 1)], mark=True)
    again = held.take_changes()
    unmarked, marked = ("a", 0, 1, False), ("a", 0, 1, True)
    assert [counted(*stored(one)) for one in (pinned, changes)] == [{unmarked: 1}] * 2
    assert counted(*stored(again)) == {unmarked: -1, marked: 1}
    assert stored(held.take_changes()) == []


@EITHER
def test_a_mark_that_is_new_is_still_new_when_runs_have_been_merged(backend: str) -> None:
    held = opened(MARKED, backend)
    chain: list[pa.Table] = []
    for time in (1, 2):
        added(held, [("a", 0, time)])
        chain += stored(held.take_changes())
    pairs(held, [("a", 0, 1)], Bounds(0, 0), mark=True)
    added(held, [("b", 0, 3)])
    assert len(held._runs) == 2, "those of both cuts, and the new one"
    chain += stored(held.take_changes())
    rows = [("a", 0, 1, True), ("a", 0, 2, False), ("b", 0, 3, False)]
    assert counted(merged(chain, MARKED)) == Counter(rows)


@EITHER
def test_a_run_is_rewritten_when_half_of_it_has_expired(backend: str) -> None:
    held = opened(PLAIN, backend)
    added(held, [(str(n), 0, n) for n in range(100)])
    for expired_us, count in ((39, 100), (65, 44), (75, 44), (90, 19), (108, 1), (109, 0)):
        held.expire(expired_us)
        assert held.row_count == count
    assert held.expired_us == 109
    assert held._runs == []


def test_a_state_and_its_copy_have_equal_rows() -> None:
    """Goal: rows that came twice are written in one way, whatever was restored in between."""
    held = Arrangement(MARKED)
    for _ in range(3):
        added(held, [("a", 0, 1), ("b", 0, 1), ("a", 0, 1)])
        pairs(held, [("b", 0, 1)], mark=True)
    tables = stored(held.pin())
    restored = restored_from(merged(tables, MARKED))
    assert content_of(stored(restored.pin())) == content_of(tables)
    assert sorted(pa.concat_tables(tables).column(WEIGHT).to_pylist()) == [3, 6]


def test_rows_with_weights_are_written_once_however_they_came() -> None:
    """Goal: a state and its copy have equal rows, also if rows were taken back and came again."""
    held = Arrangement(WEIGHTED)
    added(held, [("a", 0, 1), ("b", 0, 1)], [1, 2])
    stored(held.take_changes())
    added(held, [("a", 0, 1), ("b", 0, 1)], [2, -2])
    tables = stored(held.pin())
    [rows] = [table.to_pylist() for table in tables]
    assert [(row["k"], row[WEIGHT]) for row in rows] == [("a", 3)]


def test_rows_that_add_up_to_none_are_no_table_of_a_snapshot() -> None:
    held = Arrangement(WEIGHTED)
    added(held, [("a", 0, 1)], [1])
    assert len(stored(held.take_changes())) == 1
    added(held, [("b", 0, 1)], [1])
    added(held, [("b", 0, 1), ("a", 0, 1), ("c", 0, 1)], [-1, -1, 1])
    added(held, [("c", 0, 1)], [-1])
    assert stored(held.pin()) == []
    [changes] = stored(held.take_changes())
    assert changes.column(WEIGHT).to_pylist() == [-1]


@EITHER
def test_a_row_that_goes_at_once_leaves_the_older_runs(backend: str) -> None:
    held = opened(WEIGHTED, backend)
    older: list[Row] = [(str(n), 0, 1) for n in range(5)]
    added(held, older, [1] * 5)
    for weight in (1, -1):
        added(held, [("x", 0, 1)], [weight])
    assert [len(run) for run in held._runs] == [5]
    held.take_changes()
    added(held, [("x", 0, 1)], [1])
    held.take_changes()
    added(held, [("x", 0, 1)], [-1])
    held.take_changes()
    added(held, [("y", 0, 1)], [1])
    assert sum(counted(merged(stored(held.pin()), WEIGHTED)).values()) == 5 + 1
    assert held.row_count == 5 + 1


def test_null_is_a_key_only_where_that_is_asked_for() -> None:
    held = Arrangement(PLAIN)
    added(held, [(None, 1, 0), ("a", 1, 0)])
    probing = run_of(held, table([(None, 1, 0), ("b", 1, 0)]))
    assert list(held.probe(probing, ("k", "n"))) == []
    [found] = held.probe(probing, ("k", "n"), null_is_key=True)
    assert rows_of(found.partners()) == [(None, 1, 0)]


def test_rows_without_expiry_stay() -> None:
    layout = RowsLayout(("k",), pa.schema([("k", pa.int64()), ("v", pa.float64())]))
    held = Arrangement(layout)
    rows = pa.table({"k": pa.array([1, 2]), "v": pa.array([0.5, float("nan")])}, layout.schema)
    held.add(held.arranged(rows, np.zeros(2, np.int64)))
    with pytest.raises(AssertionError, match="stay"):
        held.expire(5)
    [kept] = held.pin().stored_tables(4)
    assert kept.num_rows == 2


def test_a_row_with_odd_floats_takes_back_itself() -> None:
    values = [0.0, -0.0, float("nan"), None]
    rows = pa.table({"v": values * 2, WEIGHT: pa.array([1] * 4 + [-1, 3, -1, -1], pa.int32())})
    left = added_up(rows)
    assert [str(row["v"]) for row in left.to_pylist()] == ["-0.0"]
    assert left.column(WEIGHT).to_pylist() == [4]
    assert left.schema.equals(rows.schema)


@EITHER
def test_rows_that_wait_are_living_unmarked_and_of_their_time(backend: str) -> None:
    held = opened(MARKED, backend)
    assert held.oldest_living_us() is None
    for rows in ([("a", 1, 0), ("b", 1, 5), ("c", 1, 30)], [("d", 1, 20)], [("e", 1, 4)]):
        added(held, rows)

    def waiting(first_us: int | None, last_us: int) -> list[str]:
        found = [row for one in held.waiting(first_us, last_us) for row in rows_of(one.table())]
        return sorted(key for key, _, _ in found if key is not None)

    assert waiting(None, 20) == ["a", "b", "d", "e"]
    assert waiting(5, 20) == ["b", "d"]
    assert held.oldest_living_us() == 0
    held.expire(10)
    assert waiting(None, 20) == ["b", "d", "e"]
    assert held.oldest_living_us() == 4
    pairs(held, [("e", 1, 4), ("d", 1, 20)], mark=True)
    assert waiting(None, 20) == ["b"]
    assert (held.oldest_living_us(unmarked=True), held.oldest_living_us()) == (5, 4)


def test_rows_are_probed_at_once_as_far_as_they_have_few_candidates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("laminar_core.state.arrangement.CANDIDATES_MAX", 1_000)
    held = Arrangement(PLAIN)
    keys = ("k", "n")
    cold = table([("cold", n, 1) for n in range(400)]).to_batches()[0]
    hot = table([("hot", 0, 1)] * 400).to_batches()[0]
    assert held.rows_at_once(hot, keys) == 400, "nothing is held"
    added(held, [("hot", 0, 1)] * 300)
    assert held.rows_at_once(hot, keys) == 3
    assert held.rows_at_once(cold, keys) == 400
    added(held, [("hot", 0, 1)] * 2_000)
    assert held.rows_at_once(hot, keys) == 1, "one row cannot be divided"
    (mixed,) = table([*(("cold", n, 1) for n in range(50)), *[("hot", 0, 1)] * 9]).to_batches()
    assert held.rows_at_once(mixed, keys) == 50


@pytest.mark.large
def test_rows_beyond_the_budget_are_not_in_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Goal: neither adding, nor merging, nor a snapshot holds much more than the budget."""
    monkeypatch.setattr("laminar_core.state.kept_rows.BLOCK_BYTES", 64 * 1024)
    monkeypatch.setattr("laminar_core.state.kept_rows.TABLE_BYTES_MAX", 1024 * 1024)
    layout = RowsLayout(("k",), pa.schema([("k", pa.int64()), ("v", pa.binary(200))]))
    backend = RocksBackend(tmp_path / "state", 4 * 1024 * 1024, in_memory_files=True)
    held = Arrangement(layout, backend.shelf(layout.schema))
    before, most = pa.total_allocated_bytes(), 0
    values = pa.array([b"v" * 200] * 4_000, pa.binary(200))
    for number in range(25):
        rows = pa.table([pa.array(np.arange(4_000) + 4_000 * number), values], layout.schema)
        held.add(held.arranged(rows, np.arange(4_000)))
        most = max(most, pa.total_allocated_bytes() - before)
    stored_rows = 0
    for stored_table in held.pin().stored_tables(MAX_PARALLELISM * 4):
        stored_rows += stored_table.num_rows
        most = max(most, pa.total_allocated_bytes() - before)
    assert stored_rows == held.row_count == 100_000
    assert most < 8 * 1024 * 1024, "of 20 MB of rows"
    backend.close()


@EITHER
def test_columns_may_be_called_like_those_of_ours(backend: str) -> None:
    fields = [("row time", pa.string()), ("upper half", pa.int64()), (WEIGHT, pa.int32())]
    layout = RowsLayout(("row time",), pa.schema(fields))
    held = opened(layout, backend)
    for weight in (1, 1, -1):
        rows = pa.table([["a", "b"], [1, 2], pa.array([weight] * 2, pa.int32())], layout.schema)
        held.add(held.arranged(rows, np.zeros(2, np.int64)))
    [stored_rows] = held.pin().stored_tables(MAX_PARALLELISM)
    assert sorted(stored_rows.column("row time").to_pylist()) == ["a", "b"]
    assert held.row_count == 2


def test_no_run_in_memory_has_more_text_than_can_be_taken_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arrangement, "OFFSETS_BYTES_MAX", 4_000)
    held = opened(WEIGHTED, "memory")
    for step in range(20):
        added(held, [(str(n), step, step) for n in range(20)], [1] * 20)
    assert len(held._runs) > 1
    assert all(run.rows.nbytes <= 4_000 for run in held._runs)
    assert held.row_count == 400


@EITHER
def test_large_runs_with_weights_are_merged_a_part_at_a_time(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: rows that were taken back do not stay for ever, however many there are."""
    monkeypatch.setattr(arrangement, "JOINED_BYTES_MAX", 1_000)
    monkeypatch.setattr(runs, "_BLOCKS_AT_ONCE", 4)
    held, there = opened(WEIGHTED, backend), 200
    for step in range(20):
        added(held, [(str(n), 0, step) for n in range(there)], [1] * there)
        if step:
            added(held, [(str(n), 0, step - 1) for n in range(there)], [-1] * there)
        held.take_changes()
        assert held.row_count <= 6 * there
    assert counted(merged(stored(held.pin()), WEIGHTED)) == {
        (str(n), 0, 19, False): 1 for n in range(there)
    }
