from random import Random

import pytest

from laminar_core.host.clock import ManualClock
from laminar_core.objectstore.retries import Budget, MachineClock, RetryPolicy


def waits(policy: RetryPolicy, seed: int = 1) -> list[float]:
    """All waits until the budget is spent."""
    clock = ManualClock()
    budget = Budget(policy, clock, Random(seed))
    found: list[float] = []
    before = clock.monotonic_ms()
    while budget.wait_for_another():
        found.append(clock.monotonic_ms() - before)
        before = clock.monotonic_ms()
    return found


def test_bounds_double_up_to_a_bound_of_their_own():
    policy = RetryPolicy(first_wait_ms=100, wait_max_ms=1_000)
    assert [policy.wait_bound_ms(n) for n in (1, 2, 3, 4, 5, 500)] == [100, 200, 400, 800, 1e3, 1e3]


@pytest.mark.parametrize("seed", range(20))
def test_waits_stay_below_their_bounds_and_all_together_below_the_budget(seed):
    policy = RetryPolicy(budget_ms=20_000)
    found = waits(policy, seed)
    assert all(0 <= wait <= policy.wait_bound_ms(n) for n, wait in enumerate(found, 1))
    assert 10_000 < sum(found) < 20_000


def test_waits_are_drawn_from_the_whole_range_so_that_clients_spread():
    first = [waits(RetryPolicy(), seed)[0] for seed in range(200)]
    assert min(first) < 5
    assert max(first) > 95
    assert 40 < sum(first) / len(first) < 60


def test_without_a_budget_nothing_is_tried_again():
    assert waits(RetryPolicy(budget_ms=0)) == []


def test_time_that_the_attempts_take_counts():
    clock = ManualClock()
    budget = Budget(RetryPolicy(budget_ms=1_000), clock, Random(1))
    clock.wait_ms(990)
    assert not any(budget.wait_for_another() for _ in range(50))
    assert budget.failures == 50


def test_the_machine_has_a_clock():
    clock = MachineClock()
    before = clock.monotonic_ms()
    clock.wait_ms(2)
    assert clock.monotonic_ms() >= before + 2
