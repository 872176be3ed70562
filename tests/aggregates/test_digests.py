"""Approximate percentiles: the stated tolerance, merging, and what a digest does not take."""

import math

import numpy as np
import pyarrow as pa
import pytest

from laminar_core.aggregates.digests import Digests, quantile
from laminar_core.aggregates.row_groups import RowGroups, one_group

DIGESTS = Digests()
SHAPES = {
    "uniform": lambda random: random.random(20_000),
    "lognormal": lambda random: random.lognormal(0, 3, 20_000),
    "sorted": lambda _random: np.arange(20_000.0),
    "few values": lambda random: random.integers(0, 3, 20_000) * 1.0,
}


def digest(values: list | np.ndarray) -> pa.Array:
    return DIGESTS.accumulate([pa.array(values, pa.float64())], one_group(len(values)))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("parts", [1, 50])
def test_ranks_are_within_one_percent(shape: str, parts: int) -> None:
    values = SHAPES[shape](np.random.default_rng(7))
    states = pa.concat_arrays([digest(part) for part in np.array_split(values, parts)])
    merged = DIGESTS.merge(states, one_group(parts))
    for fraction in (0.001, 0.01, 0.25, 0.5, 0.75, 0.99, 0.999):
        found = quantile(merged, fraction)[0].as_py()
        below, upto = np.mean(values < found), np.mean(values <= found)
        assert below - 0.01 <= fraction <= upto + 0.01


def test_equal_rows_give_equal_bytes() -> None:
    values = np.random.default_rng(7).random(5_000)
    assert digest(values).equals(digest(values))
    halves = pa.concat_arrays([digest(values[:99]), digest(values[99:])])
    merged = [DIGESTS.merge(halves, one_group(2)) for _ in range(2)]
    assert merged[0].equals(merged[1])


def test_merging_one_half_changes_nothing() -> None:
    state = digest([1.0, 2.0, math.nan])
    assert DIGESTS.merge(state, one_group(1)).equals(state)


def test_infinities_and_nan_have_their_ranks() -> None:
    state = digest([-math.inf, 1.0, 1.0, 1.0, math.inf, math.nan, None])
    found = [quantile(state, fraction)[0].as_py() for fraction in (0.0, 0.1, 0.5, 0.8, 1.0)]
    assert found[:4] == [-math.inf, -math.inf, 1.0, math.inf]
    assert math.isnan(found[4])
    assert quantile(digest([math.inf]), 0.0).to_pylist() == [math.inf]
    assert math.isnan(quantile(digest([math.nan]), 0.0)[0].as_py())


def test_finite_values_are_ranked_among_all() -> None:
    state = digest([-math.inf] * 50 + list(range(100)) + [math.inf] * 50)
    assert quantile(state, 0.5)[0].as_py() == pytest.approx(50, abs=2)
    assert quantile(state, 0.375)[0].as_py() == pytest.approx(25, abs=2)


def test_groups_do_not_mix() -> None:
    groups = RowGroups(np.array([0, 2, 1]), np.array([0, 2, 2, 3]))
    state = DIGESTS.accumulate([pa.array([1, 5, 1])], groups)
    assert quantile(state, 0.5).to_pylist() == [1.0, None, 5.0]
    twice = pa.concat_arrays([state, state])
    groups = RowGroups(np.array([0, 3, 1, 4, 2, 5]), np.array([0, 2, 4, 6]))
    assert quantile(DIGESTS.merge(twice, groups), 0.5).to_pylist() == [1.0, None, 5.0]


def test_only_numbers_are_taken() -> None:
    assert DIGESTS.state_type([pa.string()]) is None
    assert DIGESTS.label == "t_digest_500"
