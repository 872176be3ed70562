"""Merge-on-read panes: bounded memory, bounded work, snapshots that cost nothing to pin."""

import numpy as np
import pyarrow as pa
import pytest

from laminar_core.aggregates.accumulators import ROW_COUNT, Accumulator
from laminar_core.codec.key_groups import key_groups_of
from laminar_core.state import window_layout
from laminar_core.state.chunks import MemoryShelf
from laminar_core.state.expiry import unexpired
from laminar_core.state.panes import (
    PENDING_ROWS_MIN,
    PENDING_TABLES_MAX,
    Ground,
    PinnedPane,
    stored_tables,
)
from laminar_core.state.window_layout import KEY_GROUP, TIME_TYPE, WINDOW_START, StateLayout
from laminar_core.state.window_state import (
    WindowState,
    merge_stored,
    owned_rows,
    rows_of_key_groups,
    split_by_window,
)

SUM = Accumulator("sum", "v")
SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        (WINDOW_START, TIME_TYPE),
        ("count(*)", pa.int64()),
        ("sum(v)", pa.int64()),
    ]
)


def layout(size_us: int = 10, slide_us: int = 10, lateness_us: int = 0) -> StateLayout:
    return StateLayout(("k",), (ROW_COUNT, SUM), SCHEMA, size_us, slide_us, lateness_us)


def partial(*rows: tuple[str, int, int]) -> pa.Table:
    """Accumulators of (key, window start, sum of v), each of one input row."""
    keys, starts, sums = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.table([keys, starts, [1] * len(rows), sums], names=SCHEMA.names).cast(SCHEMA)


def fired(state: WindowState, watermark_us: int) -> list[tuple]:
    return [row for table in state.advance(watermark_us) for row in as_tuples(table)]


def as_tuples(table: pa.Table) -> list[tuple]:
    position = table.schema.get_field_index(WINDOW_START)
    table = table.set_column(position, WINDOW_START, table.column(position).cast(pa.int64()))
    return [tuple(row.values()) for row in table.to_pylist()]


def opened(*rows: tuple[str, int, int], **shape: int) -> WindowState:
    state = WindowState(layout(**shape))
    state.add(partial(*rows))
    return state


def test_a_window_fires_once_when_the_watermark_reaches_its_end() -> None:
    state = opened(("a", 0, 1), ("b", 0, 2), ("a", 10, 4), ("a", 0, 8))
    assert fired(state, 9) == []
    assert fired(state, 10) == [("a", 0, 2, 9), ("b", 0, 1, 2)]
    assert fired(state, 10) == fired(state, 19) == []
    assert fired(state, 20) == [("a", 10, 1, 4)]


def test_lateness_delays_the_firing() -> None:
    state = opened(("a", 0, 1), lateness_us=5)
    assert fired(state, 14) == []
    assert fired(state, 15) == [("a", 0, 1, 1)]


def test_several_windows_fire_in_their_order() -> None:
    state = opened(("a", 20, 1), ("a", 0, 2), ("a", 10, 4))
    assert [row[1] for row in fired(state, 30)] == [0, 10, 20]


def test_a_pane_counts_in_every_sliding_window_over_it() -> None:
    state = opened(("a", 0, 1), ("a", 10, 2), size_us=20, slide_us=10)
    assert fired(state, 10) == [("a", -10, 1, 1)]
    assert fired(state, 30) == [("a", 0, 2, 3), ("a", 10, 1, 2)]
    assert state.pin() == ()


def test_a_row_that_some_window_waits_for_is_not_late() -> None:
    state = opened(("a", 0, 1), size_us=20, slide_us=10)
    fired(state, 10)
    state.add(partial(("a", 0, 2)))
    assert fired(state, 20) == [("a", 0, 2, 3)]
    state.add(partial(("a", 0, 4)))
    assert (state.late_row_count, fired(state, 100)) == (1, [])


def test_late_rows_are_counted_as_input_rows() -> None:
    state = WindowState(layout())
    fired(state, 10)
    late = partial(("a", 0, 1), ("b", 10, 1)).set_column(2, "count(*)", pa.array([7, 5]))
    state.add(late)
    assert state.late_row_count == 7
    assert fired(state, 20) == [("b", 10, 5, 1)]


def test_a_watermark_that_goes_back_changes_nothing() -> None:
    state = WindowState(layout())
    fired(state, 50)
    assert fired(state, 10) == []
    assert state.watermark_us == 50


def test_the_state_advances_even_if_nobody_reads_the_results() -> None:
    state = opened(("a", 0, 1))
    results = state.advance(10)
    assert (state.watermark_us, state.pin()) == (10, ())
    state.add(partial(("a", 0, 1)))
    assert state.late_row_count == 1
    assert [as_tuples(table) for table in results] == [[("a", 0, 1, 1)]]


def test_nothing_is_open_before_the_first_row_and_after_the_last_firing() -> None:
    state = WindowState(layout())
    state.add(partial())
    assert (state.pin(), fired(state, 5)) == ((), [])
    state.add(partial(("a", 10, 1)))
    fired(state, 20)
    assert (state.pin(), state._next_firing_us) == ((), None)


def test_an_empty_look_at_the_panes_is_all_an_early_watermark_costs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = opened(*((str(i), 10 * i, 1) for i in range(100)))
    fired(state, 500)
    looked_at = []
    firing_of = WindowState._firing_of
    monkeypatch.setattr(
        WindowState, "_firing_of", lambda self, us: looked_at.append(us) or firing_of(self, us)
    )
    assert fired(state, 509) == []
    assert looked_at == []


def rows_held(state: WindowState) -> int:
    return sum(pane.row_count for pane in state.pin())


def stored_table(
    pinned: tuple[PinnedPane, ...], state_layout: StateLayout, max_parallelism: int
) -> pa.Table:
    """The only table of a small state; none is an empty one."""
    ground = Ground(state_layout, MemoryShelf(), max_parallelism, range(max_parallelism))
    tables = list(stored_tables(pinned, ground))
    assert len(tables) <= 1
    return tables[0] if tables else state_layout.stored_schema.empty_table()


def numbered(count: int, keys: int) -> pa.Table:
    return partial(*((str(i % keys), 0, 1) for i in range(count)))


def test_rows_are_held_in_proportion_to_the_keys_and_merged_a_bounded_number_of_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Goal: 40 batches of the same keys take the space of few, and each row few merges."""
    merged_rows = []
    merge = window_layout.merge
    monkeypatch.setattr(
        window_layout,
        "merge",
        lambda rows, *rest: merged_rows.append(len(rows)) or merge(rows, *rest),
    )
    state, batch = WindowState(layout()), numbered(10_000, 10_000)
    for _ in range(40):
        state.add(batch)
        assert rows_held(state) <= PENDING_ROWS_MIN + 10_000
    assert len(merged_rows) == 40 * 10_000 // (PENDING_ROWS_MIN + 10_000 - 1)
    assert sum(merged_rows) <= 2 * 40 * 10_000
    assert {(row[2], row[3]) for row in fired(state, 10)} == {(40, 40)}


def test_many_tiny_tables_become_few() -> None:
    state = WindowState(layout())
    for _ in range(3 * PENDING_TABLES_MAX):
        state.add(partial(("a", 0, 1)))
    [pane] = state.pin()
    assert len(pane.tables()) <= PENDING_TABLES_MAX + 1
    assert fired(state, 10) == [("a", 0, 3 * PENDING_TABLES_MAX, 3 * PENDING_TABLES_MAX)]


def test_a_few_rows_do_not_keep_a_large_batch_alive() -> None:
    """Goal: what a long-open window got from a batch is its own memory, not a view of it."""
    batch = pa.concat_tables([numbered(50_000, 10), partial(("far", 1_000, 1))])
    parts = dict(split_by_window(batch))
    assert parts[1_000].get_total_buffer_size() < 10_000


@pytest.mark.parametrize("windows", [1, 3, 4, 5, 40])
def test_splitting_keeps_every_row_and_their_order(windows: int) -> None:
    rows = [(str(i), (i * 7 % windows) * 10, i) for i in range(200)]
    parts = list(split_by_window(partial(*rows)))
    assert sorted(start for start, _ in parts) == sorted({row[1] for row in rows})
    for start, part in parts:
        expected = [(row[0], 1, row[2]) for row in rows if row[1] == start]
        assert [tuple(row.values()) for row in part.to_pylist()] == expected


def test_rows_after_the_pin_are_not_in_the_snapshot() -> None:
    state = opened(("a", 0, 1))
    pinned = state.pin()
    state.add(partial(("a", 0, 2), ("b", 10, 4)))
    fired(state, 100)
    assert as_tuples(stored_table(pinned, layout(), 128).drop_columns([KEY_GROUP])) == [
        ("a", 0, 1, 1)
    ]


def test_the_stored_table_has_one_row_per_key_and_window_by_key_group() -> None:
    keys = [str(i % 50) for i in range(400)]
    state = opened(*((key, 10 * (i % 3), i) for i, key in enumerate(keys)))
    stored = stored_table(state.pin(), layout(), 16)
    assert stored.schema == layout().stored_schema
    assert stored.num_rows == len({(key, i % 3) for i, key in enumerate(keys)})
    [batch] = stored.combine_chunks().to_batches()
    assert batch.column(KEY_GROUP).to_pylist() == key_groups_of(batch, ["k"], 16).tolist()
    order = list(zip(stored[KEY_GROUP].to_pylist(), stored[WINDOW_START].to_pylist(), strict=True))
    assert order == sorted(order)
    assert sum(stored["sum(v)"].to_pylist()) == sum(range(400))


def test_the_same_state_is_stored_the_same() -> None:
    rows = [(str(i % 7), 10 * (i % 3), i) for i in range(50)]
    first, second = (stored_table(opened(*rows).pin(), layout(), 16) for _ in range(2))
    assert first.equals(second)


def test_key_groups_are_cut_out_of_a_stored_table() -> None:
    state = opened(*((str(i), 0, i) for i in range(100)))
    stored = stored_table(state.pin(), layout(), 16)
    parts = [rows_of_key_groups(stored, groups) for groups in (range(5), range(5, 6), range(6, 16))]
    assert all(part.schema == SCHEMA for part in parts)
    assert sorted(row for part in parts for row in as_tuples(part)) == sorted(
        as_tuples(stored.drop_columns([KEY_GROUP]))
    )
    groups = [
        set(key_groups_of(part.combine_chunks().to_batches()[0], ["k"], 16)) for part in parts
    ]
    assert [max(group) for group in groups] == [4, 5, 15]


def test_restored_state_goes_on_where_it_was() -> None:
    state = opened(("a", 0, 1), ("a", 10, 2))
    fired(state, 10)
    stored = stored_table(state.pin(), layout(), 16)
    successor = WindowState(layout())
    successor.restore([owned_rows(stored, range(16))], state.watermark_us, 3)
    successor.add(partial(("a", 0, 1), ("a", 10, 4)))
    assert successor.late_row_count == 4
    assert fired(successor, 20) == [("a", 10, 2, 6)]


def test_without_keys_there_is_one_row_per_window() -> None:
    schema = SCHEMA.remove(0)
    keyless = StateLayout((), (ROW_COUNT, SUM), schema, 10, 10, 0)
    state = WindowState(keyless)
    for _ in range(3):
        state.add(partial(("a", 0, 1), ("b", 0, 2), ("c", 10, 4)).drop_columns(["k"]))
    stored = stored_table(state.pin(), keyless, 16)
    assert stored[KEY_GROUP].to_pylist() == [0, 0]
    assert fired(state, 100) == [(0, 6, 9), (10, 3, 12)]


def test_window_starts_survive_far_from_1970() -> None:
    starts = [-(2**61), 2**61]
    state = opened(*(("a", start, 1) for start in starts))
    assert [row[1] for row in fired(state, 2**63 - 1)] == starts


def test_times_are_stored_as_microseconds_utc() -> None:
    stored = stored_table(opened(("a", 0, 1)).pin(), layout(), 16)
    assert stored.schema.field(WINDOW_START).type == pa.timestamp("us", tz="UTC")
    assert np.asarray(stored[WINDOW_START].cast(pa.int64())).tolist() == [0]


# --- what changed -------------------------------------------------------------------------------


def changes(state: WindowState) -> list[tuple]:
    stored = stored_table(state.take_changes(), layout(), 16)
    return sorted(as_tuples(stored.drop_columns([KEY_GROUP])))


def test_changes_are_what_came_since_they_were_taken_last() -> None:
    state = opened(("a", 0, 1), ("b", 0, 2), ("a", 10, 4))
    assert changes(state) == [("a", 0, 1, 1), ("a", 10, 1, 4), ("b", 0, 1, 2)]
    state.add(partial(("a", 0, 8), ("a", 0, 16), ("c", 10, 32)))
    assert changes(state) == [("a", 0, 2, 24), ("c", 10, 1, 32)]
    assert changes(state) == []


def test_taking_changes_takes_nothing_from_the_state() -> None:
    state = opened(("a", 0, 1))
    changes(state)
    state.add(partial(("a", 0, 2)))
    changes(state)
    assert fired(state, 10) == [("a", 0, 2, 3)]


def test_changes_of_windows_that_have_fired_are_gone() -> None:
    state = opened(("a", 0, 1), ("a", 10, 2))
    fired(state, 10)
    assert changes(state) == [("a", 10, 1, 2)]


def test_restored_rows_count_as_changes() -> None:
    state = WindowState(layout())
    state.restore([stored_table(opened(("a", 0, 1)).pin(), layout(), 16)], None, 0)
    assert changes(state) == [("a", 0, 1, 1)]


def test_stored_changes_add_up_without_what_is_finished() -> None:
    state = opened(("a", 0, 1), ("b", 0, 2), ("a", 10, 4))
    tables = [stored_table(state.take_changes(), layout(), 16)]
    state.add(partial(("a", 0, 8), ("a", 10, 16)))
    tables.append(stored_table(state.take_changes(), layout(), 16))
    together = merge_stored(iter(tables), layout(), None)
    assert together.equals(stored_table(state.pin(), layout(), 16))
    open_rows = merge_stored(iter(tables), layout(), 0)
    assert as_tuples(open_rows.drop_columns([KEY_GROUP])) == [("a", 10, 2, 20)]


def test_merging_nothing_is_an_empty_table_of_the_same_columns() -> None:
    assert merge_stored([], layout(), 5).equals(layout().stored_schema.empty_table())


@pytest.mark.parametrize(("finished_us", "left"), [(None, 3), (-1, 3), (0, 2), (10, 1), (20, 0)])
def test_rows_of_finished_panes_are_left_out(finished_us: int | None, left: int) -> None:
    rows = partial(("a", 0, 1), ("a", 10, 2), ("a", 20, 4))
    assert unexpired("", rows, finished_us).num_rows == left


def test_owned_rows_are_not_copied_where_they_are_neighbours() -> None:
    stored = stored_table(opened(*((str(i), 0, i) for i in range(100))).pin(), layout(), 16)
    assert owned_rows(stored, range(16)) is stored
    groups = stored[KEY_GROUP].to_pylist()
    middle = owned_rows(stored, range(5, 9))
    assert middle[KEY_GROUP].to_pylist() == [group for group in groups if 5 <= group < 9]
    whole, part = (table["k"].chunk(0).buffers()[2].address for table in (stored, middle))
    assert whole == part
    shuffled = stored.take(pa.array([*range(1, 100, 2), *range(0, 100, 2)]))
    assert sorted(owned_rows(shuffled, range(5, 9))["k"].to_pylist()) == sorted(
        middle["k"].to_pylist()
    )
    assert owned_rows(stored, range(20, 30)).num_rows == 0
