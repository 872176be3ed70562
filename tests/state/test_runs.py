"""Runs: their order, the pieces that matches come in, and keys that have very many rows."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from laminar_core.codec.key_groups import key_groups_of
from laminar_core.state import runs
from laminar_core.state.rows_layout import RowsLayout
from laminar_core.state.runs import Bounds, Run, arranged, matches

POINT = pa.struct([("x", pa.float32()), ("y", pa.string())])
LAYOUT = RowsLayout(("k",), pa.schema([("k", pa.string()), ("n", pa.int64())]))


def run_of(keys: list[str | None], times_us: list[int] | None = None) -> Run:
    rows = pa.table({"k": pa.array(keys, pa.string()), "n": np.arange(len(keys))}, LAYOUT.schema)
    return arranged(rows, np.array(times_us or [0] * len(keys), np.int64), LAYOUT)


def pairs(probe: Run, run: Run, bounds: Bounds | None = None) -> Counter[tuple[int, int]]:
    mine, theirs = probe.rows.column("n").to_numpy(), run.rows.column("n").to_numpy()
    return Counter(
        (int(mine[one.probing[n]]), int(theirs[one.found[n]]))
        for one in matches(probe, run, [("k", "k")], bounds)
        for n in range(len(one.probing))
    )


def test_rows_are_in_the_order_of_key_groups() -> None:
    run = run_of([str(n) for n in range(1_000)])
    [batch] = run.rows.to_batches()
    groups = key_groups_of(batch, ["k"], 64).tolist()
    assert groups == sorted(groups)
    assert sorted(run.rows.column("n").to_pylist()) == list(range(1_000))


def test_matches_of_a_hot_key_come_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: every pair comes once, wherever blocks end, and no piece is larger than a block."""
    hot = ["hot"] * 90 + [str(n) for n in range(50)]
    probe, run = run_of(["hot", "3", "hot", None, "7"]), run_of(hot)
    expected = Counter({(mine, n): 1 for mine in (0, 2) for n in range(90)})
    expected += Counter([(1, 93), (4, 97)])
    for block in (1, 7, 89, 90, 91, 180, 65_536):
        monkeypatch.setattr("laminar_core.state.runs.BLOCK_ROWS_MAX", block)
        assert pairs(probe, run) == expected
        assert all(
            0 < len(one.found) == len(one.probing) <= block
            for one in matches(probe, run, [("k", "k")], None)
        )


def test_others_in_the_bucket_of_a_hot_key_do_not_look_at_all_its_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    upper = {"hot": 1 << 32, "other": (1 << 32) + (1 << 33)}
    monkeypatch.setattr(
        "laminar_core.state.runs.hash_columns",
        lambda columns, _rows: np.array([upper[k] for k in columns[0].to_pylist()], np.uint64),
    )
    probe, run = run_of(["other"]), run_of(["hot"] * 1_000 + ["other"])
    _, count = runs.candidates(probe.upper, run)
    assert count.tolist() == [1]
    assert pairs(probe, run) == {(0, 1_000): 1}


def test_null_matches_nothing() -> None:
    assert pairs(run_of([None, "a"]), run_of([None, "a"])) == {(1, 1): 1}


def test_floats_are_equal_as_in_groups_and_structs_by_their_fields() -> None:
    nan = float("nan")
    for data_type, values in (
        (pa.float64(), [0.0, -0.0, nan, -nan, 1.5]),
        (POINT, [{"x": x} for x in (0.0, -0.0, nan, nan, 1)]),
    ):
        schema = pa.schema([("k", data_type), ("n", pa.int64())])
        rows = pa.table({"k": pa.array(values, data_type), "n": np.arange(5)}, schema)
        run = arranged(rows, np.zeros(5, np.int64), RowsLayout(("k",), schema))
        assert sorted(pairs(run, run)) == [
            (0, 0), (0, 1), (1, 0), (1, 1), (2, 2), (2, 3), (3, 2), (3, 3), (4, 4),
        ]  # fmt: skip


def test_bounds_are_inclusive_and_count_from_the_probing_row() -> None:
    probe, run = run_of(["a"], [100]), run_of(["a"] * 5, [97, 98, 100, 103, 104])
    assert pairs(probe, run, Bounds(-2, 3)) == {(0, 1): 1, (0, 2): 1, (0, 3): 1}
    assert pairs(probe, run, Bounds(5, 9)) == {}
    for time_us in (98, 103):
        assert pairs(probe, run_of(["a"], [time_us]), Bounds(-2, 3)) == {(0, 0): 1}


def test_there_may_be_no_rows() -> None:
    assert pairs(run_of([]), run_of(["a"])) == pairs(run_of(["a"]), run_of([])) == {}


def test_candidates_are_never_more_than_was_said() -> None:
    """Goal: the estimate from bucket sizes is never too low, whatever the sizes and the skew."""
    random = np.random.default_rng(7)
    for rows, held in ((1, 900), (40, 900), (900, 1), (900, 40), (700, 700), (5, 5)):
        for hot in (0.0, 0.3, 1.0):
            keys = [
                ["hot" if one < hot else str(int(1_000 * one)) for one in random.random(count)]
                for count in (rows, held, held)
            ]
            probe, *others = map(run_of, keys)
            expected = np.zeros(rows, np.int64)
            for run in others:
                expected += runs.candidates(probe.upper, run)[1]
            assert runs.most_candidates(probe.upper, others) >= expected.sum()
            for most in (1, 50, 10_000):
                taken = runs.first_with(probe.upper, others, most)
                assert taken == 1 or expected[:taken].sum() <= most
                assert taken == rows or expected[: taken + 1].sum() > most
