"""A bundle of batches is reduced as all of their rows together would be."""

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_core.aggregates import bundle as bundles
from laminar_core.aggregates import key_places
from laminar_core.aggregates.accumulators import accumulate, accumulators_of
from laminar_core.aggregates.bundle import Bundle, Panes, PartialResults
from laminar_core.operators import agg

ACCUMULATORS = accumulators_of(
    (agg.count(), agg.count("v"), agg.sum("v"), agg.min("v"), agg.max("v"), agg.sum("f"))
)
Row = tuple[str, int, int, int]  # Key, another key, pane, v.


@pytest.fixture(autouse=True, scope="module")
def few_rows_will_do():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_places, "KEYS_PER_ROW_MAX", 100)
        patch.setattr(bundles, "NEAR_PLACES_MIN", 8)
        patch.setattr(bundles, "STEP_ROWS", 3)
        yield


def table(rows: Sequence[Row], *, encoded: bool = True) -> pa.Table:
    names, numbers, panes, values = zip(*rows, strict=True)
    text = pa.array(names)
    columns = {
        "k": text.dictionary_encode() if encoded else text,
        "n": pa.array(numbers, pa.int32()),
        "pane": pa.array(panes, pa.int64()),
        "v": pa.array(values, pa.int64()),
        "f": pa.array([value / 2 for value in values], pa.float64()),
    }
    return pa.table(columns)


def panes_of(rows: pa.Table) -> Panes:
    panes = rows.column("pane").to_numpy()
    first, last = int(panes.min()), int(panes.max())
    return Panes(first, last, panes.copy() if first < last else None)


def put(bundle: Bundle, rows: pa.Table, keys: Sequence[str]) -> list[PartialResults] | None:
    """Return what had to be taken first; None: it cannot be added."""
    addition = bundle.addition([rows.column(key) for key in keys], panes_of(rows), rows)
    if addition is None:
        return None
    taken = [] if bundle.has_room(addition) else list(bundle.take())
    bundle.add(addition)
    return taken


def as_rows(results: Iterable[PartialResults]) -> list[tuple]:
    rows: list[tuple] = []
    for each in results:
        columns = [*each.keys, *each.values]
        found = list(zip(*(column.to_pylist() for column in columns), strict=True))
        assert found, "results have rows"
        rows += [(each.pane, *row) for row in found]
    return rows


def merged(rows: Iterable[tuple], keys: int) -> dict[tuple, tuple]:
    """Put results of the same pane and keys together."""
    found: dict[tuple, tuple] = {}
    for row in rows:
        key, now = row[: keys + 1], row[keys + 1 :]
        was = found.get(key)
        count, known, total, low, high, half = now
        found[key] = now if was is None else (
            was[0] + count, was[1] + known, was[2] + total, min(was[3], low), max(was[4], high),
            was[5] + half,
        )  # fmt: skip
    return found


def expected(rows: pa.Table, keys: Sequence[str]) -> dict[tuple, tuple]:
    by = {key: rows.column(key) for key in ("pane", *keys)}
    names = [*by, *(each.name for each in ACCUMULATORS)]
    found = accumulate(by, rows, ACCUMULATORS).select(names)
    columns = [column.to_pylist() for column in found.columns]
    return merged(zip(*columns, strict=True), len(keys))


ROW = st.tuples(
    st.sampled_from("abcd"), st.integers(-20, 20), st.integers(-3, 6), st.integers(-9, 9)
)
BATCH = st.lists(ROW, min_size=1, max_size=8)
STEPS = st.lists(BATCH | st.integers(-4, 8), max_size=8)


@settings(deadline=None)
@given(STEPS, st.sampled_from([("k",), ("n",), ("k", "n")]), st.booleans())
def test_its_results_are_those_of_all_rows(steps: list, keys: tuple[str, ...], encoded) -> None:
    """A step adds a batch, or takes the panes before a number."""
    bundle, results, added = Bundle(ACCUMULATORS), [], [table([("a", 0, 0, 0)]).slice(0, 0)]
    for step in steps:
        if isinstance(step, int):
            taken = list(bundle.take(step)) if bundle.first_pane is not None else []
            assert all(each.pane < step for each in taken)
            assert bundle.first_pane is None or bundle.first_pane >= step
            results += as_rows(taken)
        elif (taken := put(bundle, table(step, encoded=encoded), keys)) is not None:
            results += as_rows(taken)
            added.append(table(step))
    if bundle.first_pane is not None:
        results += as_rows(bundle.take())
    assert bundle.first_pane is None
    rows = pa.concat_tables(added).unify_dictionaries()
    assert merged(results, len(keys)) == expected(rows, keys)


def test_a_key_of_a_pane_comes_once_for_many_batches() -> None:
    bundle = Bundle(ACCUMULATORS)
    for value in range(5):
        assert put(bundle, table([("a", 0, 7, value), ("b", 0, 7, value)]), ["k"]) == []
    assert as_rows(bundle.take()) == [
        (7, "a", 5, 5, 10, 0, 4, 5.0),
        (7, "b", 5, 5, 10, 0, 4, 5.0),
    ]


def test_places_are_kept_as_long_as_about_as_many_rows_come_between_two_cuts() -> None:
    bundle = Bundle(ACCUMULATORS)
    many = table([("", n, 0, 1) for n in range(100)])
    few = table([("", n, 0, 1) for n in (0, 60)])
    assert put(bundle, few, ("n",)) is None, "61 places for two rows"
    assert put(bundle, many, ("n",)) == []
    assert len(as_rows(bundle.take())) == 100
    for short in range(3):
        assert put(bundle, few, ("n",)) == [], short
        assert len(as_rows(bundle.take())) == 2
    assert put(bundle, few, ("n",)) is None, "they have long been few"
    assert put(bundle, many, ("n",)) == []


def test_infinite_sums_are_results_like_any_other() -> None:
    bundle = Bundle(ACCUMULATORS)
    infinite = table([("", 1, 0, 1), ("", 1, 0, 1)])
    infinite = infinite.set_column(4, "f", pa.array([np.inf, -np.inf]))
    assert put(bundle, infinite, ("n",)) == []
    [result] = bundle.take()
    assert np.isnan(result.values[-1][0].as_py())


def test_panes_that_are_far_apart_do_not_share_it() -> None:
    bundle = Bundle(ACCUMULATORS)
    assert put(bundle, table([("a", 0, 0, 1)]), ["k"]) == []
    assert put(bundle, table([("a", 0, bundles.PANES_MAX - 1, 2)]), ["k"]) == []
    taken = put(bundle, table([("a", 0, bundles.PANES_MAX, 3)]), ["k"])
    assert taken is not None
    assert [each.pane for each in taken] == [0, bundles.PANES_MAX - 1]
    wide = table([("a", 0, 0, 1), ("a", 0, bundles.PANES_MAX, 1)])
    assert put(bundle, wide, ["k"]) is None


def test_a_sum_that_might_not_fit_is_taken_before() -> None:
    bundle = Bundle(ACCUMULATORS)
    half = 2**62
    assert put(bundle, table([("a", 0, 0, half)]), ["k"]) == []
    taken = put(bundle, table([("a", 0, 0, half)]), ["k"])
    assert taken is not None
    assert as_rows(taken)[0][4] == half
    quarter = -half // 2
    assert put(bundle, table([("a", 0, 0, quarter), ("b", 0, 0, quarter)]), ["k"]) is not None
    assert put(bundle, table([("a", 0, 0, -half), ("b", 0, 0, -half)]), ["k"]) is None


def test_memory_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = 5  # The number of rows, three of integers and one of floats.
    monkeypatch.setattr(bundles, "BYTES_MAX", 12 * 8 * arrays)
    bundle = Bundle(ACCUMULATORS)
    assert put(bundle, table([("a", n, 0, 1) for n in range(5)]), ["n"]) == []
    assert put(bundle, table([("a", n, 1, 1) for n in range(5)]), ["n"]) == []
    taken = put(bundle, table([("a", n, 2, 1) for n in range(5)]), ["n"])
    assert taken is not None
    assert [each.pane for each in taken] == [0, 1]
    assert put(bundle, table([("a", n, n % 2, 1) for n in range(7)]), ["n"]) is None
    assert put(bundle, table([("a", n, 0, 1) for n in range(13)]), ["n"]) is None


@pytest.mark.parametrize(
    ("values", "aggregate"),
    [
        (pa.array([1, None], pa.int64()), agg.sum("v")),
        (pa.array([1, None], pa.int64()), agg.count("v")),
        (pa.array([1.5, float("nan")]), agg.max("v")),
        (pa.array([1, 2], pa.int32()), agg.sum("v")),
        (pa.array(["a", "b"]), agg.min("v")),
        (pa.array([1, 2], pa.int64()), agg.stddev_pop("v")),
        (pa.array([1, 2], pa.int64()), agg.count_distinct("v")),
    ],
)
def test_what_numpy_would_reduce_differently_is_left_alone(values, aggregate) -> None:
    rows = pa.table({"k": pa.array(["a", "b"]).dictionary_encode(), "v": values})
    bundle = Bundle(accumulators_of((agg.count(), aggregate)))
    assert bundle.addition([rows.column("k")], Panes(0, 0, None), rows) is None


def test_memory_for_places_is_used_again() -> None:
    bundle = Bundle(accumulators_of((agg.count(),)))
    batches = ([5, 3, 4], [3], [4, 4])
    for numbers in batches:
        rows = pa.table({"n": pa.array(numbers, pa.int64())})
        addition = bundle.addition([rows.column("n")], Panes(0, 0, None), rows)
        assert addition is not None
        assert bundle.has_room(addition)
        bundle.add(addition)
    [results] = bundle.take()
    counts = dict(zip(results.keys[0].to_pylist(), results.values[0].to_pylist(), strict=True))
    assert counts == {3: 2, 4: 3, 5: 1}
    assert np.array_equal(results.keys[0].to_numpy(), [3, 4, 5])
