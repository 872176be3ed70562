"""Rows by key against a dictionary: totals, cuts, changes, and how much is held."""

import random
import tracemalloc
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_core.aggregates.accumulators import accumulate, accumulators_of
from laminar_core.errors import DataError
from laminar_core.operators import agg
from laminar_core.state.keyed_rows import MISSING, KeyedRows, RowLayout, newest_rows, same_keys
from laminar_core.state.window_state import KEY_GROUP, rows_of_key_groups
from tests.sampling import drawn
from tests.state.shelves import shelf_of, stored

KEYS = ("k", "n")
NEEDED = accumulators_of([agg.sum("v"), agg.count_distinct("v")])
Row = tuple[str | None, int, int]


def partial(rows: list[Row]) -> pa.Table:
    k, n, v = zip(*rows, strict=True) if rows else ((), (), ())
    table = pa.table(
        {"k": pa.array(k, pa.string()), "n": pa.array(n, pa.int16()), "v": pa.array(v, pa.int64())}
    )
    return accumulate({key: table.column(key) for key in KEYS}, table, NEEDED)


LAYOUT = RowLayout(KEYS, NEEDED, partial([]).schema)


def opened(backend: str) -> KeyedRows:
    return KeyedRows(LAYOUT, shelf_of(backend, LAYOUT.schema))


@pytest.fixture(autouse=True, scope="module")
def small_blocks() -> Iterator[None]:
    """Let even small tables have several blocks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("laminar_core.state.kept_rows.BLOCK_BYTES", 80)
        yield


def as_model(table: pa.Table) -> dict:
    found = {}
    for row in table.drop_columns([c for c in [KEY_GROUP] if c in table.column_names]).to_pylist():
        key, state = (row.pop("k"), row.pop("n")), tuple(map(str, row.values()))
        assert key not in found, "each key once"
        found[key] = state
    return found


def expected(history: list[Row]) -> dict:
    groups: dict = {}
    for k, n, v in history:
        groups.setdefault((k, n), []).append(v)
    return {key: (str(len(vs)), str(sum(vs)), str(sorted(set(vs)))) for key, vs in groups.items()}


ROW = st.tuples(st.sampled_from(["a", "b", "", None]), st.integers(0, 3), st.integers(-3, 3))
BACKENDS = st.sampled_from([("rocksdb", "memory"), ("memory", "rocksdb")])
STEPS = st.lists(st.lists(ROW, max_size=8) | st.just("cut"), max_size=14)


@settings(deadline=None, max_examples=drawn(80))
@given(STEPS)
def test_totals_changes_and_cuts_are_those_of_a_dictionary(steps: list) -> None:
    """Goal: after any batches and cuts, the changes of all cuts together are the state.

    With both backends, and they have the same segments.
    """
    assert cuts_of(steps, "memory") == cuts_of(steps, "rocksdb")


def cuts_of(steps: list, backend: str) -> list[list[dict]]:
    """Do the steps, with all checks; return the rows of each cut."""
    rows, history, changed, cuts = opened(backend), [], set(), []
    for step in steps:
        if step == "cut":
            changes = stored(rows.take_changes())
            assert set(as_model(changes)) == changed
            cuts.append(changes)
            changed = set()
            assert as_model(newest_rows(cuts, KEYS, LAYOUT.stored_schema)) == expected(history)
            continue
        history += step
        totals = as_model(rows.update(partial(step)))
        batch_keys = {(k, n) for k, n, _ in step}
        changed |= batch_keys
        assert totals == {
            key: state for key, state in expected(history).items() if key in batch_keys
        }
        assert as_model(rows.rows()) == expected(history)
        assert len(rows) == len(expected(history))
    return [table.to_pylist() for table in cuts]


@settings(deadline=None, max_examples=drawn(30))
@given(st.lists(st.lists(ROW, max_size=8), max_size=6), st.lists(ROW, max_size=8), BACKENDS)
def test_what_was_pinned_restores_with_the_other_backend(
    batches: list, after: list[Row], backends: tuple[str, str]
) -> None:
    rows = opened(backends[0])
    for batch in batches:
        rows.update(partial(batch))
    pinned = rows.pin()
    rows.update(partial([("a", 0, 100), ("new", 0, 100)]))
    table = stored(pinned)
    assert table.schema.equals(LAYOUT.stored_schema)
    assert table.column(KEY_GROUP).to_pylist() == sorted(table.column(KEY_GROUP).to_pylist())
    restored = [opened(backends[1]), opened(backends[1])]
    for half, owned in zip(restored, (range(4), range(4, 8)), strict=True):
        half.replace(rows_of_key_groups(table, owned))
    history = [row for batch in batches for row in batch]
    assert as_model(restored[0].rows()) | as_model(restored[1].rows()) == expected(history)
    restored[0].replace(restored[1].rows())
    restored[0].update(partial(after))
    assert as_model(restored[0].rows()) == expected(history + after)
    assert as_model(stored(restored[0].take_changes())) == expected(history + after)


def test_dead_rows_do_not_pile_up_and_parts_stay_few() -> None:
    rows = KeyedRows(LAYOUT)
    rows.update(partial([(str(i), 0, 1) for i in range(1_000)]))
    for step in range(300):
        rows.update(partial([(str((step * 7 + i) % 1_000), 0, 1) for i in range(20)]))
        if step % 10 == 0:
            rows.take_changes()
        assert rows.row_count <= 4 * 1_000
        assert len(rows._parts) <= 24


def test_rows_that_do_not_change_are_not_copied_again_and_again() -> None:
    rows = KeyedRows(LAYOUT)
    rows.update(partial([(str(i), 0, 1) for i in range(1_000)]))
    rows.take_changes()
    [large] = rows._parts
    for _ in range(100):
        rows.update(partial([("0", 0, 1)]))
        rows.take_changes()
    assert rows._parts[0] is large


def test_a_key_may_come_several_times_in_one_update() -> None:
    rows, history = KeyedRows(LAYOUT), [("a", 0, 1), ("b", 0, 2)]
    rows.update(partial(history))
    twice = pa.concat_tables([partial([("a", 0, 3)]), partial([("a", 0, 4), ("c", 0, 5)])])
    history += [("a", 0, 3), ("a", 0, 4), ("c", 0, 5)]
    assert as_model(rows.update(twice)).keys() == {("a", 0), ("c", 0)}
    assert as_model(rows.rows()) == expected(history)


def test_a_sum_that_does_not_fit_leaves_everything_as_it_was() -> None:
    rows = KeyedRows(LAYOUT)
    rows.update(partial([("a", 0, 2**62)]))
    before = as_model(rows.rows())
    with pytest.raises(DataError, match="leaves 64 bits"):
        rows.update(partial([("b", 0, 1), ("a", 0, 2**62)]))
    assert as_model(rows.rows()) == before
    assert as_model(rows.update(partial([("b", 0, 1)]))) == expected([("b", 0, 1)])


def test_keys_with_equal_hashes_are_distinguished(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "laminar_core.state.keyed_rows.hash_columns",
        lambda _columns, rows: pa.array([7] * rows, pa.uint64()).to_numpy(),
    )
    rows, history = KeyedRows(LAYOUT), [("a", 0, 1), ("b", 0, 2), (None, 0, 3), ("a", 1, 4)]
    for _ in range(2):
        rows.update(partial(history))
    assert as_model(rows.rows()) == expected(history * 2)


def test_rows_are_found_and_replaced_by_the_numbers_of_their_keys() -> None:
    rows = KeyedRows(LAYOUT)
    for row in [("a", 0, 1), ("b", 0, 2), (None, 0, 3)]:
        rows.update(partial([row]))
    wanted = pa.concat_tables([partial([row]) for row in [("a", 0, 5), ("c", 0, 6), (None, 0, 7)]])
    keys = [wanted.column(key) for key in KEYS]
    numbers = rows.numbers_of(keys)
    assert numbers.tolist() == [0, MISSING, 2]
    assert as_model(rows.rows_of(numbers[[2, 0]])) == expected([(None, 0, 3), ("a", 0, 1)])
    rows.put(wanted, numbers)
    replaced = [("a", 0, 5), ("b", 0, 2), ("c", 0, 6), (None, 0, 7)]
    assert as_model(rows.rows()) == expected(replaced)
    assert rows.numbers_of(keys).tolist() == [0, 3, 2]
    assert numbers.tolist() == [0, MISSING, 2], "the caller's numbers are its own"


def test_to_pin_rows_costs_nothing_for_each_key() -> None:
    """Goal: a worker does not stand still for longer because it has more keys."""
    rows = KeyedRows(LAYOUT)
    rows.update(partial([("a", n, n) for n in range(20_000)]))
    tracemalloc.start()
    try:
        pinned = [rows.pin(), rows.take_changes()]
        assert tracemalloc.get_traced_memory()[1] < 20_000
    finally:
        tracemalloc.stop()
    assert [one.hashes.size for one in pinned] == [20_000, 20_000]


def without_n(rows: pa.Table, *, settled: bool) -> pa.Table:
    del settled
    return rows.filter(pc.equal(rows.column("n"), 0))


@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
def test_what_does_not_stay_is_gone_and_the_rest_is_no_change(backend: str) -> None:
    """Goal: keys leave, and what counts as changed since the last cut does not change."""
    for cut_after in range(5):
        rows, history = opened(backend), [("a", 0, 1), ("b", 1, 2), ("c", 0, 3), ("d", 1, 4)]
        for number, row in enumerate(history):
            if number == cut_after:
                rows.take_changes()
            rows.update(partial([row]))
        if cut_after == len(history):
            rows.take_changes()
        pinned = rows.pin()
        rows.forget(without_n)
        staying = [row for row in history if row[1] == 0]
        assert as_model(rows.rows()) == expected(staying)
        changed = [row for row in history[cut_after:] if row[1] == 0]
        assert as_model(stored(rows.take_changes())) == expected(changed)
        assert as_model(stored(pinned)) == expected(history), "a snapshot is untouched"
        rows.update(partial([("b", 1, 7)]))
        assert as_model(rows.rows()) == expected([*staying, ("b", 1, 7)])


def test_null_equals_null_and_nothing_else() -> None:
    left = pa.table({"a": ["x", None, None, "x"], "n": pa.nulls(4)})
    right = pa.table({"a": ["x", None, "x", None], "n": pa.nulls(4)})
    assert same_keys(left, right).tolist() == [True, True, False, False]


@pytest.mark.parametrize(
    "as_key", [int, str, lambda n: None if n == 3 else n], ids=["int", "text", "null"]
)
def test_totals_of_many_keys_are_those_of_a_dictionary(as_key) -> None:
    """Goal: groups of pyarrow come in an order of their own once there are many, or nulls."""
    dice, needed, totals = random.Random(5), accumulators_of([agg.sum("v")]), {}
    rows: KeyedRows | None = None
    for _ in range(4):
        keys = [as_key(dice.randrange(300)) for _ in range(600)]
        table = pa.table({"k": keys, "v": [dice.randrange(100) for _ in keys]})
        batch = accumulate({"k": table.column("k")}, table, needed)
        rows = rows or KeyedRows(RowLayout(("k",), needed, batch.schema))
        emitted = rows.update(batch)
        for row in table.to_pylist():
            totals[row["k"]] = totals.get(row["k"], 0) + row["v"]
        assert {row["k"]: row["sum(v)"] for row in emitted.to_pylist()}.items() <= totals.items()
        found = rows.rows().to_pylist()
        assert {row["k"]: row["sum(v)"] for row in found} == totals
        assert len(found) == len(totals)


def test_nan_equals_nan_and_structs_are_compared_field_by_field() -> None:
    nan = float("nan")
    left = pa.table({"x": [nan, 0.0, None, 1.0], "s": [None, {"a": nan}, {"a": None}, {"a": 1.0}]})
    right = pa.table({"x": [nan, -0.0, None, 1.0], "s": [None, {"a": nan}, None, {"a": 2.0}]})
    assert same_keys(left, right).tolist() == [True, True, False, False]


def test_totals_by_floats_and_structs() -> None:
    """Goal: one row per key, whichever zero and NaN a batch has, and also from a snapshot."""
    nan, place = float("nan"), pa.struct([("shop", pa.string()), ("x", pa.float32())])
    keys, needed = ("x", "place"), accumulators_of([agg.count()])
    batches = [
        {"x": [0.0, nan, None], "place": [{"shop": "a", "x": nan}, None, {"shop": None, "x": 0.0}]},
        {
            "x": [-0.0, nan, None],
            "place": [{"shop": "a", "x": nan}, None, {"shop": None, "x": -0.0}],
        },
    ]
    tables = [
        pa.table({"x": pa.array(b["x"], pa.float64()), "place": pa.array(b["place"], place)})
        for b in batches
    ]
    partials = [accumulate({k: t.column(k) for k in keys}, t, needed) for t in tables]
    layout = RowLayout(keys, needed, partials[0].schema)
    rows, again = KeyedRows(layout), KeyedRows(layout)
    rows.update(partials[0])
    again.replace(rows_of_key_groups(stored(rows.pin()), range(8)))
    again.update(partials[1])
    assert again.rows().column("count(*)").to_pylist() == [2, 2, 2]
    table = stored(again.pin())
    both = newest_rows([stored(rows.pin()), table], keys, layout.stored_schema)
    assert both.column("count(*)").to_pylist() == [2, 2, 2]


PLAIN = RowLayout(("k",), (), pa.schema([("k", pa.string()), ("v", pa.int64())]))


def plain(**values: int) -> pa.Table:
    return pa.table({"k": [*values], "v": [*values.values()]}, schema=PLAIN.schema)


def test_rows_are_looked_up_for_those_keys_that_have_one() -> None:
    rows = KeyedRows(PLAIN)
    assert rows.look_up(plain(a=0).select(["k"]))[1].num_rows == 0
    rows.replace(plain(a=1, b=2))
    rows.replace(plain(b=3))
    at, found = rows.look_up(plain(x=0, b=0, a=0).select(["k"]))
    assert at.tolist() == [1, 2]
    assert found.column("v").to_pylist() == [3, 1]


def test_forgotten_rows_are_no_change_and_changes_stay_changes() -> None:
    rows = KeyedRows(PLAIN)
    rows.replace(plain(a=1, b=2, c=3))
    rows.take_changes()
    rows.replace(plain(b=4, d=5))
    seen: dict[bool, list[str]] = {}

    def kept(table: pa.Table, *, settled: bool) -> pa.Table:
        seen[settled] = sorted(table.column("k").to_pylist())
        return table.filter(pa.array([key != "a" for key in table.column("k").to_pylist()]))

    rows.forget(kept)
    assert seen == {True: ["a", "c"], False: ["b", "d"]}
    assert len(rows) == 3
    changes = stored(rows.take_changes())
    assert sorted(changes.column("k").to_pylist()) == ["b", "d"]
    rows.replace(plain(a=7))
    assert sorted(rows.rows().column("v").to_pylist()) == [3, 4, 5, 7]


def test_the_newest_rows_are_found_whatever_keys_are_called() -> None:
    layout = RowLayout(("row",), (), pa.schema([("row", pa.string()), ("v", pa.int64())]))
    tables = [
        pa.table({KEY_GROUP: pa.array([0, 1], pa.int32()), "row": ["a", "b"], "v": [v, v]})
        for v in (1, 2)
    ]
    newest = newest_rows(tables, layout.keys, layout.stored_schema)
    assert newest.select(["row", "v"]).to_pydict() == {"row": ["a", "b"], "v": [2, 2]}
