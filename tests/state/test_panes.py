"""Panes in buckets: bounded pieces, the same rows, whatever shelf they are on."""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from laminar_core.aggregates.accumulators import ROW_COUNT
from laminar_core.state import panes, window_layout
from laminar_core.state.chunks import MemoryBackend, StateBackend
from laminar_core.state.panes import Ground, Pane, halves, stored_tables
from laminar_core.state.rocks_chunks import RocksBackend
from laminar_core.state.window_layout import KEY_GROUP, TIME_TYPE, WINDOW_START, StateLayout

SCHEMA = pa.schema([("k", pa.int64()), (WINDOW_START, TIME_TYPE), ("count(*)", pa.int64())])
LAYOUT = StateLayout(("k",), (ROW_COUNT,), SCHEMA, 10, 10, 0)
OWNED = range(3, 20)


@pytest.fixture(params=["memory", "rocksdb"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StateBackend]:
    opened = (
        MemoryBackend()
        if request.param == "memory"
        else RocksBackend(tmp_path / "state", 0, in_memory_files=True)
    )
    yield opened
    opened.close()


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in [
        ("PENDING_ROWS_MIN", 200),
        ("BUCKET_ROWS_MAX", 300),
        ("GATHERED_ROWS_MAX", 500),
        ("TIDIED_ROWS_MAX", 500),
        ("TABLE_BYTES_MAX", 4_000),
    ]:
        monkeypatch.setattr(panes, name, value)


@pytest.fixture
def merged_rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of rows of each merge, in order."""
    counted: list[int] = []
    merge = window_layout.merge

    def counting(rows: pa.Table, *rest: Any) -> pa.Table:
        counted.append(len(rows))
        return merge(rows, *rest)

    monkeypatch.setattr(window_layout, "merge", counting)
    return counted


def ground(backend: StateBackend) -> Ground:
    return Ground(LAYOUT, backend.shelf(LAYOUT.pane_schema), 128, OWNED)


def owned_keys(of: Ground, rows: int) -> list[int]:
    """Keys of which the subtask owns the key groups."""
    candidates = pa.table({"k": pa.array(range(20 * rows), pa.int64())})
    groups = of.groups_of(candidates)
    return np.flatnonzero((groups >= OWNED.start) & (groups < OWNED.stop)).tolist()[:rows]


def rows(keys: Iterable[int]) -> pa.Table:
    keys = list(keys)
    return pa.table([keys, [1] * len(keys)], schema=LAYOUT.pane_schema)


def counts(tables: Iterable[pa.Table]) -> Counter[int]:
    found: Counter[int] = Counter()
    for table in tables:
        keys, of_key = (table.column(name).to_pylist() for name in ("k", "count(*)"))
        for key, count in zip(keys, of_key, strict=True):
            found[key] += count
    return found


def filled(of: Ground, keys: list[int], rounds: int = 4, batch: int = 100) -> Pane:
    pane = Pane(50, of)
    for _ in range(rounds):
        for first in range(0, len(keys), batch):
            pane.add(rows(keys[first : first + batch]))
    return pane


def test_halving_ends_at_a_single_key_group() -> None:
    assert halves(range(4, 9)) == (range(4, 6), range(6, 9))
    assert halves(range(4, 5)) == (range(4, 5),)


@pytest.mark.parametrize("parts", [1, 2, 5, 17, 1000])
def test_ranges_are_disjoint_and_cover_the_subtask(backend: StateBackend, parts: int) -> None:
    ranges = ground(backend).ranges_for(parts)
    assert [group for groups in ranges for group in groups] == list(OWNED)
    assert len(ranges) >= min(parts, len(OWNED))


def test_a_large_pane_is_in_buckets_and_none_of_its_merges_is_large(
    backend: StateBackend, merged_rows: list[int]
) -> None:
    of = ground(backend)
    keys = owned_keys(of, 4_000)
    pane = filled(of, keys)
    pinned = pane.pin()
    assert len(pinned.buckets) >= 8
    assert max(merged_rows) < 2_000
    assert pinned.row_count < 4 * len(keys)
    assert counts(pinned.tables()) == Counter(dict.fromkeys(keys, 4))


def test_tidying_leaves_off_when_enough_was_merged(
    backend: StateBackend, merged_rows: list[int]
) -> None:
    """Goal: no single batch pays for all the buckets, although all become due together."""
    of = ground(backend)
    keys = owned_keys(of, 4_000)
    pane = filled(of, keys)
    worst = 0
    for first in range(0, len(keys), 100):
        merged_rows.clear()
        pane.add(rows(keys[first : first + 100]))
        worst = max(worst, sum(merged_rows))
    assert worst < 3_000


def test_changes_and_what_was_there_add_up(backend: StateBackend) -> None:
    of = ground(backend)
    keys = owned_keys(of, 3_000)
    pane = filled(of, keys)
    first = pane.take_fresh()
    pane.add(rows(keys[:50]))
    second = pane.take_fresh()
    assert counts(first.tables()) == Counter(dict.fromkeys(keys, 4))
    assert counts(second.tables()) == Counter(dict.fromkeys(keys[:50], 1))
    assert pane.take_fresh().is_empty()
    assert counts(pane.pin().tables()) == counts(first.tables()) + counts(second.tables())


def test_rows_that_are_pending_when_a_bucket_is_halved_go_along(backend: StateBackend) -> None:
    """Goal: both runs are cut, also the one whose turn it was not."""
    of = ground(backend)
    keys = owned_keys(of, 2_000)
    pane, expected, changes = Pane(50, of), Counter(), Counter()
    for number, first in enumerate([*range(0, 2_000, 100)] * 3):
        some = keys[first : first + 100]
        pane.add(rows(some))
        expected.update(some)
        if number % 7 == 6:
            changes += counts(pane.take_fresh().tables())
    assert len(pane.pin().buckets) > 2
    assert counts(pane.pin().tables()) == expected
    assert changes + counts(pane.take_fresh().tables()) == expected


def test_rows_of_few_key_groups_are_in_small_buckets_too(
    backend: StateBackend, merged_rows: list[int]
) -> None:
    """Goal: a restore, which has segments in the order of key groups, merges no large buckets."""
    of = ground(backend)
    keys = np.array(owned_keys(of, 6_000))
    order = np.argsort(of.groups_of(rows(keys.tolist())), kind="stable")
    pane = Pane(50, of)
    for part in np.array_split(keys[order], 12):
        pane.add(rows(part.tolist()))
    assert max(merged_rows) < 2_500
    assert counts(pane.pin().tables()) == Counter(keys.tolist())


def stored_rows(of: Ground, keys: list[int]) -> pa.Table:
    """The table of a checkpoint with these keys, without the start of the window."""
    pane = Pane(50, of)
    pane.add(rows(keys))
    return pa.concat_tables(stored_tables([pane.pin()], of)).drop_columns([WINDOW_START])


def test_a_restore_merges_nothing_and_fills_small_buckets(
    backend: StateBackend, merged_rows: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(panes, "_CUT_ROWS_MIN", 10)
    of = ground(backend)
    keys = owned_keys(of, 6_000)
    stored = stored_rows(of, keys)
    merged_rows.clear()
    pane = Pane(50, of)
    for first in range(0, 6_000, 1_500):
        pane.restore(stored.slice(first, 1_500))
    assert merged_rows == []
    pinned = pane.pin()
    assert counts(pinned.tables()) == Counter(keys)
    # A key group of several hundred rows is a bucket of its own.
    assert max(sum(c.row_count for c in chunks) for _, chunks in pinned.buckets) < 800
    assert counts(pane.take_fresh().tables()) == Counter(keys)


def test_restored_changes_follow_what_they_change(backend: StateBackend) -> None:
    of = ground(backend)
    keys = owned_keys(of, 3_000)
    pane = Pane(50, of)
    for some in (keys, keys[::3], keys[:70]):
        pane.restore(stored_rows(of, some))
    pane.add(rows(keys[:10]))
    expected = Counter(keys) + Counter(keys[::3]) + Counter(keys[:70]) + Counter(keys[:10])
    assert counts(pane.pin().tables()) == expected
    for groups, chunks in pane.pin().buckets:
        for chunk in chunks:
            assert set(of.groups_of(chunk.read()).tolist()) <= set(groups)


def test_a_stored_table_that_is_not_sorted_is_restored_as_well(backend: StateBackend) -> None:
    of = ground(backend)
    keys = owned_keys(of, 2_000)
    stored = stored_rows(of, keys)
    pane = Pane(50, of)
    pane.restore(stored.take(pa.array(np.random.default_rng(3).permutation(stored.num_rows))))
    assert counts(pane.pin().tables()) == Counter(keys)
    for groups, chunks in pane.pin().buckets:
        for chunk in chunks:
            assert set(of.groups_of(chunk.read()).tolist()) <= set(groups)


def test_a_restored_part_does_not_keep_the_whole_file_in_memory() -> None:
    of = ground(MemoryBackend())
    pane = Pane(50, of)
    pane.restore(stored_rows(of, owned_keys(of, 4_000)))
    tables = pane.pin().tables()
    assert sum(table.get_total_buffer_size() for table in tables) < 2 * sum(
        table.nbytes for table in tables
    )


def test_stored_tables_are_small_disjoint_and_sorted(backend: StateBackend) -> None:
    of = ground(backend)
    keys = owned_keys(of, 3_000)
    large, little = filled(of, keys), Pane(60, of)
    little.add(rows(keys[:40]))
    stored = list(stored_tables([large.pin(), little.pin()], of))
    assert len(stored) > 8
    before = -1
    for table in stored:
        assert table.schema == LAYOUT.stored_schema
        groups, starts = (
            table.column(name).cast(pa.int64()).to_numpy() for name in (KEY_GROUP, WINDOW_START)
        )
        assert groups[0] > before
        assert (np.lexsort((starts, groups)) == np.arange(len(groups))).all()
        assert (of.groups_of(table.drop_columns([KEY_GROUP])) == groups).all()
        before = groups[-1]
    expected = Counter(dict.fromkeys(keys, 4)) + Counter(keys[:40])
    assert counts(stored) == expected
    assert sum(table.num_rows for table in stored) == len(keys) + 40, "one row per key and window"


def test_a_pin_outlives_what_happens_to_the_pane(backend: StateBackend) -> None:
    of = ground(backend)
    keys = owned_keys(of, 1_000)
    pane = filled(of, keys, rounds=1)
    pinned = pane.pin()
    for _ in range(5):
        for first in range(0, len(keys), 100):
            pane.add(rows(keys[first : first + 100]))
    del pane
    assert counts(stored_tables([pinned], of)) == Counter(keys)


def test_a_part_that_stays_does_not_keep_the_others_alive(backend: StateBackend) -> None:
    of = ground(backend)
    table = rows(owned_keys(of, 10_000))
    parts = [part for _, part in of.split(table, of.ranges_for(16))]
    assert sum(part.num_rows for part in parts) == 10_000
    assert all(part.get_total_buffer_size() < 3 * part.nbytes + 1_000 for part in parts)


class GigabytesOfText:
    """A table that stays in several chunks: Arrow makes no chunk with more than 2 GiB of text."""

    def __init__(self, table: pa.Table) -> None:
        self.num_rows = table.num_rows
        self._table = table

    def combine_chunks(self) -> pa.Table:
        return self._table


def test_a_table_that_stays_in_several_chunks_is_split_whole(backend: StateBackend) -> None:
    of = ground(backend)
    keys = owned_keys(of, 3_000)
    pieces = [rows(keys[first::3]) for first in range(3)]
    table = pa.concat_tables(pieces)
    assert table.column("k").num_chunks == len(pieces)
    ranges = of.ranges_for(8)
    parts = dict(of.split(GigabytesOfText(table), ranges))
    expected = dict(of.split(table, ranges))
    assert parts.keys() == expected.keys()
    assert all(part.equals(expected[position]) for position, part in parts.items())
