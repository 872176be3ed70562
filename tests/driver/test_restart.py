"""Restart strategies: how long to wait after which failures, and when to give up."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_core.driver.restart import (
    ExponentialDelay,
    FailureRate,
    FixedDelay,
    NoRestart,
    RestartStrategy,
)
from laminar_core.errors import ConfigurationError, ErrorCode


def trace(strategy: RestartStrategy, *failures_ms: float) -> list[float | None]:
    """The decision after each failure."""
    return [strategy.delay_ms(failures_ms[: n + 1]) for n in range(len(failures_ms))]


def at_once(count: int, strategy: RestartStrategy) -> list[float | None]:
    """Decisions for a job that fails as soon as it has been started."""
    failures: list[float] = [0]
    decisions = trace(strategy, 0)
    while len(decisions) < count and (delay := decisions[-1]) is not None:
        failures.append(failures[-1] + delay)
        decisions.append(strategy.delay_ms(failures))
    return decisions


def test_no_restart_gives_up_at_once() -> None:
    assert trace(NoRestart(), 5) == [None]


@pytest.mark.parametrize(("attempts", "decisions"), [(0, [None]), (2, [7, 7, None])])
def test_fixed_delay_pauses_and_gives_up(attempts: int, decisions) -> None:
    assert at_once(9, FixedDelay(attempts, pause_ms=7)) == decisions


def test_exponential_delay_grows_up_to_its_maximum() -> None:
    strategy = ExponentialDelay(initial_ms=10, maximum_ms=70, attempts=None)
    assert at_once(6, strategy) == [10, 20, 40, 70, 70, 70]


def test_exponential_delay_gives_up_after_its_attempts() -> None:
    assert at_once(9, ExponentialDelay(10, 70, attempts=3)) == [10, 20, 40, None]
    assert at_once(9, ExponentialDelay(attempts=0)) == [None]


def test_a_run_that_lasted_starts_the_series_anew() -> None:
    strategy = ExponentialDelay(10, 1000, reset_after_ms=100, attempts=2)
    failures = (0, 10, 10 + 20 + 100, 10 + 20 + 100 + 10)
    assert trace(strategy, *failures) == [10, 20, 10, 20]


def test_a_run_that_did_not_last_does_not() -> None:
    strategy = ExponentialDelay(10, 1000, reset_after_ms=100, attempts=2)
    assert trace(strategy, 0, 10, 10 + 20 + 99) == [10, 20, None]


def test_a_long_pause_is_not_taken_for_a_long_run() -> None:
    """Otherwise a job that fails at once would be restarted for ever."""
    strategy = ExponentialDelay(
        initial_ms=40_000, maximum_ms=120_000, reset_after_ms=60_000, attempts=4
    )
    assert at_once(99, strategy) == [40_000, 80_000, 120_000, 120_000, None]


@pytest.mark.parametrize(
    ("multiplier", "after_many"), [(1e10, 30_000), (1e308, 30_000), (math.inf, 30_000), (1, 50)]
)
def test_no_multiplier_is_too_large_for_any_number_of_failures(multiplier, after_many) -> None:
    strategy = ExponentialDelay(multiplier=multiplier, attempts=None)
    assert trace(strategy, *range(500))[-1] == after_many


def test_a_small_multiplier_reaches_the_maximum_in_the_end() -> None:
    strategy = ExponentialDelay(1, 30_000, multiplier=1.01, attempts=None)
    assert trace(strategy, *range(2000))[-1] == 30_000


@given(
    st.lists(st.floats(0, 200_000), min_size=1, max_size=30).map(sorted),
    st.floats(0, 1000),
    st.floats(1, 10),
)
def test_a_pause_is_never_out_of_bounds(failures, initial_ms: float, multiplier: float) -> None:
    strategy = ExponentialDelay(initial_ms, 5_000, multiplier, 10_000, attempts=None)
    delays = trace(strategy, *failures)
    assert all(delay is not None and initial_ms <= delay <= 5_000 for delay in delays)
    assert all(
        later in (initial_ms, earlier) or later > earlier for earlier, later in pairwise(delays)
    )


@pytest.mark.parametrize(
    ("failures", "decision"),
    [
        ((0,), 3),
        ((0, 10), 3),
        ((0, 10, 20), None),
        ((0, 10, 99), None),
        ((0, 10, 100), 3),
        ((0, 10, 20, 500), 3),
    ],
)
def test_failure_rate_counts_what_the_last_interval_saw(failures, decision) -> None:
    assert FailureRate(2, interval_ms=100, pause_ms=3).delay_ms(failures) == decision


@pytest.mark.parametrize(
    ("strategy", "options"),
    [
        (FixedDelay, {"attempts": -1}),
        (FixedDelay, {"attempts": 1, "pause_ms": -1}),
        (FixedDelay, {"attempts": 1, "pause_ms": math.nan}),
        (ExponentialDelay, {"initial_ms": -1}),
        (ExponentialDelay, {"initial_ms": 10, "maximum_ms": 9}),
        (ExponentialDelay, {"multiplier": 0.5}),
        (ExponentialDelay, {"multiplier": math.nan}),
        (ExponentialDelay, {"reset_after_ms": -1}),
        (ExponentialDelay, {"attempts": -1}),
        (FailureRate, {"interval_ms": 10, "failures_max": -1}),
        (FailureRate, {"failures_max": 1, "interval_ms": 0}),
        (FailureRate, {"failures_max": 1, "interval_ms": 10, "pause_ms": -1}),
    ],
    ids=str,
)
def test_nonsense_is_refused_with_the_name_of_the_option(strategy, options) -> None:
    name = list(options)[-1]
    with pytest.raises(ConfigurationError, match=rf"^{name} must be at least") as caught:
        strategy(**options)
    assert caught.value.code is ErrorCode.INVALID_OPTION
