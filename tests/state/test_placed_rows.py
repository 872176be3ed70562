"""Rows with a place: the same windows, changes and tables as rows in buckets."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_core.aggregates.accumulators import Accumulator, accumulators_of
from laminar_core.errors import DataError
from laminar_core.operators import agg
from laminar_core.state import panes, placed_rows, window_state
from laminar_core.state.changed_keys import ChangedKeys
from laminar_core.state.chunks import MemoryShelf
from laminar_core.state.panes import Ground, Pane, PinnedPane, stored_tables
from laminar_core.state.placed_rows import PinnedPlaces, PlacedLayout, PlacedRows
from laminar_core.state.window_layout import KEY_GROUP, TIME_TYPE, WINDOW_START, StateLayout
from laminar_core.state.window_state import WindowState

ACCUMULATORS = accumulators_of((agg.sum("v"), agg.min("v"), agg.max("v"), agg.sum("f")))
TYPES = (pa.int64(), pa.int64(), pa.int64(), pa.int64(), pa.float64())
INTEGERS = [pa.int8(), pa.uint8(), pa.int16(), pa.uint32(), pa.int64(), pa.uint64()]
MAX_PARALLELISM = 8
Row = tuple[int, int]  # Key, v.


@pytest.fixture(autouse=True, scope="module")
def few_rows_will_do() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(placed_rows, "PLACED_ROWS_MIN", 1)
        patch.setattr(window_state, "FIRED_ROWS_MIN", 4)
        patch.setattr(panes, "TABLE_BYTES_MAX", 200)
        yield


def layout_of(
    key: pa.DataType | None = None,
    accumulators: Sequence[Accumulator] = ACCUMULATORS,
    types: Sequence[pa.DataType] = TYPES,
) -> StateLayout:
    states = [
        pa.field(each.name, data_type) for each, data_type in zip(accumulators, types, strict=True)
    ]
    schema = pa.schema([("k", key or pa.int64()), (WINDOW_START, TIME_TYPE), *states])
    return StateLayout(("k",), tuple(accumulators), schema, 10, 10, 0)


LAYOUT = layout_of()


def placed(layout: StateLayout = LAYOUT) -> PlacedRows:
    found = PlacedLayout.of(layout)
    assert found is not None
    return PlacedRows(found)


def rows(some: Iterable[Row], layout: StateLayout = LAYOUT) -> pa.Table:
    """Partial results of one input row each."""
    keys, values = zip(*some, strict=True)
    columns = [keys, [1] * len(keys), values, values, values, [value / 2 for value in values]]
    arrays = [
        pa.array(column, data_type)
        for column, data_type in zip(columns, layout.pane_schema.types, strict=True)
    ]
    return pa.table(arrays, schema=layout.pane_schema)


def keys_of(pinned: PinnedPlaces | None) -> list[int]:
    return [] if pinned is None else pinned.read().column("k").to_pylist()


def counts(pinned: PinnedPlaces | None) -> dict[int, int]:
    if pinned is None:
        return {}
    table = pinned.read()
    found = (table.column(name).to_pylist() for name in ("k", "count(*)"))
    return dict(zip(*found, strict=True))


# --- the same as in buckets -----------------------------------------------------------------------

ROW = st.tuples(st.integers(0, 30), st.integers(-9, 9))
ADDED = st.tuples(st.sampled_from([0, 10]), st.lists(ROW, min_size=1, max_size=9))
STEP = ADDED | st.sampled_from(["changes", "early", "snapshot", "restore", 5, 10, 20])


def opened(*, with_places: bool) -> tuple[WindowState, Ground]:
    found = PlacedLayout.of(LAYOUT) if with_places else None
    ground = Ground(LAYOUT, MemoryShelf(), MAX_PARALLELISM, range(MAX_PARALLELISM), found)
    return WindowState(LAYOUT, ground, ChangedKeys(("k",))), ground


def as_rows(tables: Iterable[pa.Table]) -> list[tuple]:
    return [tuple(row.values()) for table in tables for row in table.to_pylist()]


def is_sorted(table: pa.Table) -> bool:
    groups, starts = (
        table.column(name).cast(pa.int64()).to_numpy() for name in (KEY_GROUP, WINDOW_START)
    )
    return bool((np.lexsort((starts, groups)) == np.arange(table.num_rows)).all())


def stored(pinned: Sequence[PinnedPane], ground: Ground) -> list[tuple]:
    tables = list(stored_tables(pinned, ground))
    before = -1
    for table in tables:
        assert table.schema == LAYOUT.stored_schema
        assert table[KEY_GROUP][0].as_py() > before
        before = table[KEY_GROUP][-1].as_py()
        assert is_sorted(table)
        assert (ground.groups_of(table.drop_columns([KEY_GROUP])) == table[KEY_GROUP]).all()
    return sorted(as_rows(tables))


@settings(deadline=None)
@given(st.lists(STEP, max_size=14))
def test_windows_changes_and_snapshots_are_those_of_rows_in_buckets(steps: list) -> None:
    both = [opened(with_places=True), opened(with_places=False)]
    for step in [*steps, 100]:
        found: list[list[tuple]] = []
        for number, (state, ground) in enumerate(both):
            match step:
                case (int() as start_us, some):
                    starts = pa.array([start_us] * len(some), TIME_TYPE)
                    state.add(rows(some).add_column(1, LAYOUT.schema.field(1), starts))
                case "changes":
                    found.append(stored(state.take_changes(), ground))
                case "early":
                    found.append(sorted(as_rows(state.take_changed())))
                case "snapshot":
                    found.append(stored(state.pin(), ground))
                case "restore":
                    tables = list(stored_tables(state.pin(), ground))
                    both[number] = opened(with_places=number == 0)
                    both[number][0].restore(tables, state.watermark_us, 0)
                case int():
                    found.append(sorted(as_rows(state.advance(step))))
        assert not found or found[0] == found[1]


@pytest.mark.parametrize("key", INTEGERS, ids=str)
def test_integers_of_all_types_have_places_up_to_their_limits(key: pa.DataType) -> None:
    layout = layout_of(key)
    limits = np.iinfo(key.to_pandas_dtype())
    for ends in (range(limits.min, limits.min + 3), range(limits.max - 2, limits.max + 1)):
        made = placed(layout)
        assert made.add(rows([(ends[1], 1)], layout))
        assert made.add(rows([(each, 1) for each in ends], layout))
        pinned = made.pin()
        assert pinned is not None
        assert pinned.read().schema == layout.pane_schema
        assert keys_of(pinned) == list(ends)


# --- what is pinned -------------------------------------------------------------------------------


def test_what_is_pinned_does_not_change() -> None:
    made = placed()
    assert (made.pin(), made.take_fresh()) == (None, None)
    assert made.add(rows([(1, 5), (2, 5)]))
    before = made.pin()
    assert made.add(rows([(1, 5)]))
    first = made.take_fresh()
    assert made.add(rows([(2, 5), (3, 5)]))
    middle = made.pin()
    second = made.take_fresh()
    assert made.add(rows([(1, 5), (4, 5)]))
    assert counts(made.take_fresh()) == {1: 1, 4: 1}
    assert made.add(rows([(2, 5)]))
    both = made.pin()
    assert counts(before) == {1: 1, 2: 1}
    assert counts(first) == {1: 2, 2: 1}
    assert counts(middle) == {1: 2, 2: 2, 3: 1}
    assert counts(second) == {2: 1, 3: 1}
    assert counts(made.take_fresh()) == {2: 1}
    assert made.take_fresh() is None, "nothing has come since"
    assert counts(both) == {1: 3, 2: 3, 3: 1, 4: 1}
    assert counts(middle) == {1: 2, 2: 2, 3: 1}
    assert counts(made.pin()) == {1: 3, 2: 3, 3: 1, 4: 1}


def test_additions_in_several_chunks_are_one_batch() -> None:
    made = placed()
    assert made.add(pa.concat_tables([rows([(1, 5)]), rows([(2, 5), (1, 5)])]))
    assert counts(made.pin()) == {1: 2, 2: 1}


def test_infinite_sums_are_results_like_any_other() -> None:
    made = placed()
    at = LAYOUT.pane_schema.get_field_index("sum(f)")
    for value in (np.inf, -np.inf):
        some = rows([(1, 5)])
        assert made.add(some.set_column(at, some.schema.field(at), [pa.array([value])]))
        made.take_fresh()
    pinned = made.pin()
    assert pinned is not None
    assert np.isnan(pinned.read().column("sum(f)")[0].as_py())


def test_rows_and_bytes_are_those_of_keys_not_of_places() -> None:
    made = placed()
    assert made.add(rows([(0, 1), (5, 1), (5, 1)]))
    fresh = made.take_fresh()
    assert fresh is not None
    assert (fresh.row_count, fresh.size_bytes) == (2, fresh.read().nbytes)
    assert made.add(rows([(5, 1)]))
    pinned = made.pin()
    assert pinned is not None
    assert pinned.row_count == 3, "one of each half"
    assert pinned.read().num_rows == 2


# --- what has no place ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "layout",
    [
        layout_of(pa.string()),
        replace(LAYOUT, slide_us=5),
        replace(LAYOUT, slide_us=5, grows_from_us=0),
        replace(LAYOUT, grows_from_us=0),
        replace(LAYOUT, keys=("k", "j"), schema=LAYOUT.schema.insert(1, pa.field("j", pa.int64()))),
        replace(LAYOUT, keys=(), schema=LAYOUT.schema.remove(0)),
        layout_of(types=(*TYPES[:2], pa.float64(), *TYPES[3:])),
        layout_of(types=(*TYPES[:4], pa.decimal128(20, 2))),
        layout_of(None, accumulators_of((agg.stddev_pop("v"),)), (pa.int64(), pa.float64())),
    ],
    ids=[
        "text", "sliding", "growing", "growing at once", "two keys", "no key", "extreme of floats",
        "decimal", "state function",
    ],
)  # fmt: skip
def test_other_layouts_have_no_places(layout: StateLayout) -> None:
    assert PlacedLayout.of(layout) is None


def with_column(name: str, values: list[int | None]) -> pa.Table:
    table = rows([(1, 1)] * len(values))
    at = table.schema.get_field_index(name)
    return table.set_column(at, table.schema.field(at), [pa.array(values, pa.int64())])


@pytest.mark.parametrize(
    "refused",
    [
        with_column("k", [1, None]),
        with_column("min(v)", [1, None]),
        with_column("count(*)", [1, 0]),
        rows([(0, 1), (30, 1)]),
        rows([(-20, 1)]),
        rows([(2**63 - 1, 1)]),
        rows([(-(2**63), 1), (2**63 - 1, 1)]),
        rows([(2, 2**62), (2, 1)]),
        rows([(2, -(2**62)), (2, 1)]),
        LAYOUT.pane_schema.empty_table(),
    ],
    ids=[
        "null key",
        "null",
        "count",
        "wide",
        "far",
        "farthest",
        "widest",
        "large",
        "very negative",
        "empty",
    ],
)
def test_rows_without_a_place_leave_everything_as_it_is(refused: pa.Table) -> None:
    made = placed()
    assert made.add(rows([(1, 5)]))
    assert not made.add(refused)
    assert counts(made.pin()) == {1: 1}


def test_few_rows_get_arrays_only_together_with_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placed_rows, "PLACED_ROWS_MIN", 3)
    made = placed()
    assert not made.add(rows([(1, 1), (2, 1)]))
    assert made.add(rows([(1, 1), (2, 1), (3, 1)]))
    assert made.add(rows([(1, 1)]))
    assert counts(made.take_fresh()) == {1: 2, 2: 1, 3: 1}
    assert not made.add(rows([(1, 1), (2, 1)])), "they would copy arrays of all keys"


def test_places_are_limited_by_keys_and_by_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    made = placed()
    assert made.add(rows([(n, 1) for n in range(10)]))
    assert not made.add(rows([(52, 1)])), "53 places for 11 keys, and none to spare"
    assert made.add(rows([(51, 1)]))
    assert not made.add(rows([(-10_000, 1)]))
    assert sorted(counts(made.take_fresh())) == [*range(10), 51]
    assert not made.add(rows([(1_000 + n, 1) for n in range(10)])), "too far from what is settled"
    assert made.add(rows([(n, 1) for n in range(60, 70)]))
    monkeypatch.setattr(placed_rows, "BYTES_MAX", 70 * 8 * len(TYPES))
    assert not made.add(rows([(n, 1) for n in range(60, 71)]))
    assert sorted(counts(made.pin())) == [*range(10), 51, *range(60, 70)]


def test_a_sum_that_has_become_smaller_has_room_again() -> None:
    made = placed()
    half = 2**61
    for value in (half, -half, half, -half, 7):
        assert made.add(rows([(1, value)]))
    pinned = made.pin()
    assert pinned is not None
    assert pinned.read().column("sum(v)").to_pylist() == [7]
    assert made.take_fresh() is not None
    assert made.add(rows([(1, half)]))
    assert made.add(rows([(2, half), (3, half)]))
    assert not made.add(rows([(1, 3 * half)])), "it might not fit"


@pytest.fixture
def made_of(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of places of each half that is made, in order."""
    found: list[int] = []
    half = PlacedLayout.half
    monkeypatch.setattr(
        PlacedLayout, "half", lambda self, keys: found.append(len(keys)) or half(self, keys)
    )
    return found


def test_arrays_are_seldom_copied_while_keys_come_in_order(made_of: list[int]) -> None:
    made = placed()
    for start in range(0, 2_000, 20):
        assert made.add(rows([(n, 1) for n in range(start, start + 20)]))
    assert sorted(counts(made.take_fresh())) == list(range(2_000))
    assert len(made_of) < 15
    made_of.clear()
    for start in range(0, 2_000, 20):
        assert made.add(rows([(n, 1) for n in range(start, start + 20)]))
    assert len(made_of) == 1, "as many keys are expected as before"


@pytest.mark.parametrize("step", [4, 5, 6])
def test_sparse_keys_in_order_leave_the_arrays_before_they_are_copied_for_each_batch(
    step: int, made_of: list[int]
) -> None:
    made = placed()
    added = 0
    for start in range(0, 200 * 20 * step, 20 * step):
        added += made.add(rows([(n, 1) for n in range(start, start + 20 * step, step)]))
    assert len(made_of) < 40
    assert sum(made_of) < 60 * 20 * added


# --- panes ----------------------------------------------------------------------------------------


def ground() -> Ground:
    found = PlacedLayout.of(LAYOUT)
    return Ground(LAYOUT, MemoryShelf(), MAX_PARALLELISM, range(MAX_PARALLELISM), found)


def test_a_pane_has_rows_with_and_without_a_place() -> None:
    of = ground()
    pane = Pane(50, of)
    assert pane.take_fresh().is_empty()
    pane.add(rows([(1, 1), (2, 1)]))
    alone = pane.pin()
    assert (alone.is_reduced, alone.is_empty(), alone.row_count) == (True, False, 2)
    pane.add(rows([(1, 1), (10_000, 1)]))
    mixed = pane.take_fresh()
    assert (mixed.is_reduced, mixed.row_count) == (False, 4)
    assert mixed.size_bytes == 4 * alone.size_bytes // 2
    table = pa.concat_tables(stored_tables([mixed], of))
    assert sorted(zip(table["k"].to_pylist(), table["count(*)"].to_pylist(), strict=True)) == [
        (1, 2), (2, 1), (10_000, 1),
    ]  # fmt: skip


def test_a_sum_beyond_64_bits_is_found_where_rows_with_and_without_a_place_meet() -> None:
    of = ground()
    pane = Pane(50, of)
    pane.add(rows([(1, 2**62)]))
    pane.add(rows([(1, 2**62)]))
    pinned = pane.pin()
    assert not pinned.is_reduced
    with pytest.raises(DataError, match="64 bits"):
        list(stored_tables([pinned], of))


def test_a_large_window_of_placed_rows_fires_in_parts_without_a_merge() -> None:
    state, _ = opened(with_places=True)
    some = rows([(n, 1) for n in range(30)])
    starts = pa.array([0] * 30, TIME_TYPE)
    state.add(some.add_column(1, LAYOUT.schema.field(1), starts))
    tables = list(state.advance(10))
    assert [table.num_rows for table in tables] == [4] * 7 + [2]
    assert [key for table in tables for key in table.column("k").to_pylist()] == list(range(30))
    assert all(table.schema == LAYOUT.schema for table in tables)
