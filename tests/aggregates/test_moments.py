"""Variance and standard deviation: precise where sums of squares are not, and mergeable."""

import math
import random
import statistics

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_core.aggregates.moments import Moments, spread
from laminar_core.aggregates.row_groups import one_group
from tests.sampling import drawn

FUNCTIONS = ("var_pop", "var_samp", "stddev_pop", "stddev_samp")


def state_of(values: list) -> pa.Array:
    return Moments().accumulate([pa.array(values, pa.float64())], one_group(len(values)))


def merged(*parts: list) -> pa.Array:
    states = pa.concat_arrays([state_of(part) for part in parts])
    return Moments().merge(states, one_group(len(parts)))


def test_the_definitions() -> None:
    values = [1.0, 4.0, None, 7.0, 8.0]
    known = [value for value in values if value is not None]
    expected = [getattr(statistics, name) for name in ("pvariance", "variance", "pstdev", "stdev")]
    for name, definition in zip(FUNCTIONS, expected, strict=True):
        assert spread(state_of(values), name).to_pylist() == [pytest.approx(definition(known))]


def test_a_small_spread_around_a_large_mean_keeps_its_digits() -> None:
    """Goal: 1e9 + {4, 7, 13, 16} has variance 22.5; sums of squares give 0 or less."""
    values = [1e9 + 4, 1e9 + 7, 1e9 + 13, 1e9 + 16]
    assert spread(state_of(values), "var_pop").to_pylist() == [22.5]
    assert spread(merged(values[:1], values[1:3], values[3:]), "var_pop").to_pylist() == [22.5]


def test_many_halves_around_a_large_mean_keep_their_digits() -> None:
    """Goal: a sum of 1,000 means of 2**52 has no digit left for the spread."""
    small = [float(i * i % 7) for i in range(997)]
    [found] = spread(merged(*([2.0**52 + value] for value in small)), "var_pop").to_pylist()
    assert found == pytest.approx(statistics.pvariance(small), rel=1e-9)


def test_one_value_has_a_population_but_is_no_sample() -> None:
    assert [spread(state_of([5.0]), name)[0].as_py() for name in FUNCTIONS] == [0, None, 0, None]
    assert spread(state_of([]), "var_pop").to_pylist() == [None]
    assert spread(merged([], [5.0], []), "var_samp").to_pylist() == [None]


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_has_no_spread(odd: float) -> None:
    assert math.isnan(spread(state_of([1.0, odd]), "var_pop")[0].as_py())
    assert math.isnan(spread(merged([odd], [1.0]), "stddev_samp")[0].as_py())


def test_merging_one_half_changes_nothing_to_the_last_bit() -> None:
    dice = random.Random(7)
    for count in range(1, 60):
        values = [dice.random() * 1e6 for _ in range(count)]
        state = state_of(values)
        assert Moments().merge(state, one_group(1)).equals(state)
        assert merged([], values, []).equals(state)


@settings(deadline=None, max_examples=drawn(60))
@given(st.lists(st.lists(st.floats(-1e6, 1e6)), min_size=1, max_size=5))
def test_halves_are_the_whole(parts: list[list[float]]) -> None:
    values = [value for part in parts for value in part]
    [found] = spread(merged(*parts), "var_pop").to_pylist()
    if not values:
        assert found is None
    else:
        # The tolerance is of the values' own size: their differences cannot be known better.
        assert found == pytest.approx(statistics.pvariance(values), rel=1e-9, abs=1e-3)
